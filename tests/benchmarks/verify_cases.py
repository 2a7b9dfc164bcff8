"""How the verification judges a folder of cases: ``python -m tests.benchmarks.verify_cases FOLDER [--own]``.

Each case is a module with ENTRY, IN_DIMS and make_inputs(seed, batch), and maybe a naive_where written over the
batch. It is verified on its own inputs, on made-up ones (not with --own), and its naive_where is held against the loop.
"""

from __future__ import annotations

import signal
import sys
import warnings
from pathlib import Path

from rich.console import Console
from rich.table import Table

from if2where import ConversionRefused, NoInputs, verify
from tests.benchmarks import module_of

SECONDS = 12


def _stop(*_: object) -> None:
    raise TimeoutError(f"not done in {SECONDS} s")


def judged(fn, inputs, in_dims, **options) -> str:  # type: ignore[no-untyped-def]
    # A loop that waits for the data may never end on made-up values.
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(SECONDS)
    try:
        found = verify(fn, inputs, in_dims, **options)
    except (ConversionRefused, NoInputs) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:70]}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:70]}"
    finally:
        signal.alarm(0)
    if found.ok:
        return "equal"
    if found.differences:
        return f"differs: {found.differences[0]}"[:90]
    return f"unexercised: {', '.join(f'line {t.line} {t.missing}' for t in found.unexercised)}"


def main() -> None:
    warnings.simplefilter("ignore")
    table = Table("case", "own inputs", "made-up inputs", "naive_where")
    counts = {"own": 0, "made up": 0, "naive": 0, "naive fails": 0, "cases": 0}
    for path in sorted(Path(sys.argv[1]).glob("*.py")):
        module = module_of(path)
        if getattr(module, "EXPECT", "convert") != "convert":
            continue
        fn = module
        for part in module.ENTRY.split("."):
            fn = getattr(fn, part)
        own = judged(fn, module.make_inputs(1, 24), module.IN_DIMS)
        made_up = "" if "--own" in sys.argv else judged(fn, None, module.IN_DIMS)
        print(path.stem, own, made_up, sep=" | ", flush=True)
        naive = ""
        if hasattr(module, "naive_where"):
            naive = judged(fn, module.make_inputs(1, 24), module.IN_DIMS, batched=module.naive_where)
            counts["naive"] += 1
            counts["naive fails"] += naive.startswith("differs")
        counts["cases"] += 1
        counts["own"] += own == "equal"
        counts["made up"] += made_up == "equal"
        table.add_row(path.stem, own, made_up, naive)
    Console(width=220).print(table)
    print(counts)


if __name__ == "__main__":
    main()
