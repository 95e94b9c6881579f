"""The hunter's command line: `python -m hunt --minutes 10 --seed 0`, in tests/."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import torch

from hunt.judge import OURS
from hunt.pool import Pool
from hunt.report import Report
from hunt.worker import FURTHER, record, warm_all


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="hunt", description="Generates programs, exports them and compares with eager."
    )
    parser.add_argument(
        "--minutes", type=float, default=None, help="stop after so long (default: 10, or none with --count)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed; one seed is one program")
    parser.add_argument("--count", type=int, default=None, help="stop after so many programs")
    parser.add_argument("--only", type=int, default=None, help="one seed, in this process, with its program printed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for one program, shrinking included")
    parser.add_argument(
        "--reference-share", type=int, default=20, help="also ask onnx.reference for one program of so many"
    )
    parser.add_argument(
        "--opsets", type=int, default=1 + FURTHER, help="at so many opsets the capture of a program is translated"
    )
    parser.add_argument(
        "--ours-only", action="store_true", help="only count what is not the exporter's, which saves its shrinking"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/hunt"), help="where findings go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Hunts; 1 when a defect of the exporter was found."""
    options = parsed(arguments)
    torch.set_num_threads(1)
    if options.only is not None:
        return _one(options.only)
    minutes = options.minutes if options.minutes is not None or options.count is not None else 10.0
    end = time.monotonic() + minutes * 60 if minutes is not None else float("inf")
    seeds = (
        itertools.count(options.seed) if options.count is None else range(options.seed, options.seed + options.count)
    )
    warm_all()
    report = Report(options.out)
    pool = Pool(options.workers, options.limit, options.reference_share, report.known, opsets=options.opsets - 1)
    if options.ours_only:
        pool.shrinks = frozenset(OURS)
    for found in pool.run(iter(seeds), lambda: time.monotonic() < end):
        report.add(found)
    report.write()
    print(report.text())
    return int(report.has_ours)


def _one(seed: int) -> int:
    from hunt.generate import generate
    from hunt.programs import source

    hunted = generate(seed)
    print(f"sizes {list(hunted.assignments)}, opset {hunted.program.opset}, outputs {hunted.program.outputs}")
    print(*hunted.program.leaves, source(hunted.program), sep="\n")
    found = record(seed, reference=True)
    script = found.pop("script", None)
    print(json.dumps(found, indent=2))
    if script:
        print(script)
    return int(found["outcome"] not in ("ok", "refused", "skipped", "upstream", "declared", "assumed", "reference"))


if __name__ == "__main__":
    sys.exit(main())
