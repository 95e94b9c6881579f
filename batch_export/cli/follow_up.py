"""What `bisect` and `repro` share: a cell of a run is asked about, the answer is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from batch_export.cli.arguments import VerbParser, add_outputs
from batch_export.cli.origin import enter, gone_folders
from batch_export.errors import UsageError
from batch_export.report import run_folder as files
from batch_export.report.runs import records_of, resolve_run
from batch_export.runner.follow_up import ask
from batch_export.stages.follow_up_request import Question


def _folder(path: Path) -> Path:
    folder = path.expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"--config-dir: the folder '{folder}' not found. Next step: name one that is there")
    return folder


def answer(question: Question, description: str, arguments: list[str]) -> int:
    """Parses the arguments, asks, and prints; 0 when something was found, 1 when the failure did not occur again."""
    parser = VerbParser(question, description)
    parser.add_argument("cell", help="model/dynamic/opset20/provider/exporter, as `plan` and the reports name it")
    parser.add_argument("--run", default="latest", help="the run's folder, latest (default), or latest~1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found as JSON")
    if question == "repro":
        parser.add_argument(
            "--for",
            dest="for_runtime",
            default="",
            metavar="RUNTIME",
            help="a provider or runtime of the run: write what its developers need, a file of few nodes and a script",
        )
    add_outputs(parser)
    parser.add_argument(
        *("--config-dir", "-cd"), action="append", default=[], type=Path, metavar="DIR",
        help="where modules of the run's models lie now, if its config folders have moved; the run knows all else",
    )  # fmt: skip
    asked = parser.parse_args(arguments)
    folder = resolve_run(asked.run, asked.outputs)
    wanted = asked.json.absolute() if asked.json is not None else None
    moved = [_folder(path) for path in asked.config_dir]
    for sentence in [] if moved else gone_folders(folder):
        print(f"{sentence}; modules that lay there are found with --config-dir DIR", file=sys.stderr)
    enter(folder, moved)
    stored = files.read_run(folder)
    found = ask(
        question,
        asked.cell,
        folder,
        stored.spec,
        stored.cells(),
        records_of(folder),
        for_runtime=getattr(asked, "for_runtime", ""),
        tell=lambda text: print(text, file=sys.stderr),
    )
    print(found.text)
    data = msgspec.json.format(msgspec.json.encode(found)) + b"\n"
    if found.found and question == "bisect":  # the cell's page in the HTML report shows it: `report RUN`
        cell = next(planned.cell for planned in stored.planned if planned.cell.name == asked.cell)
        files.write_bisected(folder, cell, data)
    if wanted is not None:
        files.write_asked(wanted, data, "--json")
    return 0 if found.found else 1
