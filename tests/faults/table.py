"""Injects every fault and writes the table of docs/reliability.md: `python -m faults.table [--only WORD] [--write]`.

Run from the folder `tests` with the project importable; `nox -s faults` does that.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

from faults import children, disks, inputs, networks, parents
from faults.scene import TESTS, Fault

PAGE = TESTS.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- FAULTS: begin -->", "<!-- FAULTS: end -->"


def all_faults() -> list[Fault]:
    """Every fault, family by family."""
    return [fault for family in (children, parents, disks, networks, inputs) for fault in family.faults()]


def main() -> int:
    """Prints a row per fault; with `--write` the page takes them over."""
    parser = argparse.ArgumentParser(description="Injects every fault and prints what became of it.")
    parser.add_argument("--only", default="", help="faults whose family or name contains this")
    parser.add_argument("--quick", action="store_true", help="the short form that the normal tests run")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    asked = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGQUIT):  # `nohup` and `&` leave them ignored, which children inherit
        signal.signal(number, signal.SIG_DFL)
    rows = ["| fault | who is blamed | what stays | s |", "|---|---|---|---|"]
    failed = 0
    for fault in all_faults():
        if asked.only not in f"{fault.family} {fault.name}" or (asked.quick and not fault.quick):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fault-") as folder:
            try:
                outcome = fault.inject(Path(folder))
                blamed, kept = outcome.blamed, outcome.kept
            except pytest.skip.Exception as skipped:
                blamed, kept = "not injected", str(skipped)
            except BaseException:
                traceback.print_exc()
                blamed, kept = "FAILED", "see above"
                failed += 1
        seconds = time.monotonic() - began
        rows.append(f"| {fault.family}: {fault.name} | {blamed} | {kept} | {seconds:.1f} |")
        print(rows[-1], flush=True)
    print(f"{len(rows) - 2} faults, {failed} not as they should be")
    if asked.write and not failed:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(rows) + f"\n{END}{after}", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
