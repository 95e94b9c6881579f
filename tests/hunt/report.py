"""What a hunt found: records as they come, one script per cause, and a summary.

`records.jsonl` has one line per program, `<outcome>_<number>.py` the smallest script of each cause, `summary.md` the
counts: outcomes, causes with how often they came, and what was refused.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from hunt.judge import OURS
from hunt.known import explanation

_EVERY = 30.0
"""Seconds between two lines of progress."""


class Report:
    """Gathers records in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lines = (folder / "records.jsonl").open("w", encoding="utf-8")
        self._outcomes: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._operators: Counter[str] = Counter()
        self._files = 0
        self._causes: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._scripts: dict[str, tuple[int, Path]] = {}
        self._begun = self._said = time.monotonic()
        self.known: set[str] = set()

    @property
    def has_ours(self) -> bool:
        """Whether a defect of the exporter was found."""
        return any(self._outcomes[outcome] for outcome in OURS)

    def add(self, record: dict[str, Any]) -> None:
        """One program's record."""
        text = record.pop("script", None)
        self._outcomes[record["outcome"]] += 1
        self._files += record.get("files", 0)
        self._operators.update(record.get("operators", ()))
        if record["outcome"] == "refused":
            self._refused[record["kind"]] += 1
        cause = record.get("cause")
        if cause is not None:
            self._causes[cause].append(record)
            self.known.add(cause)
            if text is not None and cause not in self._scripts:
                path = self._folder / f"{record['outcome'].replace(' ', '_')}_{record['seed']}.py"
                path.write_text(text, encoding="utf-8")
                self._scripts[cause] = (record["steps"], path)
        self._lines.write(json.dumps(record) + "\n")
        self._lines.flush()
        if time.monotonic() - self._said > _EVERY:
            self._said = time.monotonic()
            print(self._counts(), flush=True)

    def _counts(self) -> str:
        seconds = time.monotonic() - self._begun
        total = sum(self._outcomes.values())
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.most_common())
        return f"{total} programs, {self._files} files, in {seconds:.0f} s: {counts}"

    def text(self) -> str:
        """The summary."""
        lines = [self._counts(), ""]
        order = [*OURS, "declared", "upstream"]
        for cause in sorted(self._causes, key=lambda one: (order.index(one.split(" | ")[0]), -len(self._causes[one]))):
            records = self._causes[cause]
            lines.append(f"- {len(records)}x {cause}")
            lines.append(f"  seeds {', '.join(str(one['seed']) for one in records[:5])}; {records[0]['detail']}")
            why = explanation(cause)
            if why:
                lines.append(f"  known: {why}")
            if cause in self._scripts:
                lines.append(f"  {self._scripts[cause][1]}")
        lines += ["", "Refused:"] + [f"- {count}x {kind}" for kind, count in self._refused.most_common(60)]
        return "\n".join(lines)

    def write(self) -> None:
        """Writes the summary."""
        lines = [self.text(), "", "Operators:"]
        lines += [f"- {count}x `{operator}`" for operator, count in self._operators.most_common()]
        (self._folder / "summary.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._lines.close()
