"""The page docs/runtimes.md, made of sweeps: `python -m benchmarks.runtimes outputs/latest > docs/runtimes.md`.

Folders of runs arrive; Markdown leaves: runtimes x opsets, models x runtimes, and where they disagree. Nothing is run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from batch_export.judge.vote import Disagreement
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.disagreements import disagreements
from batch_export.report.runs import records_of
from batch_export.runner.surroundings import circumstances
from batch_export.runtime.registered import runtime
from batch_export.sources.toolchain import environment_name

_PLACES = ("store.path=", "output.path=", "hydra.run.dir=")
"""Where a run was kept says nothing of what it was."""

_INTRODUCTION = """# Runtimes

What each runtime makes of our files. A cell of these tables counts the files of one model or opset that loaded, ran at
all sizes and agreed with eager PyTorch, of all that were tried; a dash means that nothing was tried there, since the
provider's config leaves it out. Written by `python -m benchmarks.runtimes RUN` from

    {command}

on {date} ({machine}); `nox -s runtimes` runs it again. Each runtime but those of this project's own environment runs in
one of its own, as a process, see [configuration.md](configuration.md#environments).
"""


def page(folders: Sequence[Path]) -> str:
    """Returns the page of runs on one machine; the first has every provider."""
    records = [record for folder in folders for record in records_of(folder)]
    stored = files.read_run(folders[0])
    made = circumstances(folders[0])
    every = [
        [word for word in files.read_run(folder).spec.overrides if not word.startswith(_PLACES)] for folder in folders
    ]
    host = made.toolchain.host
    lines = [
        _INTRODUCTION.format(
            command="\n    ".join(" ".join(["python -m batch_export", *map(_quoted, words)]) for words in every),
            date=made.started[:10],
            machine=f"{host.get('cpu', '')}, {host.get('cores', '?')} cores, {host.get('system', '')}",
        ),
        "## What ran",
        "",
        "| provider | runtime | packages | files with functions of their own |",
        "|---|---|---|---|",
    ]
    for spec in stored.spec.matrix.providers:
        kind = runtime(spec.kind)
        names = (kind.library, *kind.packages)
        if spec.env:
            holds = made.toolchain.environments.get(environment_name(spec), "")
        else:
            holds = ", ".join(f"{name} {made.toolchain.versions.get(name, 'absent')}" for name in kind.packages)
        named = [part for part in holds.split("; ") if part.partition("@" if "@" in part else "=")[0] in names]
        lines.append(
            f"| `{spec.name}` | {kind.called} | {', '.join(named) or holds} | {'yes' if kind.functions else 'no'} |"
        )
    lines += ["", "## Opsets", ""]
    lines += _table(records, "opset", lambda record: str(record.cell.opset))
    lines += ["", "## Models", ""]
    lines += _table(records, "model", lambda record: record.cell.model)
    lines += ["", "## Where they disagree", ""]
    lines += _disagreements(disagreements(records)) or ["Nowhere."]
    lines += ["", "## What failed, and why", ""]
    lines += _failures(records) or ["Nothing."]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    return f'"{word}"' if set(word) & set("'*[]") else word


def _table(records: Sequence[Record], head: str, row: Callable[[Record], str]) -> list[str]:
    providers = list(dict.fromkeys(record.cell.provider for record in records))
    rows = list(dict.fromkeys(map(row, records)))
    lines = [f"| {head} | {' | '.join(providers)} |", f"|---|{'---:|' * len(providers)}"]
    for name in rows:
        cells = []
        for provider in providers:
            those = [record for record in records if row(record) == name and record.cell.provider == provider]
            tried = [record for record in those if record.verdict != "skip"]
            good = [record for record in tried if record.verdict in ("pass", "flaky", "xpass")]
            cells.append(f"{len(good)}/{len(tried)}" if tried else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _disagreements(found: Iterable[Disagreement]) -> list[str]:
    files_of: dict[str, list[str]] = {}
    for one in found:
        files_of.setdefault(one.says, []).append(one.file)
    return [f"- {says} ({', '.join(f'`{name}`' for name in names)})" for says, names in files_of.items()]


def _failures(records: Iterable[Record]) -> list[str]:
    told: Counter[str] = Counter()
    for record in records:
        if record.verdict in ("fail", "xfail", "skip") and record.message:
            words = record.message.partition(".onnx: ")[2] or record.message
            told[f"{record.cell.provider}, {record.cell.model}: {record.verdict} {record.stage}: {words}"] += 1
    return [f"- {text} ({count})" if count > 1 else f"- {text}" for text, count in told.items()]


def main(arguments: Sequence[str]) -> int:
    """Prints the page of the runs that the arguments name."""
    sys.stdout.write(page([Path(word).resolve() for word in arguments or ["outputs/latest"]]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
