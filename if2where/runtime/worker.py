"""Verifies one function of a file, in a process of its own: what the user's code does there stays there.

``python -m if2where.runtime.worker REQUEST RESULT``: both are files of json. The result is written last, so that
a process that ends before has none.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load(path: str) -> ModuleType:
    """The file as a module, with its folder to import from."""
    place = Path(path).resolve()
    sys.path.insert(0, str(place.parent))
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.stem] = module
    spec.loader.exec_module(module)
    return module


def inputs_of(module: ModuleType, name: str, seed: int, samples: int) -> tuple[Any, ...] | None:
    """What the named function gives (``module:function``, or one of the file's own); None where there is none."""
    if name:
        where, _, attribute = name.rpartition(":")
        make = getattr(importlib.import_module(where) if where else module, attribute)
    else:
        make = getattr(module, "verify_inputs", None)
    if make is None:
        return None
    wanted = len(inspect.signature(make).parameters)
    return tuple(make(*(seed, samples)[:wanted]))


def run(request: dict[str, Any]) -> dict[str, Any]:
    from if2where.runtime.functions import ConversionRefused
    from if2where.runtime.samples import NoInputs
    from if2where.runtime.sources import SourceUnavailable
    from if2where.runtime.verify import verify

    module = load(request["path"])
    fn: Any = module
    for part in request["function"].split("."):
        fn = getattr(fn, part)
    fn = getattr(fn, "__wrapped__", fn) if request.get("unwrap") else fn
    options = request["options"]
    inputs = inputs_of(module, request["inputs"], options["seed"], options["samples"])
    dims = request["in_dims"]
    in_dims: Any = tuple(dims) if isinstance(dims, list) else dims
    if isinstance(in_dims, tuple) and inputs is not None:
        in_dims = in_dims[: len(inputs)]
    try:
        found = verify(fn, inputs, in_dims, **options)
    except ConversionRefused as error:
        return {"error": "refused", "text": str(error)}
    except (NoInputs, SourceUnavailable) as error:
        return {"error": "not run", "text": str(error)}
    return {**found.to_dict(), "text": str(found)}


def main() -> None:
    request, result = sys.argv[1:]
    found = run(json.loads(Path(request).read_text()))
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
