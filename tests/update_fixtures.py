"""``python -m tests.update_fixtures [names]``: writes after.py or refusals.txt from the converter, for a person to read.

Nothing is written where running the result shows a difference from the original. Without names, fixtures with
a known FAULT are passed over; with its name, one that has been mended gets its text.
"""

from __future__ import annotations

import sys

from if2where.module import encode
from tests.execution import compare, load
from tests.fixture import fixtures


def main(names: list[str]) -> int:
    failed = 0
    for fixture in fixtures():
        if names and fixture.name not in names:
            continue
        if not names and "FAULT" in fixture.constants:
            continue
        result = fixture.convert()
        if fixture.expect == "refuse":
            lines = [f"{d.line}:{d.col} {d.code.name}" for d in result.refusals]
            if not lines:
                print(f"{fixture.name}: not refused")
                failed += 1
                continue
            (fixture.folder / "refusals.txt").write_text("\n".join(lines) + "\n")
            continue
        if fixture.expect == "untouched":
            continue
        if result.refusals:
            print(f"{fixture.name}: refused: {[(d.line, d.code.name, d.detail) for d in result.refusals]}")
            failed += 1
            continue
        original = load(fixture.source.text, "fixture_before")
        try:
            converted = load(result.text, "fixture_after")
            entry, dims = fixture.constants["ENTRY"], fixture.constants["IN_DIMS"]
            found = [
                line
                for seed in (0, 1)
                for line in compare(
                    getattr(original, entry),
                    getattr(converted, entry),
                    original.make_inputs(seed, 16),
                    dims,
                    gradients=fixture.constants.get("GRAD", True),
                    second_order=True,
                    forward_mode=True,
                    per_sample=fixture.constants.get("PER_SAMPLE", True),
                )
            ]
        except Exception as error:
            found = [f"{type(error).__name__}: {str(error)[:200]}"]
        if found:
            print(f"{fixture.name}: {found}")
            failed += 1
            continue
        (fixture.folder / "after.py").write_bytes(encode(fixture.source, result.text))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
