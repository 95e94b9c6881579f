"""Sweeps from Python: `batch_export.sweep(["matrix.models=[bert_tiny]"])` for notebooks and other tools.

Overrides arrive, a `Run` leaves: the same files, isolation and verdicts as on the command line. torch is not imported
here; pandas only by `Run.to_pandas`.
"""

from __future__ import annotations

import html
import shlex
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.record import AXES, Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.compare import Comparison
from batch_export.report.runs import Side, read_side, records_of, resolve_run
from batch_export.report.spreadsheet import COLUMNS, values_of
from batch_export.report.summary import Summary, summarise
from batch_export.report.wording import GLYPHS, OUTCOMES, cell_text, legends
from batch_export.words import one_line

if TYPE_CHECKING:
    import pandas

_COLOURS = {"pass": "#14713a", "fail": "#b3261e", "missing": "#b3261e", "xpass": "#7b3fa0", "flaky": "#8a5a00"}


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run and its results; in a notebook it shows itself as a table.

    Attributes:
        folder: where its files lie (`report.html`, `records.jsonl`, ...).
        records: one per planned cell, judged.
        exit_code: what the command line would have ended with.
    """

    folder: Path
    records: tuple[Record, ...]
    exit_code: int = 0

    @property
    def verdicts(self) -> dict[Cell, str]:
        """Outcome by cell."""
        return {record.cell: record.verdict for record in self.records}

    @property
    def summary(self) -> Summary:
        """The counts."""
        return summarise(self.records, files.read_counts(self.folder), files.read_run(self.folder).command)

    def compare(self, base: str | Path | Run, *, measure: bool = True) -> Comparison:
        """Compares with a base: a run, its folder, or a baseline file; slower cells are measured again if `measure`."""
        from batch_export.sweeps.conclude import compared  # lazy: seldom needed

        outputs = self.folder.parent.parent
        if isinstance(base, Run):
            side = Side(str(base.folder), base.records, base.folder, _store(base.folder))
        else:
            side = read_side(str(base), outputs)
        new = Side(str(self.folder), self.records, self.folder, _store(self.folder))
        return compared(side, new, files.read_run(self.folder).spec, measure=measure)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with the columns of summary.csv.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas  # lazy: optional
        except ImportError as error:
            raise UsageError(
                "to_pandas needs the package pandas, which is not installed. "
                "Next step: pip install 'batch_export[pandas]'"
            ) from error
        return pandas.DataFrame([values_of(record) for record in self.records], columns=list(COLUMNS))

    def __repr__(self) -> str:
        """One line; `print(run.summary)` and the notebook's table say more."""
        return f"Run({str(self.folder)!r}, {counted(len(self.records), 'cell')}: {self._outcomes() or 'none'})"

    def _outcomes(self) -> str:
        counts = Counter(record.verdict for record in self.records)
        return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])

    def _repr_html_(self) -> str:
        """The table, for notebooks."""
        head = self._outcomes()
        opsets = sorted({record.cell.opset for record in self.records})
        rows: dict[tuple[str, ...], dict[int, Record]] = {}
        for record in self.records:
            cell = record.cell
            rows.setdefault((cell.model, cell.dynamic, *cell.table), {})[cell.opset] = record
        notes = legends(self.records)
        lines = [
            *(f"<p>{html.escape(note)}</p>" for note in notes),
            f"<p>{counted(len(self.records), 'cell')}: {html.escape(head)}</p><table><thead><tr>"
            + "".join(f"<th>{name}</th>" for name in AXES if name != "opset")
            + "".join(f"<th>opset {opset}</th>" for opset in opsets)
            + "</tr></thead><tbody>",
        ]
        for names, by_opset in rows.items():
            cells = "".join(f"<td>{html.escape(name)}</td>" for name in names)
            lines.append(f"<tr>{cells}{''.join(_shown(by_opset.get(opset)) for opset in opsets)}</tr>")
        return "".join(lines) + "</tbody></table>"


