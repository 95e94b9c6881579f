"""Files by content: `blobs/ab/<digest>`, and ONNX files beside their external data in `models/<digest of the data>/`.

Paths and bytes arrive, digests leave, and the other way round. External data that is named by its content
(`<digest>.bin`) lies in one folder, so that models which share a tensor share its file, whatever else they refer to.
Other data lies beside the models that refer to the same: when one needs a blob, the blob moves into the model's folder
and a small pointer (`blobs/ab/<digest>.at`) says where. Never a hard link nor a symbolic link: ONNX loaders refuse both
for external data.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from batch_export.action import ActionResult, ModelArtifact
from batch_export.digest import Digest, content_name, digest_bytes, digest_file, digest_value
from batch_export.errors import ArtifactError, CorruptArtifactError, MissingArtifactError, StoreError
from batch_export.store.entry import is_digest, is_plain_name
from batch_export.store.files import copy_in, make_independent, move_in, write_atomic
from batch_export.store.locks import locked
from batch_export.store.quarantine import content_of, make_room, quarantine

POINTER_SUFFIX = ".at"
_BY_CONTENT = digest_value("external data by content")
_POINTER = re.compile(r"models/[0-9a-f]{64}/[^/\\\0]+")


class ContentStore:
    """The `blobs` and `models` folders of a store.

    Args:
        root: the store's folder; its `tmp` and `locks` folders exist.
        verify: whether digests are compared with the content when a file is read for the first time.
    """

    def __init__(self, root: Path, *, verify: bool = True) -> None:
        self.root = root
        self.verify = verify
        self._verified: set[tuple[str, int, int]] = set()
        self.blobs = root / "blobs"
        self.models = root / "models"
        self.scratch = root / "tmp"
        self.locks = root / "locks"

    def put_bytes(self, data: bytes) -> Digest:
        """Stores `data` and returns its digest."""
        digest = digest_bytes(data)
        if not self._has(digest, len(data)):
            write_atomic(self.place(digest), data, self.scratch)
        return digest

    def put_file(self, path: Path) -> Digest:
        """Moves the file into the store and returns its digest; `path` is gone afterwards, what it links to stays."""
        make_independent(path)
        digest = digest_file(path)
        if not self._has(digest, path.stat().st_size):
            move_in(path, self.place(digest), self.scratch)
        else:
            path.unlink()
        return digest

    def _has(self, digest: Digest, size: int) -> bool:
        """Whether the content is there and sound; what is not sound makes room for what is about to be stored."""
        found = self.find(digest)
        if found is None:
            make_room(self.root, self.place(digest), digest)
        return found is not None and self._is_sound(found, digest, size)

    def _is_sound(self, path: Path, digest: Digest, size: int) -> bool:
        try:
            if path.stat().st_size == size and content_of(path) == digest:
                return True
            quarantine(self.root, path, digest, content_of(path))
        except FileNotFoundError:
            pass
        return False

    def checked(self, path: Path, digest: Digest) -> Path:
        """Returns `path` once its content is known to be what the digest says; each file is read once per process.

        Raises:
            CorruptArtifactError: it is not; the file has been moved to the quarantine.
            MissingArtifactError: there is no such file.
        """
        try:
            status = path.stat()
            known = (str(path), status.st_mtime_ns, status.st_size)
            if self.verify and known not in self._verified:
                self.compare(path, digest)
                self._verified.add(known)
        except FileNotFoundError as error:  # another process found it damaged, or moved it
            raise self._missing(digest) from error
        return path

    def compare(self, path: Path, digest: Digest) -> None:
        """Reads the whole file and compares it with its digest.

        Raises:
            CorruptArtifactError: they differ; the file has been moved to the quarantine.
        """
        found = content_of(path)
        if found != digest:
            aside = quarantine(self.root, path, digest, found)
            raise CorruptArtifactError(
                f"the stored file {path} is damaged: its content is not what its digest {digest[:12]} says. It was "
                f"moved to {aside} and is made again. Next step: if this happens more than once, check the disk",
                digest,
            )

    def place(self, digest: Digest) -> Path:
        """Where a blob lies unless it has moved into a model's folder."""
        return self.blobs / digest[:2] / digest

    def find(self, digest: Digest) -> Path | None:
        """Returns the file with this content, or None."""
        if not is_digest(digest):
            return None
        place = self.place(digest)
        if place.is_file():
            return place
        tensor = self.models / _BY_CONTENT / content_name(digest)
        if tensor.is_file():
            return tensor
        try:
            pointer = place.with_name(digest + POINTER_SUFFIX).read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            return None
        if not _POINTER.fullmatch(pointer):
            return None
        target = self.root / pointer
        return target if target.is_file() else None

    def blob_path(self, digest: Digest) -> Path:
        """Returns the file with this content.

        Raises:
            MissingArtifactError: there is none.
            CorruptArtifactError: it is damaged (see `checked`).
        """
        found = self.find(digest)
        if found is None:
            raise self._missing(digest)
        return self.checked(found, digest)

    def _missing(self, digest: Digest) -> MissingArtifactError:
        return MissingArtifactError(
            f"the store at {self.root} has no file {digest}. Next step: run again; if it stays, remove the store",
            digest,
        )

    def size(self, digest: Digest) -> int | None:
        """Returns the size of the file with this content, or None when there is none."""
        for _ in range(2):  # a second look, should the blob move into a model's folder in between
            found = self.find(digest)
            if found is None:
                return None
            with contextlib.suppress(FileNotFoundError):
                return found.stat().st_size
        return None

    def model_folder(self, external: tuple[tuple[str, Digest], ...]) -> Path:
        """The folder of the ONNX files that share this external data, or all of whose data is named by its content."""
        if external and all(name == content_name(digest) for name, digest in external):
            return self.models / _BY_CONTENT
        return self.models / digest_value(external)

    def model_path(self, model: ModelArtifact) -> Path:
        """Where a stored ONNX file lies, beside its external data."""
        return self.model_folder(model.external) / f"{model.onnx}.onnx"

    def put_model(self, onnx: Path, external: dict[str, Path | Digest]) -> ModelArtifact:
        """Moves an ONNX file and its external data into the store; data that is a blob already is given as its digest.

        Args:
            onnx: the file; gone afterwards.
            external: name in the ONNX file -> a file (gone afterwards), or a digest.
        """
        make_independent(onnx)  # an exporter may have linked it to a file that it writes again for the next model
        digests: dict[str, Digest] = {}
        for name, data in external.items():
            if not is_plain_name(name):
                raise StoreError(
                    f"external data named {name!r} cannot be stored: it must be a plain file name beside the ONNX "
                    "file, not ending in .onnx. Next step: save the external data in the ONNX file's own folder"
                )
            if isinstance(data, Path):
                make_independent(data)
            digests[name] = data if isinstance(data, str) else digest_file(data)
        artifact = ModelArtifact(digest_file(onnx), tuple(sorted(digests.items())))
        folder = self.model_folder(artifact.external)
        with locked(self.locks / f"model-{folder.name}"):
            for name, data in external.items():
                self._place_external(folder / name, data, digests[name])
            path = self.model_path(artifact)
            if self._is_sound(path, artifact.onnx, onnx.stat().st_size):
                onnx.unlink()
            else:
                move_in(onnx, path, self.scratch)
        return artifact

    def _place_external(self, path: Path, data: Path | Digest, digest: Digest) -> None:
        size = data.stat().st_size if isinstance(data, Path) else self.size(digest)
        if self._is_kept(path, digest, size):
            if isinstance(data, Path):
                data.unlink()
        elif isinstance(data, Path):
            move_in(data, path, self.scratch)
        else:
            source = self.blob_path(data)
            if source == self.place(data):
                # The pointer first: between the two steps the blob is found where it was.
                write_atomic(
                    source.with_name(digest + POINTER_SUFFIX),
                    path.relative_to(self.root).as_posix().encode(),
                    self.scratch,
                )
                move_in(source, path, self.scratch)
            else:
                copy_in(source, path, self.scratch)

    def _is_kept(self, path: Path, digest: Digest, size: int | None) -> bool:
        """Whether a model's folder has its data already; of weights that many opsets share, it is read once."""
        if not path.is_file() or (size is not None and path.stat().st_size != size):
            return self._is_sound(path, digest, -1)
        try:
            self.checked(path, digest)
        except ArtifactError:
            return False
        return True

    def open_model(self, model: ModelArtifact) -> Path:
        """Returns a stored ONNX file whose content, and that of its external data, is what the digests say.

        Raises:
            MissingArtifactError: a file is missing.
            CorruptArtifactError: a file is damaged (see `checked`).
        """
        path, folder = self.model_path(model), self.model_folder(model.external)
        for name, digest in model.external:
            self.checked(folder / name, digest)
        return self.checked(path, model.onnx)

    def files_of(self, result: ActionResult) -> Iterator[tuple[Digest, Path]]:
        """Yields what a result names: digest and file, external data before the ONNX file."""
        for digest in result.artifacts.values():
            yield digest, self.blob_path(digest)
        if result.model is not None:
            path = self.open_model(result.model)
            for name, digest in result.model.external:
                yield digest, path.parent / name
            yield result.model.onnx, path

    def model_size(self, model: ModelArtifact) -> dict[str, int] | None:
        """Returns the size of each file of a stored model, by path relative to the store, or None when one is
        missing.
        """
        folder = self.model_folder(model.external)
        sizes: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for path in (self.model_path(model), *(folder / name for name, _ in model.external)):
                sizes[path.relative_to(self.root).as_posix()] = path.stat().st_size
            return sizes
        return None
