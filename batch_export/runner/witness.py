"""Every file that a child, and the processes that it starts, open or ask about: by the kernel's own word, whoever does.

In the child a seccomp filter makes the kernel tell a listener of each call that opens, executes, makes or asks about a
file, and hold the call until the listener answers. The keeper listens: it notes the path, and what is there at that
moment, and lets the call go on. So Python, Rust, C, a static binary and a subprocess are seen alike, nothing that
another child does is, and nothing is forbidden but io_uring, whose calls the kernel does not tell of (it is said to be
missing, as in old kernels). Linux only, from 5.5 on; where it cannot be had, `be_watched` says why.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from collections.abc import Callable

import msgspec

from batch_export.runner.calls import MACHINES, Call
from batch_export.runner.kernel_filter import LISTEN
from batch_export.runner.opened import WRITTEN_ANEW, Notes, Opened, is_of_package
from batch_export.runner.spellings import in_one_spelling, through_links_of_processes
from batch_export.runner.ways_down import WaysDown
from batch_export.sources.asked import How
from batch_export.sources.name_texts import name_of, text_of

_RECEIVE, _ANSWER, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_SYNCHRONOUS_WAKE_UP = 1
_GO_ON = 1
_NOTICE = struct.Struct("=QIIiIQ6Q")
_REPLY = struct.Struct("=QqiI")
_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_PATH_BYTES = 4096
_OPEN_FLAGS_OF_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_OPEN_FLAGS_OF_A_LISTING = getattr(os, "O_DIRECTORY", 0)
_OPEN_FLAGS_OF_A_NAMELESS_FILE = getattr(os, "O_TMPFILE", 0)
_ASK, _REWIND = b"?", b"R"


class Testimony(msgspec.Struct):
    """What the keeper has seen.

    Attributes:
        files: path -> note.
        asked: path, how it was asked about, and what was there.
        listed: folder -> process -> how often it was opened to be listed.
        of_packages: files of installed packages that processes have opened which the child started.
        interpreters: those of the processes that execute Python, which lists folders to find modules.
        sought: what was looked for when it was not there.
        blind: why something may have been missed; empty when nothing was.
    """

    files: dict[str, Opened]
    asked: list[tuple[str, How, str]] = msgspec.field(default_factory=list)
    listed: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    of_packages: list[str] = msgspec.field(default_factory=list)
    interpreters: set[int] = msgspec.field(default_factory=set)
    sought: list[str] = msgspec.field(default_factory=list)
    blind: str = ""


def ask(channel: socket.socket) -> Testimony:
    """Returns all that was opened before this call; asked by the child."""
    try:
        channel.sendall(_ASK)
        _, handles, _, _ = socket.recv_fds(channel, 1, 1)
    except OSError:  # a model may close what is not its own
        handles = []
    if not handles:
        return Testimony({}, blind="the process that watches cannot be asked any more")
    with os.fdopen(handles[0], "rb") as stream:
        return _renamed(msgspec.msgpack.decode(stream.read(), type=Testimony), name_of)


def _renamed(told: Testimony, name: Callable[[str], str]) -> Testimony:
    """The same with other names: between processes they are texts, see `name_texts.py`."""
    return Testimony(
        {name(path): note for path, note in told.files.items()},
        [(name(path), how, state) for path, how, state in told.asked],
        {name(path): counts for path, counts in told.listed.items()},
        [*map(name, told.of_packages)],
        told.interpreters,
        [*map(name, told.sought)],
        told.blind,
    )


def forget_since(channel: socket.socket) -> None:
    """Makes the keeper forget what was opened since the last `ask`; asked by the child."""
    with contextlib.suppress(OSError):
        channel.sendall(_REWIND)
        channel.recv(1)


class Witness:
    """The keeper's side.

    Args:
        channel: the other end of the child's.
        ignored: whether nothing is noted of a path.
    """

    def __init__(self, channel: socket.socket, ignored: Callable[[str], bool]) -> None:
        self._channel = channel
        self._notes = Notes(ignored)
        self._listener = -1
        self._ways = WaysDown()
        self._interpreters: set[int] = set()
        self._child = 0
        self._blind = ""
        self._machine = MACHINES.get(platform.machine())

    @property
    def handles(self) -> list[int]:
        """What has to be waited for; `serve` is to be called with those that became readable."""
        return [handle for handle in (self._channel.fileno(), self._listener) if handle >= 0]

    def serve(self, handle: int, *, over: bool) -> None:
        """Deals with one handle.

        Args:
            handle: one of `handles`.
            over: whether its other end is gone and nothing is left to read.
        """
        if handle == self._listener:
            if over:
                os.close(self._listener)
                self._listener = -1
            else:
                self._notice()
            return
        message, handles, _, _ = socket.recv_fds(self._channel, LISTEN.size, 1)
        if not message:
            self._channel.close()
        elif message == _ASK:
            self._testify()
        elif message == _REWIND:
            self._notes.rewind()
            self._channel.sendall(_REWIND)
        elif handles:
            self._listener = handles[0]
            (self._child,) = LISTEN.unpack(message)
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ioctl(self._listener, ctypes.c_ulong(_SET_FLAGS), ctypes.c_ulong(_SYNCHRONOUS_WAKE_UP))  # since 6.6

    def _testify(self) -> None:
        """Answers through a file in memory: whoever asks may not read before another of its threads may go on."""
        self._notes.mark()
        asked = [(path, how, state) for (path, how), state in self._notes.asked.items()]
        notes = self._notes
        told = Testimony(
            notes.files, asked, notes.listed, [*notes.of_packages], self._interpreters, [*notes.sought], self._blind
        )
        handle = os.memfd_create("opened")
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.msgpack.encode(_renamed(told, text_of)))
            stream.flush()
            stream.seek(0)
            socket.send_fds(self._channel, [_ASK], [handle])

    def _notice(self) -> None:
        import fcntl  # lazy: there is none on Windows

        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, notice)
        except OSError:
            return  # whoever called was killed meanwhile
        token, task, _, number, _, _, *arguments = _NOTICE.unpack(notice)
        try:
            self._note(task, number, arguments)
        except (FileNotFoundError, ProcessLookupError):
            pass  # likewise
        except OSError as error:
            self._blind = f"a process could not be looked into ({error.strerror})"
        with contextlib.suppress(OSError):
            while True:
                # A signal may come in between (some process has ended); without an answer the call is held for ever.
                with contextlib.suppress(InterruptedError):
                    fcntl.ioctl(self._listener, _ANSWER, _REPLY.pack(token, 0, 0, _GO_ON))
                    break

    def _note(self, task: int, number: int, arguments: list[int]) -> None:
        assert self._machine is not None
        call = self._machine.calls[number]
        memory = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            name = _text(memory, arguments[call.path]) if call.path >= 0 and arguments[call.path] else ""
            source = _text(memory, arguments[call.source]) if call.source >= 0 else ""
            flags = arguments[call.flags] if call.flags >= 0 else 0
            if call.flags_in_memory:
                flags = int.from_bytes(os.pread(memory, 8, flags), sys.byteorder)
        except OSError as error:
            if error.errno == errno.EIO:  # no such address: the call will fail
                return
            raise
        finally:
            os.close(memory)
        if not name and call.path >= 0 and call.does not in ("touches", "alters"):
            return  # by the descriptor alone, whose opening was seen
        path = _absolute(task, name, arguments[call.folder] if call.folder >= 0 else _AT_FDCWD)
        if not path.startswith(os.sep):
            return  # a pipe or a socket
        if source:
            source = _absolute(task, source, arguments[call.source_folder] if call.source_folder >= 0 else _AT_FDCWD)
        self._enter(task, call, path, flags, source)

    def _enter(self, task: int, call: Call, path: str, flags: int, source: str) -> None:
        if call.does == "makes" or call.does == "moves":  # which narrows what it may be below
            self._notes.make(path, source, replaces=call.does == "moves")
        elif call.does == "empties":
            self._notes.add(path, WRITTEN_ANEW)
        elif call.does == "touches":
            self._notes.touch(path)
        elif call.does == "alters":
            self._notes.alter(path)
        elif call.does == "cuts":
            self._notes.cut(path)
        elif call.does == "removes":
            self._notes.ask_in_vain(path)
        elif call.does == "lists":
            if _process_of(task) not in self._notes.listed.get(path, {}):  # it was opened as any file is
                self._list(path, task)
        elif call.does == "enters":
            self._notes.ask(path, "kind")
            self._notes.ask_links(path)
        elif call.does == "link" or (call.does == "status" and flags & _AT_SYMLINK_NOFOLLOW):
            self._ask_unfollowed(path, task)
        elif call.does != "opens":
            self._notes.ask(path, call.does)
        elif flags & _OPEN_FLAGS_OF_A_NAMELESS_FILE == _OPEN_FLAGS_OF_A_NAMELESS_FILE != 0:
            return
        else:
            self._open(task, path, flags)

    def _open(self, task: int, path: str, flags: int) -> None:
        if flags & _OPEN_FLAGS_OF_NO_LINK and os.path.lexists(path):
            self._notes.ask(path, "link")  # whether it succeeds says whether there is one
        if flags & _OPEN_FLAGS_OF_A_LISTING:
            self._notes.ask(path, "kind")  # it may be opened in vain
            self._list(path, task)
            self._notes.ask_links(path)
        else:
            self._notes.add(path, flags)
            # What the child itself imports, it tells better: it knows for whose sake.
            if is_of_package(path) and task != self._child and _process_of(task) != self._child:
                self._notes.add_of_package(path)

    def _ask_unfollowed(self, path: str, task: int) -> None:
        if not self._ways.is_step(task, path):
            self._notes.ask(path, "link")
        elif self._notes.ask_step(path):
            self._ways.turn(task)

    def _list(self, path: str, task: int) -> None:
        process = _process_of(task)
        self._notes.list(path, process)
        is_python = os.path.basename(os.readlink(f"/proc/{process}/exe")).startswith(("python", "pypy"))
        if is_python and (process == self._child or _words_of(process) != _words_of(self._child)):
            self._interpreters.add(process)  # one that was only forked tells what it looks for


def _text(memory: int, address: int) -> str:
    return os.fsdecode(os.pread(memory, _PATH_BYTES, address).split(b"\0", 1)[0])


def _absolute(task: int, name: str, start: int) -> str:
    """The absolute path of what a thread calls `name`, which starts from the folder of that descriptor; without a name
    what that descriptor is of.
    """
    if not name.startswith("/"):
        start = _signed(start)
        base = os.readlink(f"/proc/{task}/cwd" if start == _AT_FDCWD else f"/proc/{task}/fd/{start}")
        name = os.path.join(base, name) if name else base
    return through_links_of_processes(in_one_spelling(name), task)


def _process_of(task: int) -> int:
    """The process that a thread belongs to."""
    with open(f"/proc/{task}/status", encoding="utf-8") as stream:
        return next((int(line.split()[1]) for line in stream if line.startswith("Tgid:")), task)


def _words_of(process: int) -> bytes:
    """What a process was started with, as long as it executes nothing else."""
    with open(f"/proc/{process}/cmdline", "rb") as stream:
        return stream.read()


def _signed(word: int) -> int:
    """The int that the low half of a register holds."""
    value = word & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
