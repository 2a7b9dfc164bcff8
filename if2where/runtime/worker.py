"""Verifies or measures one function of a file, in a process of its own: what the user's code does there stays there.

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
    """The file as a module: of its package, where it lies in one, or with its folder to import from."""
    place = Path(path).resolve()
    root, parts = place.parent, [place.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    sys.path.insert(0, str(root))
    if len(parts) > 1:
        return importlib.import_module(".".join(parts[:-1] if place.stem == "__init__" else parts))
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[place.stem] = module
    spec.loader.exec_module(module)
    return module


def beside(module: ModuleType, text: str) -> ModuleType:
    """Another text in the place of the module, its conversion for one."""
    from if2where.runtime.sources import execute

    name = f"{module.__file__} (converted)"
    made = ModuleType(module.__name__)
    made.__file__, made.__package__ = module.__file__, module.__package__
    execute(text, name, made.__dict__)
    return made


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


def member(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def run(request: dict[str, Any]) -> dict[str, Any]:
    from if2where.runtime.functions import ConversionRefused
    from if2where.runtime.samples import NoInputs
    from if2where.runtime.sources import SourceUnavailable

    module = load(request["path"])
    fn = member(module, request["function"])
    options = request["options"]
    inputs = inputs_of(module, request["inputs"], options["seed"], options["samples"])
    dims = request["in_dims"]
    in_dims: Any = tuple(dims) if isinstance(dims, list) else dims
    if isinstance(in_dims, tuple) and inputs is not None:
        in_dims = in_dims[: len(inputs)]
    text = request.get("converted")
    converted = member(beside(module, text), request["function"]) if text is not None else None
    try:
        if request["task"] == "bench":
            return measured(fn, inputs, in_dims, request["report"], options)
        from if2where.runtime.verify import verify

        found = verify(fn, inputs, in_dims, converted=converted, **options)
    except ConversionRefused as error:
        return {"error": "refused", "text": str(error)}
    except (NoInputs, SourceUnavailable) as error:
        return {"error": "not run", "text": str(error)}
    return {**found.to_dict(), "text": str(found)}


def measured(fn: Any, inputs: Any, in_dims: Any, report: bool, options: dict[str, Any]) -> dict[str, Any]:
    """The timings; for a report also the verification, the curves and the diff."""
    from if2where.runtime import compare
    from if2where.runtime.bench import bench
    from if2where.runtime.curves import curves
    from if2where.runtime.functions import convert
    from if2where.runtime.samples import make_inputs
    from if2where.runtime.verify import verify

    converted = convert(fn, in_dims=in_dims)
    if inputs is None:
        inputs, in_dims = make_inputs(fn, in_dims, options["samples"], options["seed"])
    found = bench(fn, inputs, in_dims, converted=converted, **options)
    result: dict[str, Any] = {"bench": found.to_dict(), "text": str(found)}
    if report:
        result["verification"] = verify(fn, inputs, in_dims, converted=converted, seed=options["seed"]).to_dict()
        result["curves"] = [c.to_dict() for c in curves(fn, converted, compare.batch_of(inputs, in_dims))]
        result["diff"] = converted.diff() if hasattr(converted, "diff") else ""
    return result


def main() -> None:
    request, result = sys.argv[1:]
    found = run(json.loads(Path(request).read_text()))
    Path(result).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
