"""Where the user's server that stays is found, and that nobody else's is: a socket in a folder of rights 0700, and the
kernel's word on who is at the other end.

One folder for each machine, start of it, and container, so that a home on a network holds several. Linux only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batch_export.digest import digest_value
from batch_export.errors import RunError
from batch_export.files import cache_folder
from batch_export.store.locks import take

ROOT_VARIABLE = "BATCH_EXPORT_SERVER"
LOG_NAME = "server.log"
_SOCKET_NAME = "socket"
_LOCK_NAME = "lock"
_CREDENTIALS = struct.Struct("3i")
_ANSWER_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """The folder, opened: what its names lead to cannot be exchanged any more."""

    path: Path
    handle: int

    @property
    def log(self) -> Path:
        """Where the server's output goes."""
        return self.path / LOG_NAME

    def hold(self) -> int | None:
        """Takes the right to be the server here, while the returned descriptor is open; None: another has it."""
        lock = os.open(_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.handle)
        if take(lock):
            self.sign(lock)
            return lock
        os.close(lock)
        return None

    def sign(self, lock: int) -> None:
        """Says which process the holder is: this one."""
        os.pwrite(lock, f"{os.getpid():<20}".encode("ascii"), 0)

    def holder(self) -> int | None:
        """Returns the server's process, whether it answers or not; None when there is none."""
        lock = os.open(_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=self.handle)
        try:
            if take(lock):
                return None
            text = os.pread(lock, 20, 0).strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(lock)

    def listen(self) -> socket.socket:
        """Returns a socket that commands find; for the holder only."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_SOCKET_NAME, dir_fd=self.handle)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._address())
        listener.listen()
        return listener

    def forget(self) -> None:
        """Removes the socket; for the holder only."""
        with contextlib.suppress(OSError):
            os.unlink(_SOCKET_NAME, dir_fd=self.handle)

    def connect(self) -> socket.socket | None:
        """Returns a connection to the server; None when there is none, or it is not this user's."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_ANSWER_LIMIT_S)
        try:
            connection.connect(self._address())
            peer_of(connection)
        except (OSError, RunError):
            connection.close()
            return None
        return connection

    def _address(self) -> str:
        return f"/proc/self/fd/{self.handle}/{_SOCKET_NAME}"  # the folder's own path may be too long for a socket's


def is_used() -> bool:
    """Whether there has ever been a server here."""
    return (_root() / _machine()).is_dir()


@contextlib.contextmanager
def opened() -> Iterator[Place]:
    """Yields the place, which is made when it is not there.

    Raises:
        RunError: it cannot be made, or others have rights in it.
    """
    path = _root() / _machine()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise RunError(f"{path} cannot be used ({error.strerror}). Next step: {_ELSEWHERE}") from error
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise RunError(
                f"{path} is open to other users. Next step: `chmod 700 {path}` if it is yours, or {_ELSEWHERE}"
            )
        yield Place(path, handle)
    finally:
        os.close(handle)


_ELSEWHERE = f"name another folder in the variable {ROOT_VARIABLE}"


def peer_of(connection: socket.socket) -> int:
    """Returns the process at the other end.

    Raises:
        RunError: it is another user's, or in another container.
    """
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(data)
    if user != os.geteuid() or pid <= 0:
        raise RunError(f"process {pid} at the other end of the socket belongs to user {user}, not {os.geteuid()}")
    return int(pid)


def _root() -> Path:
    return cache_folder(ROOT_VARIABLE, "server")


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return digest_value([boot, *(os.readlink(f"/proc/self/ns/{space}") for space in ("pid", "mnt", "user"))])[:16]
