"""The store as a whole: content by digest, action results by key, locks, and a version. Its folder is all its state.

Actions and results arrive, results leave. An entry is written last, after everything that it names, so a writer that is
killed leaves files that nobody refers to and never an entry that promises too much. It executes no action.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from batch_export.action import Action, ActionResult, ModelArtifact
from batch_export.digest import Digest
from batch_export.errors import StoreError
from batch_export.record import UNCACHED_STAGES
from batch_export.sources import distributions, file_digests
from batch_export.sources.recorded import changes
from batch_export.spec import StoreSpec
from batch_export.steps import LOCAL
from batch_export.store import earlier, layout
from batch_export.store.adopt import adopt
from batch_export.store.content import ContentStore
from batch_export.store.entry import STORE_FORMAT, Entry, encode_entry, read_entry
from batch_export.store.files import storing, write_atomic
from batch_export.store.layout import require_own_format
from batch_export.store.leases import leased
from batch_export.store.locks import locked
from batch_export.store.quarantine import make_room, quarantined
from batch_export.store.remote import Remote, open_remote

_FETCHES = 16
"""Entries that are fetched at the same time."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What lies in a store: numbers of entries and files, files in quarantine, bytes in all."""

    path: str
    actions: dict[str, int]
    blobs: int
    models: int
    bytes: int
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """A cached result, and whether the run that asks for it is the one that executed it."""

    result: ActionResult
    own: bool


def open_store(
    path: Path,
    source_roots: Sequence[Path] = (),
    settings: StoreSpec | None = None,
    *,
    run: str = "",
    warn: Callable[[str], None] | None = None,
) -> Store:
    """Opens the store at `path`, making the folder when there is none.

    Args:
        path: the store's folder.
        source_roots: where the source files that results name are looked for (see `closure.local_roots`).
        settings: how files are verified, and the store behind this one.
        run: the run on whose behalf results are looked up and recorded.
        warn: told of what went wrong without harm, such as a remote store that does not answer.

    Raises:
        StoreError: the folder cannot be written, or another version of the program made it.
        UsageError: the folder holds something else, or the remote store's URL is of a kind that no installed library
            opens.
    """
    root = Path(os.path.abspath(path))
    require_own_format(root)
    with storing(root):
        _make_folders(root)
        handle, probe = tempfile.mkstemp(dir=root / "tmp", prefix="probe-")
        os.close(handle)
        os.unlink(probe)
    version = root / layout.VERSION
    if not version.exists():
        write_atomic(version, f"{STORE_FORMAT}\n".encode(), root / "tmp")
    file_digests.remember_in(digests_memo(root))
    distributions.look_again()
    chosen = settings or StoreSpec()
    remote = open_remote(chosen.remote, warn or (lambda _: None)) if chosen.remote else None
    return Store(root, tuple(source_roots), chosen, remote, run)


def imports_memo(root: Path) -> Path:
    """Returns the file of a store that `remember_imports` writes."""
    return root / layout.IMPORTS


def digests_memo(root: Path) -> Path:
    """Returns the folder of a store that remembers the digests of large files and folders (see `file_digests.py`)."""
    return root / layout.DIGESTS


def _make_folders(root: Path) -> None:
    for name in layout.FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)