def sweep(
    overrides: str | Sequence[str] = (),
    *,
    models: Mapping[str, Any] | None = None,
    inputs: Any = None,
    axes: Mapping[str, Any] | None = None,
    quiet: bool = True,
) -> Run:
    """Runs a sweep.

    Args:
        overrides: as on the command line, e.g. `["+sweep=smoke", "matrix.opsets=[20]"]`; a text is one of them.
        models: models of your own by name, in place of `matrix.models`: a `torch.nn.Module` (sent to the children as
            a program and its weights), an exported program, a function that returns a module, or words such as
            `"package.module:function"`, a `.pt2` file, the folder of a checkpoint.
        inputs: for `models`: a tensor, a tuple of tensors, tensors by name, or words such as `"x=float32[batch,8]"`; of
            one model by its name where the keys are names of models. Functions, files and folders do without.
        axes: for `models`, with tensors: `{"x": {0: "batch"}}`; None: axes are found by trying other sizes.
        quiet: without progress and without the table.

    Raises:
        UsageError: an override is wrong, or a model cannot be sent or does not run.
        RunError: the run could not finish.
    """
    from batch_export.config.compose import Composed, compose_and_call
    from batch_export.sweeps.course import sweep_composed  # lazy: the command line's imports are not everybody's

    overrides = [overrides] if isinstance(overrides, str) else list(overrides)
    if models is not None:
        overrides += _words_for(overrides, models, inputs, axes)
    elif inputs is not None or axes is not None:
        raise UsageError("sweep: inputs and axes describe models, and there are none: models={'mine': module}")
    folders: list[Path] = []
    command = shlex.join(["python", "-m", "batch_export", *overrides])

    def carry_out(composed: Composed) -> int:
        folders.append(composed.run_folder)
        return sweep_composed(composed, command, quiet=quiet)

    code = compose_and_call(carry_out, overrides, leave_no_trace=False)
    if not folders:
        raise UsageError("These overrides only print something; a sweep takes none of Hydra's flags")
    return Run(folders[0], records_of(folders[0]), code)


def _words_for(
    overrides: Sequence[str], models: Mapping[str, Any], inputs: Any, axes: Mapping[str, Any] | None
) -> list[str]:
    """Overrides that choose models of the caller's; their configs are written, notes about them are warnings."""
    from batch_export.api.given_models import configs_of  # lazy: most sweeps give none
    from batch_export.sweeps.described import keep_config  # lazy: as above

    given = {word.lstrip("+").partition("=")[0]: word.partition("=")[2] for word in overrides}
    if "matrix.models" in given:
        raise UsageError("sweep: models are given by models=... and by matrix.models; leave one of them out")
    outputs = Path(given.get("output.path", "outputs").strip("'\"")).expanduser()
    found = configs_of(models, inputs, axes, outputs)
    for note in found.notes:
        warnings.warn(note, stacklevel=3)
    folder = keep_config(outputs, found.configs, found.builders)
    words = [f"matrix.models=[{','.join(models)}]", "--config-dir", str(folder)]
    return (
        words
        if "matrix.dynamic" in given
        else [*words, f"matrix.dynamic=[{'static,full' if found.has_axes else 'static'}]"]
    )


def open_run(run: str | Path = "latest", outputs: str | Path = "outputs") -> Run:
    """Opens an old run: a folder, `latest`, or `latest~1`.

    Raises:
        UsageError: there is no such run.
    """
    folder = resolve_run(str(run), Path(outputs))
    records = records_of(folder)
    return Run(folder, records, summarise(records, files.read_counts(folder)).exit_code)


def _store(folder: Path) -> Path:
    return Path(files.read_run(folder).spec.store_path)


def _shown(record: Record | None) -> str:
    if record is None:
        return "<td></td>"
    colour = _COLOURS.get(record.verdict, "inherit")
    title = html.escape(f"{record.stage} {record.error_class} {one_line(record.message)}".strip(), quote=True)
    return f'<td title="{title}" style="color:{colour}">{html.escape(cell_text(record, GLYPHS))}</td>'
