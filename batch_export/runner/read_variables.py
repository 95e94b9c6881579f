"""Which environment variables a model or its builder read by `os.environ` and `os.environb`, and whether its folder.

Names leave, and digests instead of values, which may be secrets. It watches and never changes what is read. Whose reads
count is for `askers.py` to say. Another program that is given the environment may read all of it, and so may who asks C
for `getenv` or to start a program, takes `posix.environ` or opens `/proc/self/environ`; what C extensions read for
themselves is out of reach. Of a forked process is known whether it has read any, and which of the session's. The
current folder's name counts where the user's own code asks for it by itself; where a library makes a path absolute,
what is done with that path counts.
"""

from __future__ import annotations

import functools
import importlib
import mmap
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, AnyStr

from batch_export.digest import Digest
from batch_export.runner.askers import Askers, top_of
from batch_export.runner.audited import listen
from batch_export.runner.folder_variables import chose_a_folder, watch_reads
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.functions_of_os import ToldFunction
from batch_export.runner.system_folders import is_environment
from batch_export.sources import pythons_variables
from batch_export.sources.recorded import ALL_VARIABLES, CURRENT_FOLDER, is_of_session, never_counts, variable_digest

_OF_C = "getenv secure_getenv environ system popen execl execlp execv execvp execvpe posix_spawn posix_spawnp"
_FOR_C = frozenset(_OF_C.split())
"""What C is asked for who wants a variable, or starts a program that has them all."""
_WHERE_TEXTS_ARE_KEPT, _STARTS_PROGRAMS = "posix", "_posixsubprocess"
_ENVIRONMENT_OF_A_PROGRAM = 5
"""Where it stands among the arguments of `fork_exec`."""
_OF_ENVIRON = frozenset({"os", "_collections_abc", "collections.abc"})
_EXPANDING = frozenset({"posixpath", "ntpath"})
_BY_NAME = frozenset({"get", "getenv", "getenvb", "setdefault", "pop", "__contains__", "expandvars", "expandvarsb"})
"""Functions that read one variable; others of those modules go through all of them."""
_POOLS = ("concurrent.futures", "multiprocessing.pool")
_COMPARING = "hydra"
"""Its `instantiate` compares all variables before and after a call."""
_OF_PATHLIB = (Path.cwd.__func__.__code__,)  # type: ignore[attr-defined]  # a class method's


def _reader(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The code that reads a variable, and whether it does so by its name, not since it goes through all of them.

    Methods of `os.environ` are in other modules (`get`), too, and so is what finds names in texts.
    """
    by_name = True
    while frame is not None and frame.f_globals.get("__name__") in _OF_ENVIRON | _EXPANDING:
        by_name = frame.f_code.co_name in _BY_NAME or (by_name and frame.f_globals.get("__name__") in _EXPANDING)
        frame = frame.f_back
    return frame, by_name


def _is_of_pool(frame: FrameType | None) -> bool:
    """Whether Python's own code of pools calls a function that it was given."""
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_POOLS)


