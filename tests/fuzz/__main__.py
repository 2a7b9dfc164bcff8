"""``python -m tests.fuzz --count N --seed S``: a long run by hand; prints every fault with its smallest program."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.fuzz.check import check, shrunk
from tests.fuzz.programs import program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-shrink", action="store_true")
    args = parser.parse_args()
    start = time.time()
    counts: Counter[str] = Counter()
    for seed in range(args.seed, args.seed + args.count):
        outcome = check(seed)
        counts[outcome.kind] += 1
        if outcome.kind in ("mismatch", "crash"):
            print(f"== seed {seed}: {outcome.kind}: {outcome.detail}", flush=True)
            if not args.no_shrink:
                small = shrunk(program(seed), seed, outcome)
                print(small[small.index("def f(") :], flush=True)
        elif outcome.kind == "refused":
            print(f"-- seed {seed}: {outcome.detail[:150]}", flush=True)
    print(dict(counts), f"{time.time() - start:.0f} s")
    return int(counts["mismatch"] + counts["crash"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
