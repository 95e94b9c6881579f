"""The results that a run's parent knows: the latest in memory, all others in a file without a name.

Results arrive by key and come back by key. The parent of 10,000 cells knows some 35,000; their facts as objects would
take most of a gigabyte. Nothing is judged, looked up in the store or executed here, and nothing here is thread-safe.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import msgspec

from batch_export.action import ActionResult
from batch_export.digest import Digest

MOST = 256
"""Results in memory: those of the units that are under way are looked at again and again."""
_decoder = msgspec.msgpack.Decoder(ActionResult)


class ResultMemory:
    """Results by key.

    Args:
        folder: on whose file system the file is made; where that cannot be, everything stays in memory.
        most: how many results are in memory at most.
    """

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder = folder
        self._most = most
        self._latest: OrderedDict[Digest, ActionResult] = OrderedDict()
        self._places: dict[Digest, tuple[int, int]] = {}
        self._stream: FileIO | None = None
        self._end = 0

    def __contains__(self, key: Digest) -> bool:
        return key in self._latest or key in self._places

    def __iter__(self) -> Iterator[Digest]:
        yield from self._places
        yield from [key for key in self._latest if key not in self._places]

    def get(self, key: Digest) -> ActionResult | None:
        """Returns the result with this key, or None."""
        found = self._latest.get(key)
        if found is not None:
            self._latest.move_to_end(key)
            return found
        place = self._places.get(key)
        if place is None or self._stream is None:
            return None
        self._stream.seek(place[0])
        found = _decoder.decode(self._stream.read(place[1]))
        self._keep(found)
        return found

    def put(self, result: ActionResult) -> None:
        """Adds a result, in the place of the one with the same key."""
        self._places.pop(result.key, None)
        self._keep(result)

    def close(self) -> None:
        """Gives the file's space back."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _keep(self, result: ActionResult) -> None:
        self._latest[result.key] = result
        self._latest.move_to_end(result.key)
        while len(self._latest) > self._most:
            key, oldest = next(iter(self._latest.items()))
            if key not in self._places and not self._write(oldest):
                self._most = 2 * len(self._latest)  # a full disk: results stay in memory, and it is tried less
                return
            del self._latest[key]

    def _write(self, result: ActionResult) -> bool:
        data = msgspec.msgpack.encode(result)
        try:
            if self._stream is None:
                self._stream = tempfile.TemporaryFile(dir=self._folder, prefix="results-", buffering=0)  # noqa: SIM115
            self._stream.seek(self._end)
            if self._stream.write(data) < len(data):
                return False  # the next one is written over it
        except OSError:
            return False
        self._places[result.key] = self._end, len(data)
        self._end += len(data)
        return True
