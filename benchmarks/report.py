"""The HTML report of 5,000 cells: how long it takes to write, how large it is, how soon a browser can use it.

Aims: written in 3 s, at most 5 MB, interactive in 1 s, on a machine that does nothing else. Records are made up; their
facts are as long as real ones. The browser part needs the Python package playwright and a Chromium; without them it is
left out, and says so. It prints a table and never fails: a busy machine is no defect of the page.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path

from batch_export.numbers.facts import OutputFacts
from batch_export.record import ActionFacts, Cell, Failure, OnnxFacts, Record, RunFacts
from batch_export.report.compare import compare
from batch_export.report.history import Entry
from batch_export.report.html import html_report
from batch_export.report.html_data import ReportContext
from batch_export.report.summary import Counts, summarise
from batch_export.runtime.measuring import LatencyFacts
from batch_export.steps import MNEMONICS

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def made_up(count: int, seed: int = 0) -> list[Record]:
    """Records of a matrix of `count` cells: one in twenty fails, for one of a dozen causes."""
    draw = random.Random(seed)
    records = []
    columns = [
        (dynamic, opset, provider, exporter)
        for exporter in ("core", "torch")
        for provider in ("cpu", "cpu_unoptimised")
        for dynamic in ("static", "batch", "full")
        for opset in range(18, 26)
    ]
    for index in range(count):
        dynamic, opset, provider, exporter = columns[index % len(columns)]
        cell = Cell(f"model_number_{index // len(columns)}", dynamic, opset, provider, exporter)
        if draw.random() < 0.05:
            cause = draw.randrange(12)
            failure = Failure("translate", "MissingOperator", f"no translation for aten.op{cause}", "trace\n" * 40)
            records.append(Record(cell, "fail", "translate", "MissingOperator", failure.message, failure=failure))
            continue
        error = 10 ** draw.uniform(-8, -5)
        decades = tuple((d, draw.randrange(1, 5000)) for d in range(-10, -6))
        hull = tuple((10 ** (k / 2 - 4), error * (k + 1) / 8) for k in range(8))
        shape = (2, 16, 32)
        output = OutputFacts("layer_norm", "float32", "float32", shape, shape, hull, error, error, 0, 900, 1024)
        outputs = (replace(output, decades=decades),) * 2
        runs = tuple(RunFacts({"batch": size, "seq": 16}, outputs) for size in (2, 1, 5))
        median = draw.lognormvariate(0, 1)
        records.append(
            Record(
                cell,
                "pass",
                max_abs=error,
                max_rel=error,
                latency_ms=LatencyFacts(median, median * 1.2, median * 0.99, median * 1.01, 500, False),
                eager_ms=median * draw.uniform(1, 8),
                onnx=OnnxFacts(f"models/{index:064x}/{index:064x}.onnx", f"{index:064x}", 250_000 + index, opset, 110),
                actions=tuple(ActionFacts(name, f"{index:064x}", "cached", draw.random()) for name in MNEMONICS),
                runs=runs,
                placement={"CPUExecutionProvider": 102},
                log=f"logs/{cell.model}_{dynamic}_{exporter}.log",
            )
        )
    return records


def past(records: list[Record], runs: int = 20) -> dict[str, list[Entry]]:
    """Earlier runs of every cell."""
    return {
        record.cell.name: [
            Entry(f"r{n}", f"2026-11-{n + 1:02}T01:00:00", "c", "h", "{}", record.verdict, "", "", record.max_abs,
                  1 + n / 100, 1, 1, False, 3, record.onnx.bytes if record.onnx else None, 110, 1.25, "")
            for n in range(runs)
        ]
        for record in records
    }  # fmt: skip


def interactive_seconds(path: Path) -> float | None:
    """Seconds until the page has its matrix and answers a filter, or None without a browser."""
    browser_path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser_path = None
    if browser_path is None:
        return None
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto("about:blank")
        best = float("inf")
        for _ in range(3):
            page.goto(path.as_uri(), wait_until="load")
            page.wait_for_selector("html[data-ready]")
            best = min(best, page.evaluate("performance.getEntriesByType('navigation')[0].domComplete / 1000"))
        browser.close()
        return float(best)


def main() -> None:
    """Measures, and prints a line for each aim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=5000)
    parser.add_argument("--to", type=Path, default=Path("build/report.html"))
    asked = parser.parse_args()
    records = made_up(asked.cells)
    comparison = compare(made_up(asked.cells, seed=1), records)
    context = ReportContext(history=past(records), comparison=comparison)
    began = time.perf_counter()
    text = html_report(records, summarise(records, Counts()), context)
    seconds = time.perf_counter() - began
    asked.to.parent.mkdir(parents=True, exist_ok=True)
    asked.to.write_text(text, encoding="utf-8")
    megabytes = asked.to.stat().st_size / 1e6
    interactive = interactive_seconds(asked.to.resolve())
    shown = "no Chromium or playwright" if interactive is None else f"{interactive:.2f} s"
    print("what         measured   aim")
    print(f"written      {f'{seconds:.2f} s':<10} 3 s")
    print(f"size         {f'{megabytes:.2f} MB':<10} 5 MB")
    print(f"interactive  {shown:<10} 1 s")


if __name__ == "__main__":
    main()
