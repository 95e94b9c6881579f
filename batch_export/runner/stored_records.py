"""Records that stay on the disk: a sequence that reads each one when it is asked for.

The path of a `records.jsonl` and the places of its lines arrive; records leave, decoded anew at every pass. A run of
10,000 cells has some 70 MB of them, ten times that as objects; nobody needs all of them at once. The file may grow
meanwhile, and must not be written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, overload

import msgspec

from batch_export.record import Record

Place = tuple[int, int]
"""Where a line starts, and how many bytes it has without its line break."""
_decoder = msgspec.json.Decoder(Record)


class StoredRecords(Sequence[Record]):
    """Records in the order of `places`.

    Args:
        path: the file.
        places: of the lines.
        rows: what tables show of each record (`report.rows`), where that was made already.

    Attributes:
        places, rows: see above.
    """

    def __init__(self, path: Path, places: Sequence[Place], rows: tuple[Record, ...] = ()) -> None:
        self._path = path
        self.places = places
        self.rows = rows

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Record]:
        if not self.places:
            return
        with self._path.open("rb") as stream:
            for place in self.places:
                yield _read(stream, place)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...

    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        if isinstance(index, slice):
            return tuple(StoredRecords(self._path, self.places[index]))
        with self._path.open("rb") as stream:
            return _read(stream, self.places[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]


def _same(one: object, other: object) -> bool:
    return one == other


def _read(stream: BinaryIO, place: Place) -> Record:
    start, size = place
    stream.seek(start)
    return _decoder.decode(stream.read(size))
