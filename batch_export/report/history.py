"""The history of every cell over runs: a SQLite file that runs append to and questions are asked of.

Records arrive, rows leave; any number of runs may write at once (write-ahead log, one short transaction a run). The
schema has a number, and an older file is brought up to date on opening. A file that is locked, damaged or newer ends
in one sentence, and nothing in it is touched. Judging trends is `trend.py`'s.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from batch_export.digest import canonical_json, digest_bytes
from batch_export.errors import UsageError
from batch_export.record import Record
from batch_export.report.compare import export_seconds
from batch_export.report.making import Makings
from batch_export.runner.surroundings import Surroundings, versions_of
from batch_export.spec import RunSpec

HISTORY_FILE = "history.sqlite"
_WAIT_S = 20.0
_AGAIN_S = 0.02
MIGRATIONS: tuple[str, ...] = (
    # 1 (2026-11): first.
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, started TEXT NOT NULL, command TEXT NOT NULL, "commit" TEXT NOT NULL,
        host TEXT NOT NULL, versions TEXT NOT NULL
    );
    CREATE TABLE cells (
        run TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, cell TEXT NOT NULL, verdict TEXT NOT NULL,
        stage TEXT NOT NULL, error_class TEXT NOT NULL, max_abs REAL, max_rel REAL, latency REAL, ci_low REAL,
        ci_high REAL, contended INTEGER, eager REAL, bytes INTEGER, nodes INTEGER, export_s REAL,
        PRIMARY KEY (run, cell)
    ) WITHOUT ROWID;
    """,
    # 2 (2026-11): a cell's rows are found without going through every run; the file's digest.
    """
    ALTER TABLE cells ADD COLUMN sha256 TEXT NOT NULL DEFAULT '';
    CREATE INDEX cells_by_cell ON cells (cell);
    """,
    # 3 (2026-11): what outcomes were made of (`making.py`), most of it the same in many cells and runs.
    """
    ALTER TABLE cells ADD COLUMN making TEXT NOT NULL DEFAULT '';
    CREATE TABLE makings (id TEXT PRIMARY KEY, states TEXT NOT NULL) WITHOUT ROWID;
    """,
)
SCHEMA = len(MIGRATIONS)


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell in one run."""

    run: str
    started: str
    commit: str
    host: str
    versions: str
    verdict: str
    stage: str
    error_class: str
    max_abs: float | None
    latency: float | None
    ci_low: float | None
    ci_high: float | None
    contended: bool
    eager: float | None
    bytes: int | None
    nodes: int | None
    export_s: float | None
    sha256: str
    making: str = ""
    """What its outcome was made of, as JSON; empty where that is not known."""


class History:
    """An opened history (use `open_history`)."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def add(
        self, run: str, made: Surroundings, command: str, records: Iterable[Record], spec: RunSpec | None = None
    ) -> None:
        """Adds a run, or replaces it when it is there already.

        Args:
            run: its name.
            made: its circumstances.
            command: the command line.
            records: judged.
            spec: what it was asked for; None where that is not known.
        """
        makings = None if spec is None else Makings(spec, made.toolchain)
        marks = ", ".join("?" * 17)
        with _speaking(self.path), self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM cells WHERE run = ?", (run,))
            connection.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)",
                (
                    run,
                    made.started or _time_of(run),
                    command,
                    made.commit,
                    made.toolchain.host.get("name", ""),
                    msgspec.json.encode(versions_of(made), order="deterministic").decode(),
                ),
            )
            for record in records:  # one at a time
                if record.verdict == "skip":
                    continue
                states = b"" if makings is None else canonical_json(makings.of(record))
                making = digest_bytes(states) if states else ""
                if making:
                    connection.execute("INSERT OR IGNORE INTO makings VALUES (?, ?)", (making, states.decode()))
                connection.execute(f"INSERT INTO cells VALUES ({marks})", (*_row(run, record), making))

    def entries(self, cell: str, limit: int = 1000) -> tuple[Entry, ...]:
        """The cell's entries of the last `limit` runs, oldest first."""
        with _speaking(self.path):
            rows = self._connection.execute(
                _SELECT + " WHERE c.cell = ? ORDER BY r.started DESC LIMIT ?", (cell, limit)
            )
            return tuple(_entry(row[1:]) for row in reversed(rows.fetchall()))

    def recent(self, runs: int = 30) -> dict[str, list[Entry]]:
        """Entries of every cell in the last runs, oldest first, by cell."""
        where = " WHERE r.id IN (SELECT id FROM runs ORDER BY started DESC LIMIT ?) ORDER BY r.started"
        found: dict[str, list[Entry]] = {}
        with _speaking(self.path):
            for row in self._connection.execute(_SELECT + where, (runs,)):
                found.setdefault(row[0], []).append(_entry(row[1:]))
        return found

    def cells(self) -> tuple[str, ...]:
        """Names of all cells that have an entry."""
        with _speaking(self.path):
            return tuple(row[0] for row in self._connection.execute("SELECT DISTINCT cell FROM cells ORDER BY cell"))

    def runs(self) -> tuple[str, ...]:
        """Runs, oldest first."""
        with _speaking(self.path):
            return tuple(row[0] for row in self._connection.execute("SELECT id FROM runs ORDER BY started"))

    def commands(self) -> dict[str, str]:
        """The command line of each run, as it was typed."""
        with _speaking(self.path):
            return {str(run): str(typed) for run, typed in self._connection.execute("SELECT id, command FROM runs")}

    def close(self) -> None:
        """Lets go of the file."""
        self._connection.close()