class ReadVariables:
    """Watches the reads of environment variables, and of the current folder, in this process.

    Args:
        askers: tell whose reads count.
        at_start: the environment as it was when the process that forked this one started.
        before: what that process' libraries have read.
        notes: what processes that this one forks hear; None: they are not heard.
    """

    def __init__(
        self,
        askers: Askers,
        at_start: Mapping[str, str],
        before: Collection[str] = (),
        notes: ForkedNotes | None = None,
    ) -> None:
        self._askers = askers
        self._at_start = at_start
        self._folder = os.curdir
        self._read: set[str] = (notes or ForkedNotes()).shared("variables")
        self._by_libraries = set(before)
        self._process = os.getpid()
        self._going: tuple[int, int] | None = None
        """Where all names were gone through last: a frame, and the place in its code."""
        self._forked = {name: mmap.mmap(-1, 1) for name in (ALL_VARIABLES, CURRENT_FOLDER)}
        """What processes have read that this one forked: a byte each, in memory that they share."""

    def watch(self) -> None:
        """Starts watching."""
        self._folder = os.getcwd()
        self._process = os.getpid()
        watch_reads(self._note_read)
        listen(("os.system", "os.exec", "subprocess.Popen", "ctypes.dlsym"), self._hear)
        for name in ("getcwd", "getcwdb"):
            setattr(os, name, self._watched(getattr(os, name)))
        if os.name == "posix":
            self._watch_the_text_of_all()
            self._watch_other_pythons()

    def _watch_the_text_of_all(self) -> None:
        """Makes `posix.environ`, a plain dict, an attribute that tells when it is taken."""
        module = importlib.import_module(_WHERE_TEXTS_ARE_KEPT)
        kept = vars(module).pop("environ")

        def taken(name: str) -> object:
            if name != "environ":
                raise AttributeError(f"module {_WHERE_TEXTS_ARE_KEPT!r} has no attribute {name!r}")
            self._note(ALL_VARIABLES, above=2)
            return kept

        vars(module)["__getattr__"] = taken

    def _watch_other_pythons(self) -> None:
        """Notes processes that `multiprocessing` starts anew, which no audit event tells of."""
        module = importlib.import_module(_STARTS_PROGRAMS)
        start = module.fork_exec

        @functools.wraps(start)
        def started(*arguments: Any) -> Any:
            asker = sys._getframe(1).f_back
            tracks = asker is not None and asker.f_globals.get("__name__") == "multiprocessing.resource_tracker"
            if arguments[_ENVIRONMENT_OF_A_PROGRAM] is None and not tracks:
                self._note(ALL_VARIABLES, above=2)
            return start(*arguments)

        vars(module)["fork_exec"] = started

    def _watched(self, getcwd: Callable[[], AnyStr]) -> ToldFunction:
        def watched() -> AnyStr:
            caller = sys._getframe(2)
            if caller.f_back is not None and caller.f_code in _OF_PATHLIB:
                caller = caller.f_back
            if CURRENT_FOLDER not in self._read and self._askers.is_users_own(caller, directly=True):
                self._add(CURRENT_FOLDER)
            return getcwd()

        return ToldFunction(getcwd, watched)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        inherited = event == "os.system" or (event == "subprocess.Popen" and arguments[3] is None)
        inherited |= event == "os.exec" and arguments[2] is None
        if inherited or (event == "ctypes.dlsym" and arguments[1] in _FOR_C):
            self._note(ALL_VARIABLES, above=3)

    def _note_read(self, name: str) -> None:
        self._note(name, above=3)

    def _note(self, name: str, above: int) -> None:
        reader, by_name = _reader(sys._getframe(above))
        place = None if reader is None else (id(reader), reader.f_lasti)
        if name == ALL_VARIABLES:
            self._going = place
        if name in self._read or never_counts(name):
            return
        by_name = by_name and place != self._going  # what copies all of them reads each where it went through the names
        if is_of_session(name):
            if by_name and self._askers.is_users_own(reader, directly=not _is_of_pool(reader)):
                self._add(name)
            return
        is_compared = not by_name and reader is not None and top_of(reader) == _COMPARING
        if ALL_VARIABLES in self._read or is_compared:
            return
        if self._askers.count(sys._getframe(above)):
            self._add(name)
        else:
            self._by_libraries.add(name)

    def _add(self, name: str) -> None:
        self._read.add(name)
        if os.getpid() != self._process:
            self._forked[name if name == CURRENT_FOLDER else ALL_VARIABLES][0] = 1

    def variables(
        self, used: Collection[str] = (), roots: Sequence[Path] = (), opened: Collection[str] = ()
    ) -> tuple[tuple[str, Digest], ...]:
        """Returns what was read so far, with the digests of the values at the start, sorted by name.

        What makes Python itself work otherwise than it usually does is read by everyone.

        Args:
            used: absolute paths of the files that were used, which libraries' variables may have chosen.
            roots: folders of local modules.
            opened: absolute paths of all that was opened, the system's own included.
        """
        self._read.update(name for name, memory in self._forked.items() if memory[0])
        if any(map(is_environment, opened)):
            self._read.add(ALL_VARIABLES)
        names = self._read
        if ALL_VARIABLES not in names:
            names = names | chose_a_folder(self._by_libraries, self._at_start, used, roots)
        names = names.union(pythons_variables.unusual(self._at_start))
        return tuple((name, variable_digest(name, self._at_start, self._folder)) for name in sorted(names))
