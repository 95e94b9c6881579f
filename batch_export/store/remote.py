"""A store behind the store: a folder that others share, or any URL that fsspec opens. Names and bytes in, the same out.

What cannot be read or written is a miss: after the first failure the remote is left alone for the rest of the process,
with one warning. Nothing that comes from it is trusted here; `adopt.adopt` verifies. Credentials come from where the
storage's own library looks for them, and never enter a message.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from batch_export.errors import UsageError

LAYOUT = "v1"
"""The folder in a remote store that holds what this program writes."""

_S3_OPTIONS = {"config_kwargs": {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 2}}}
_S3_READING = {"max_concurrency": 1}
"""Entries are small: they are read with one request, instead of asking for their size first to read them in parts."""
_ASK_FROM_BYTES = 1 << 20
_MAX_ENTRY_BYTES = 256 << 20


class Backend(Protocol):
    """Where the bytes are. A missing name is `FileNotFoundError`; anything else raised means that it does not work."""

    def read(self, name: str) -> bytes:
        """Returns the content."""

    def download(self, name: str, path: Path) -> None:
        """Writes the content to a file."""

    def exists(self, name: str) -> bool:
        """Whether there is such content."""

    def write(self, name: str, data: bytes) -> None:
        """Makes the content; whole or not at all."""

    def upload(self, name: str, path: Path) -> None:
        """Makes the content from a file; whole or not at all."""


class Remote:
    """A remote store that never fails: it works, or it has nothing.

    Args:
        url: as it was configured, for messages.
        backend: where the bytes are.
        warn: told once when it stops working.
    """

    def __init__(self, url: str, backend: Callable[[], Backend], warn: Callable[[str], None]) -> None:
        self.url = url
        self.warn = warn
        self._connect = backend
        self._backend: Backend | None = None
        self._broken = False
        self._lock = threading.Lock()
        self._connecting = threading.Lock()

    @property
    def works(self) -> bool:
        """Whether it has not failed yet."""
        return not self._broken

    def stop(self) -> bool:
        """Leaves the remote alone from now on, as a child found that it does not work; says whether that is news."""
        with self._lock:
            news, self._broken = not self._broken, True
        return news

    def read(self, name: str) -> bytes | None:
        """Returns the content, or None."""
        data = self._try(lambda backend: backend.read(name))
        return data if isinstance(data, bytes) and len(data) <= _MAX_ENTRY_BYTES else None

    def download(self, name: str, path: Path) -> bool:
        """Writes the content to a file, and says whether there was any."""

        def download(backend: Backend) -> bool:
            backend.download(name, path)
            return True

        return bool(self._try(download))

    def write(self, name: str, data: bytes) -> None:
        """Makes the content."""
        self._try(lambda backend: backend.write(name, data))

    def upload(self, name: str, path: Path) -> bool:
        """Makes the content from a file unless it is there, and says whether it is there now."""

        def upload(backend: Backend) -> bool:
            # Asking takes as long as sending, unless the file is large; what is there already is the same.
            if path.stat().st_size < _ASK_FROM_BYTES or not backend.exists(name):
                backend.upload(name, path)
            return True

        return bool(self._try(upload))

    def _try(self, what: Callable[[Backend], Any]) -> Any:
        if self._broken:
            return None
        try:
            with self._connecting:
                backend = self._backend = self._backend or self._connect()
            return what(backend)
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever a storage library raises; the work goes on without the remote
            if not self.stop():
                return None
            reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            self.warn(
                f"the remote store {self.url} does not work ({type(error).__name__}{reason}); the run goes on with the "
                "local store alone. Next step: `batch-export doctor` tries it again"
            )
            return None


class FolderBackend:
    """A folder that several machines see."""

    def __init__(self, root: Path) -> None:
        self._root = root / LAYOUT
        root.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes:
        """See `Backend`."""
        return (self._root / name).read_bytes()

    def download(self, name: str, path: Path) -> None:
        """See `Backend`."""
        shutil.copyfile(self._root / name, path)

    def exists(self, name: str) -> bool:
        """See `Backend`."""
        return (self._root / name).exists()

    def write(self, name: str, data: bytes) -> None:
        """See `Backend`."""
        with self._arriving(name) as path:
            path.write_bytes(data)

    def upload(self, name: str, path: Path) -> None:
        """See `Backend`."""
        with self._arriving(name) as target:
            shutil.copyfile(path, target)

    @contextlib.contextmanager
    def _arriving(self, name: str) -> Any:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, text = tempfile.mkstemp(dir=target.parent, prefix=".arriving-")
        os.close(handle)
        try:
            yield Path(text)
            Path(text).chmod(0o644)
            os.replace(text, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(text)
            raise


class FsspecBackend:
    """Whatever fsspec opens. Object stores show an object when it is complete."""

    def __init__(self, url: str) -> None:
        import fsspec  # lazy: an optional dependency

        protocol = url.partition("://")[0]
        options = _S3_OPTIONS if protocol in ("s3", "s3a") else {}
        self._files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, **options)
        self._root = f"{root.rstrip('/')}/{LAYOUT}"
        self._reading = _S3_READING if protocol in ("s3", "s3a") else {}

    def read(self, name: str) -> bytes:
        """See `Backend`."""
        data: bytes = self._files.cat_file(f"{self._root}/{name}", **self._reading)
        return data

    def download(self, name: str, path: Path) -> None:
        """See `Backend`."""
        self._files.get_file(f"{self._root}/{name}", str(path))

    def exists(self, name: str) -> bool:
        """See `Backend`."""
        return bool(self._files.exists(f"{self._root}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        """See `Backend`."""
        self._files.pipe_file(f"{self._root}/{name}", data)

    def upload(self, name: str, path: Path) -> None:
        """See `Backend`."""
        self._files.put_file(str(path), f"{self._root}/{name}")


def open_remote(url: str, warn: Callable[[str], None]) -> Remote:
    """Returns the remote store at `url`: a folder, or any URL that fsspec opens. Nothing is contacted yet.

    Raises:
        UsageError: the URL needs a library that is not installed.
    """
    if "://" not in url:
        folder = Path(url).expanduser()
        return Remote(url, lambda: FolderBackend(folder), warn)
    library_of(url)
    return Remote(url, lambda: FsspecBackend(url), warn)


def library_of(url: str) -> str | None:
    """Returns the module of fsspec's that opens the URL, for preloading; None for a folder.

    Raises:
        UsageError: it needs a library that is not installed, or fsspec knows no such URLs.
    """
    if "://" not in url:
        return None
    protocol = url.partition("://")[0]
    try:
        import fsspec  # lazy: an optional dependency

        module: str = fsspec.get_filesystem_class(protocol).__module__
    except ImportError as error:
        raise UsageError(
            f"store.remote={url} needs a package that is not installed: {error}. "
            "Next step: pip install 'batch_export[remote]', and s3fs, gcsfs or adlfs for the storage"
        ) from error
    except ValueError as error:
        raise UsageError(f"store.remote={url}: fsspec opens no URLs of the kind {protocol!r}") from error
    importlib.import_module(module)
    return module