_COLUMNS = (
    'c.run, r.started, r."commit", r.host, r.versions, c.verdict, c.stage, c.error_class, c.max_abs, c.latency, '
    "c.ci_low, c.ci_high, c.contended, c.eager, c.bytes, c.nodes, c.export_s, c.sha256, coalesce(m.states, '')"
)
_SELECT = f"SELECT c.cell, {_COLUMNS} FROM cells c JOIN runs r ON r.id = c.run LEFT JOIN makings m ON m.id = c.making"


@contextlib.contextmanager
def open_history(path: Path, *, create: bool = True, wait_s: float = _WAIT_S) -> Iterator[History]:
    """Opens a history, bringing an older one up to date.

    Raises:
        UsageError: it does not exist (and may not be made), is locked, damaged, or newer than this program.
    """
    if not create and not path.is_file():
        raise UsageError(f"There is no history at {path}. Next step: run a sweep, or `history rebuild`")
    with _speaking(path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None)
    history = History(path, connection)
    try:
        with _speaking(path):
            _prepare(path, connection, time.monotonic() + wait_s)
        yield history
    finally:
        history.close()


def _prepare(path: Path, connection: sqlite3.Connection, until: float) -> None:
    """Brings the file up to date; tries again until then, for SQLite does not wait where a log is begun or ended."""
    while True:
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > SCHEMA:
                raise UsageError(
                    f"The history {path} has schema {version}, this program knows up to {SCHEMA}. "
                    "Next step: update batch_export; the file is left as it is"
                )
            if version < SCHEMA:
                connection.execute("PRAGMA journal_mode = WAL")
                _migrate(connection)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another run may have been first.
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def _speaking(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into sentences."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise UsageError(
                f"The history {path} is locked by another process. Next step: try again when it is done; "
                "`history rebuild` adds runs that are missing"
            ) from error
        raise UsageError(f"The history {path} cannot be used: {error}. Next step: look at the file's rights") from error
    except sqlite3.DatabaseError as error:
        raise UsageError(
            f"The history {path} is damaged ({error}). Next step: move it away and run `history rebuild`, which makes "
            "it again from the run folders"
        ) from error
    except OSError as error:
        raise UsageError(f"The history {path} cannot be used: {error.strerror or error}") from error


def _row(run: str, record: Record) -> tuple[object, ...]:
    latency, onnx = record.latency_ms, record.onnx
    return (
        *(run, record.cell.name, record.verdict, record.stage, record.error_class, record.max_abs, record.max_rel),
        *((latency.median, latency.ci_low, latency.ci_high, latency.contended) if latency else (None,) * 4),
        *(record.eager_ms, onnx.bytes if onnx else None, onnx.nodes if onnx else None, export_seconds(record)),
        onnx.sha256 if onnx else "",
    )


def _entry(row: tuple[object, ...]) -> Entry:
    values = list(row)
    values[12] = bool(values[12])
    return Entry(*values)  # type: ignore[arg-type]  # SQLite gives back what `_row` put in


def _time_of(run: str) -> str:
    """The start according to a run folder's name: `2026-11-21/03-45-10-187`."""
    day, _, time = run.partition("/")
    parts = time.split("-")
    return f"{day}T{':'.join(parts[:3])}.{parts[3] if len(parts) > 3 else '000'}" if len(parts) >= 3 else run