class Store:
    """A content store and an action cache in one folder (use `open_store`)."""

    def __init__(
        self,
        root: Path,
        source_roots: tuple[Path, ...],
        settings: StoreSpec | None = None,
        remote: Remote | None = None,
        run: str = "",
    ) -> None:
        self.root = root
        self.source_roots = source_roots
        self.settings = settings or StoreSpec()
        self.remote = remote
        self.run = run
        self.content = ContentStore(root, verify=self.settings.verify != "size")
        self.actions = root / "actions"

    def put_file(self, path: Path) -> Digest:
        """Moves a file into the store; `path` is gone afterwards."""
        return self.content.put_file(path)

    def put_bytes(self, data: bytes) -> Digest:
        """Stores bytes."""
        return self.content.put_bytes(data)

    def blob_path(self, digest: Digest) -> Path:
        """Returns the stored file with this content."""
        return self.content.blob_path(digest)

    def put_model(self, onnx: Path, external: dict[str, Path | Digest]) -> ModelArtifact:
        """Moves an ONNX file and its external data into the store (see `ContentStore.put_model`)."""
        return self.content.put_model(onnx, external)

    def model_path(self, model: ModelArtifact) -> Path:
        """Where a stored ONNX file lies."""
        return self.content.model_path(model)

    def entry_path(self, key: Digest) -> Path:
        """Where the result of the action with this key is kept.

        Raises:
            StoreError: the text is not a key.
        """
        if not key.isalnum():  # it may come from a record that somebody else wrote
            raise StoreError(
                f"{key!r} is not the key of an action. Next step: look where the record that names it comes from"
            )
        return self.actions / key[:2] / f"{key}.json"

    def open_model(self, model: ModelArtifact) -> Path:
        """Returns a stored ONNX file, its digests verified (see `ContentStore.open_model`)."""
        return self.content.open_model(model)

    def lookup(self, key: Digest) -> ActionResult | None:
        """Returns the cached result of an action, or None when it has to be executed (see `find`)."""
        found = self.find(key)
        return None if found is None else found.result

    def find(self, key: Digest, *, remote: bool = True) -> Found | None:
        """Returns the cached result of an action and whether this run made it; None when it has to be executed.

        An entry counts only when everything that it names is there in full size, and what the action was seen to use is
        as it was (see `recorded.py`). What is not here is fetched from the remote store, if there is one.

        Args:
            key: the action's.
            remote: whether the remote store is asked.
        """
        found = self._find_here(key)
        if found is None and remote and self.remote is not None and self._fetch(key, self.remote):
            found = self._find_here(key)
        return found

    def _find_here(self, key: Digest) -> Found | None:
        path = self.entry_path(key)
        entry = read_entry(path)
        if entry is None or not self._holds(entry, key):
            entry = earlier.recall(path, lambda one: self._holds(one, key), self.root / "tmp")
            if entry is None:
                return None
        with suppress(OSError):  # a read-only store serves all the same; `gc` then sees the time of writing
            os.utime(path)
        return Found(entry.result, self._is_own(entry))

    def _holds(self, entry: Entry, key: Digest) -> bool:
        """Whether an entry is that of a key, complete, and what its action was seen to use is as it was."""
        if entry.result.key != key or not self.is_complete(entry):
            return False
        if entry.result.attempts and not self._is_own(entry):
            return False  # it took several tries: another run tries for itself
        return next(changes(entry.result, self.source_roots, self.root), None) is None

    def _is_own(self, entry: Entry) -> bool:
        return bool(self.run) and entry.run == self.run

    def _fetch(self, key: Digest, remote: Remote) -> bool:
        data = remote.read(f"actions/{key[:2]}/{key}.json")
        if data is None:
            return False

        def fetch(digest: Digest, path: Path) -> bool:
            return remote.download(f"blobs/{digest[:2]}/{digest}", path)

        scratch = self.scratch()
        try:
            entry = adopt(data, key, self.content, fetch, scratch)
        except StoreError as error:
            remote.warn(f"an entry of the remote store is not used: {error}")
            return False
        finally:
            self.discard(scratch)
        if entry is None or entry.result.mnemonic in LOCAL:
            return False
        self.write_entry(entry)
        return True

    def fetch(self, keys: Sequence[Digest]) -> set[Digest]:
        """Brings results from the remote store, many at a time; returns the keys of those that came."""
        remote = self.remote
        if remote is None or not keys:
            return set()
        with ThreadPoolExecutor(min(_FETCHES, len(keys)), "fetch") as pool:  # each thread waits for the network
            came = pool.map(lambda key: self._fetch(key, remote), keys)
            return {key for key, found in zip(keys, came, strict=True) if found}

    def is_complete(self, entry: Entry) -> bool:
        """Whether everything that an entry names is there, in full size (and sound, with `store.verify=always`)."""
        if self.settings.verify == "always":
            return self._sound(entry)
        for digest in entry.result.artifacts.values():
            size = self.content.size(digest)
            if size is None or size != entry.sizes.get(digest):
                return False
        if entry.result.model is None:
            return True
        sizes = self.content.model_size(entry.result.model)
        return sizes is not None and all(entry.sizes.get(name) == size for name, size in sizes.items())

    def _sound(self, entry: Entry) -> bool:
        try:
            for digest in entry.result.artifacts.values():
                self.content.compare(self.content.blob_path(digest), digest)
            model = entry.result.model
            if model is not None:
                path = self.content.open_model(model)
                self.content.compare(path, model.onnx)
                for name, digest in model.external:
                    self.content.compare(path.parent / name, digest)
        except (StoreError, OSError):
            return False
        return True

    def record(self, action: Action, result: ActionResult) -> None:
        """Caches a result. Its artifacts are stored already.

        Raises:
            StoreError: the result may not be cached (a crash, a timeout, ...), names something that is not stored, or
                the disk is full.
        """
        if result.failure is not None and result.failure.stage in UNCACHED_STAGES:
            raise StoreError(
                f"{action.mnemonic} failed with stage {result.failure.stage!r}, which says something about this "
                "machine and moment and is never cached. Next step: keep the result for this run only"
            )
        if result.key != action.key or result.mnemonic != action.mnemonic:
            raise StoreError(
                f"the result of {result.mnemonic} {result.key} does not belong to {action.mnemonic} {action.key}"
            )
        sizes: dict[str, int] = {}
        for name, digest in result.artifacts.items():
            size = self.content.size(digest)
            if size is None:
                raise StoreError(f"{action.mnemonic} names the artifact {name!r} ({digest}), which is not stored")
            sizes[digest] = size
        if result.model is not None:
            models = self.content.model_size(result.model)
            if models is None:
                raise StoreError(
                    f"{action.mnemonic} names the model {result.model.onnx}, which is not stored completely"
                )
            sizes |= models
        entry = Entry(result, action.entries, sizes, run=self.run)
        self.write_entry(entry)
        if self.remote is not None and action.mnemonic not in LOCAL and not result.attempts:
            self._send(entry, self.remote)

    def write_entry(self, entry: Entry) -> None:
        """Writes an entry; everything that it names is stored already."""
        path = self.entry_path(entry.result.key)
        make_room(self.root, path, entry.result.key)
        earlier.keep(path, entry)
        write_atomic(path, encode_entry(entry), self.root / "tmp")

    def _send(self, entry: Entry, remote: Remote) -> None:
        key = entry.result.key
        for digest, path in self.content.files_of(entry.result):
            if not remote.upload(f"blobs/{digest[:2]}/{digest}", path):
                return
        remote.write(f"actions/{key[:2]}/{key}.json", encode_entry(replace(entry, run="")))

    @contextmanager
    def single_flight(self, key: Digest) -> Iterator[None]:
        """Lets one process at a time work on an action; whoever comes second looks the result up again."""
        with locked(self.root / "locks" / key[:3]):
            if not self.settings.shared:
                yield
                return
            with leased(self.root / "locks" / f"{key}.lease"):
                yield

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps `gc` away while a run lasts; any number of runs may use a store at once."""
        with locked(self.root / "locks" / "store", shared=True):
            yield

    def usable_settings(self) -> StoreSpec:
        """Returns how children are to use this store: without its remote once that has failed."""
        if self.remote is None or self.remote.works:
            return self.settings
        return replace(self.settings, remote="")

    def scratch(self) -> Path:
        """Makes an empty folder for files on their way into the store; the caller removes it."""
        with storing(self.root / "tmp"):
            _make_folders(self.root)  # someone may have removed the store under a run
            return Path(tempfile.mkdtemp(dir=self.root / "tmp", prefix="unit-"))

    def discard(self, scratch: Path) -> None:
        """Removes a folder that `scratch` made."""
        shutil.rmtree(scratch, ignore_errors=True)

    def entries(self) -> Iterator[tuple[Path, Entry]]:
        """Goes through the readable entries of the action cache, earlier ones of an action among them."""
        for path in sorted(self.actions.glob("*/*.json")):
            entry = read_entry(path)
            if entry is not None:
                yield path, entry

    def durations(self) -> dict[str, float]:
        """Returns how many seconds each unit of work took when it was last executed, by unit name."""
        try:
            return msgspec.json.decode((self.root / layout.DURATIONS).read_bytes(), type=dict[str, float])
        except (OSError, msgspec.MsgspecError):
            return {}

    def remember_durations(self, seconds: dict[str, float]) -> None:
        """Keeps the seconds of units that were executed, so that the next run starts the longest first."""
        data = msgspec.json.encode({**self.durations(), **seconds}, order="deterministic")
        write_atomic(self.root / layout.DURATIONS, data, self.root / "tmp")

    def remember_imports(self, names: Mapping[str, Sequence[str]]) -> None:
        """Keeps what source files import, see `ImportNames`; only a saving of time, so a failure is no failure."""
        if names:
            with suppress(StoreError):
                write_atomic(imports_memo(self.root), msgspec.json.encode(names), self.root / "tmp")

    def info(self) -> StoreInfo:
        """Counts what lies in the store."""
        actions: dict[str, int] = {}
        for _, entry in self.entries():
            actions[entry.result.mnemonic] = actions.get(entry.result.mnemonic, 0) + 1
        sizes = [path.stat().st_size for path in self.root.rglob("*") if path.is_file()]
        return StoreInfo(
            path=str(self.root),
            actions=dict(sorted(actions.items())),
            blobs=sum(1 for path in self.content.blobs.glob("*/*") if not path.suffix),
            models=sum(1 for _ in self.content.models.glob("*/*.onnx")),
            bytes=sum(sizes),
            quarantined=len(quarantined(self.root)),
        )
