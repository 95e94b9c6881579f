"""The server that stays: preloads once, and forks a session for each command that may use what it has in memory.

Run as `python -m batch_export.runner.staying.server UP_FD BEGAN_NS ENTRY...`. A session is what a forkserver of the
command's own would be (`forkserver.py`): tied to the command by a lifeline, with the command's log, and the end of
all children. The server itself runs no order and holds nothing of a command's. It ends when nobody has come for as
long as the last command said, when a command comes that it cannot serve any more, or by SIGTERM. Single-threaded.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from batch_export.errors import RunError
from batch_export.runner import forkserver, lifeline
from batch_export.runner.greeting import TIED
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.staying.circumstances import differences
from batch_export.runner.staying.messages import UP, Answer, Question, receive_question, send
from batch_export.runner.staying.place import Place, opened, peer_of
from batch_export.runner.staying.reading import Reading

_QUESTION_LIMIT_S = 5.0
_FIRST_S = 60.0
"""How long the command that started the server may take to ask it for the first time, if it stays shorter."""
_TIED_BYTES = 16
_LOGGED = 20


class Server:
    """Answers commands one after another.

    Args:
        place: where it is found.
        first: the command that started it; others have to be in the same circumstances.
        reading: what is in memory.
        preloaded: the same, for children.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        place: Place,
        first: Question,
        reading: Reading,
        preloaded: Preloaded,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._first = first
        self._reading = reading
        self._preloaded = preloaded
        self._clock = clock
        self._idle_s = max(first.idle_s, _FIRST_S)
        self._idle_since = clock()
        self._sessions: set[int] = set()

    def left_s(self) -> float | None:
        """How long the server stays if nobody comes, at least zero; None: as long as it has sessions."""
        return None if self._sessions else max(0.0, self._idle_since + self._idle_s - self._clock())

    def serve(self, listener: socket.socket, up: socket.socket, lock: int) -> None:
        """Answers until it is time to end.

        Args:
            listener: where commands come.
            up: told once that they may.
            lock: what no session may hold.
        """
        ended, wake = os.pipe()
        for handle in (ended, wake):
            os.set_blocking(handle, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            with up, contextlib.suppress(OSError):  # the command has gone meanwhile; another may come
                up.sendall(UP)
            while self.left_s() != 0.0:
                ready = {key.fileobj for key, _ in selector.select(self.left_s())}
                if ended in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(ended, 4096)
                    self._reap()
                if listener in ready:
                    connection, _ = listener.accept()
                    with connection:
                        stays = self._answer(connection, lock, (listener.fileno(), ended, wake))
                    if not stays:
                        return
            self._place.forget()

    def answer(self, question: Question) -> Answer:
        """What a command is told."""
        differs = [*differences(self._first.circumstances, question.circumstances), *self._reading.changed()]
        return Answer(differs, len(self._sessions), self._idle_s)

    def _answer(self, connection: socket.socket, lock: int, ours: tuple[int, ...]) -> bool:
        """Answers one command, and returns whether the server is of use to the next."""
        connection.settimeout(_QUESTION_LIMIT_S)
        handles: list[int] = []
        goes = False
        try:
            peer_of(connection)
            question, handles = receive_question(connection)
            answer = self.answer(question)
            goes = question.session and bool(answer.differs)
            if goes:
                print(f"ends, since this has changed: {', '.join(answer.differs[:_LOGGED])}", flush=True)
                self._place.forget()
                os.close(lock)  # before the command starts another server
            elif question.session:
                self._begin(question, handles, (*ours, lock, connection.fileno(), self._place.handle))
            send(connection, answer)
            return not goes
        except (OSError, RunError) as error:
            print(f"a command was not answered: {error}", flush=True)
            return not goes
        finally:
            for handle in handles:
                os.close(handle)

    def _begin(self, question: Question, handles: list[int], ours: tuple[int, ...]) -> None:
        pid = os.fork()
        if pid == 0:
            _become_session(question, handles, ours, self._preloaded)
        self._sessions.add(pid)
        self._idle_s = question.idle_s

    def _reap(self) -> None:
        while self._sessions:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._sessions.discard(pid)
            self._idle_since = self._clock()


def _become_session(question: Question, handles: list[int], ours: tuple[int, ...], preloaded: Preloaded) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for handle in ours:
            os.close(handle)
        control, line = (socket.socket(fileno=handle) for handle in handles[:2])
        lifeline.tie(os.getpid(), line)
        for stream in (1, 2):
            os.dup2(handles[2], stream)
        os.close(handles[2])
        os.environ.clear()
        os.environ.update(question.environment)
        preloaded.environment = dict(question.environment)
        importlib.invalidate_caches()  # a folder that changed twice in one tick of its clock looks as it did before
        random = sys.modules.get("numpy.random")
        if random is not None:
            random.seed()  # as in a process that has just imported it
        if not _is_cut(line) and control.recv(_TIED_BYTES) == TIED:
            forkserver.serve(control, line, preloaded)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _is_cut(line: socket.socket) -> bool:
    """Whether the other end has gone already, before this process was tied to it."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))


def _refuse(up: socket.socket, why: str) -> int:
    with contextlib.suppress(OSError):
        up.sendall(why.encode())
    return 1


def main(arguments: list[str]) -> int:
    """Goes into the background, preloads, serves; 1 when another server has the place."""
    faulthandler.enable()
    up = socket.socket(fileno=int(arguments[0]))
    up.set_inheritable(False)
    first, _ = receive_question(up)
    with opened() as place:
        lock = place.hold()
        if lock is None:
            return _refuse(up, "another one is just being started")
        if os.fork():
            os._exit(0)
        place.sign(lock)
        reading = Reading(int(arguments[1]))
        reading.watch()
        unknown = next(reading.changed(), "")
        if unknown:
            return _refuse(up, unknown)
        preloaded = forkserver.preloaded_with(arguments[2:])
        reading.finish()
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        with place.listen() as listener:
            Server(place, first, reading, preloaded).serve(listener, up, lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
