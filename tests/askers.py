"""Ways to learn something of a path without opening it, each as `write(path, number)` and `ask(path)`.

`ask` runs in a child, as a model's builder would. The path lies under the current folder.
"""

from __future__ import annotations

import ctypes
import glob
import importlib
import importlib.util
import multiprocessing
import os
import pkgutil
import py_compile
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Asker:
    """One way; `counts` is whether the second writing is to be noticed."""

    write: Callable[[Path, int], Any]
    ask: Callable[[Path], Any]
    counts: bool = True


def _appears(path: Path, number: int) -> None:
    if number == 2:
        path.touch()


def _vanishes(path: Path, number: int) -> None:
    if number == 1:
        path.touch()
    else:
        path.unlink()


def _folder_appears(path: Path, number: int) -> None:
    if number == 2:
        path.mkdir()


def _grows(path: Path, number: int) -> None:
    path.write_text("1" * number)


def _same_size(path: Path, number: int) -> None:
    path.write_text(str(number))
    os.utime(path, ns=(number, number))


def _link(path: Path, number: int) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(f"to{number}")


def _link_appears(path: Path, number: int) -> None:
    if number == 2:
        path.symlink_to("nowhere")


def _becomes_a_link(path: Path, number: int) -> None:
    path.unlink(missing_ok=True)
    if number == 1:
        path.write_text("1")
    else:
        target = path.with_name(f"{path.name}.target")
        target.write_text("1")
        path.symlink_to(target.name)


def _folder_becomes_a_link(path: Path, number: int) -> None:
    if number == 1:
        path.mkdir()
        (path / "w").write_text("1")
    else:
        path.rename(path.with_name(f"{path.name}.target"))
        path.symlink_to(f"{path.name}.target")


def _link_to_nowhere(path: Path, number: int) -> None:
    if number == 1:
        path.symlink_to(path.with_name("nowhere").absolute())


def _leads_somewhere(path: Path, number: int) -> None:
    if number == 1:
        path.symlink_to(f"{path.name}.target")
    else:
        path.with_name(f"{path.name}.target").touch()


def _opened_unfollowed(flags: int) -> Callable[[Path], int]:
    def ask(path: Path) -> int:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | flags)
        except OSError as error:
            return error.errno or 0
        os.close(handle)
        return 0

    return ask


def _beside(ending: str, write: Callable[[Path, int], Any]) -> Callable[[Path, int], Any]:
    return lambda path, number: write(path.with_name(path.name + ending), number)


def _of(ending: str, ask: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda path: ask(path.with_name(path.name + ending))


def _add_to(path: Path) -> int:
    size = path.stat().st_size
    with path.open("a") as stream:
        stream.write("1")
    return size


def _take(path: Path) -> bool:
    known = path.exists()
    path.touch()
    path.unlink()
    return known


def _read_if_no_link(path: Path) -> tuple[str, bool]:
    return path.read_text(), path.is_symlink()


def _another_name(path: Path, number: int) -> None:
    path.mkdir(exist_ok=True)
    (path / f"{number}.py").touch()


def _module(path: Path, number: int) -> None:
    if number == 2:
        Path(f"{path.name}_later.py").touch()


def _extension_beside_it(path: Path, number: int) -> None:
    if number == 1:
        Path(f"{path.name}_mine.py").touch()
    else:
        Path(f"{path.name}_mine{EXTENSION_SUFFIXES[-1]}").touch()


def _source_beside_bytecode(path: Path, number: int) -> None:
    source = Path(f"{path.name}_mine.py")
    source.touch()
    if number == 1:
        py_compile.compile(str(source), cfile=f"{path.name}_mine.pyc", doraise=True)
        source.unlink()


def _package_over_it(path: Path, number: int) -> None:
    if number == 1:
        Path(f"{path.name}_mine.py").touch()
    else:
        Path(f"{path.name}_mine").mkdir()
        Path(f"{path.name}_mine", "__init__.py").touch()


def _module_over_a_namespace(path: Path, number: int) -> None:
    if number == 1:
        Path(f"{path.name}_mine").mkdir()
        Path(f"{path.name}_mine", "part.py").touch()
    else:
        Path(f"{path.name}_mine.py").touch()


def _extension_of_another_name(path: Path, number: int) -> None:
    if number == 1:
        Path(f"{path.name}_mine.py").touch()
    else:
        Path(f"{path.name}_other{EXTENSION_SUFFIXES[0]}").touch()
        Path(f"{path.name}_mine").mkdir()


def _import_mine(path: Path) -> str:
    try:
        return str(importlib.import_module(f"{path.name}_mine").__file__)
    except ImportError:
        return "what is there cannot be loaded"


def _import_part(path: Path) -> str:
    try:
        return str(importlib.import_module(f"{path.name}_mine.part").__file__)
    except ImportError:
        return "no package"


def _portion_appears(path: Path, number: int) -> None:
    folder = path / ("first" if number == 1 else "second")
    for place in (path / "first", path / "second", folder / f"{path.name}_parts"):
        place.mkdir(parents=True, exist_ok=True)
    (folder / f"{path.name}_parts" / f"of_{number}.py").touch()


def _parts_of_a_namespace(path: Path) -> list[str]:
    sys.path += [str(path / "first"), str(path / "second")]
    parts = importlib.import_module(f"{path.name}_parts")
    return sorted(one.name for one in pkgutil.iter_modules(parts.__path__))


def _folders_of_a_package(path: Path) -> int:
    sys.path += [str(path / "first"), str(path / "second")]
    return len(importlib.import_module(f"{path.name}_parts").__path__)


def _extended_appears(path: Path, number: int) -> None:
    _portion_appears(path, number)
    text = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
    (path / "first" / f"{path.name}_parts" / "__init__.py").write_text(text, encoding="utf-8")


def _exists_while_a_clock_rings(path: Path) -> bool:
    """A signal ends no call that the kernel holds."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        answers = {os.path.exists(path) for _ in range(2_000)} | {
            bool(os.listdir(os.path.dirname(os.__file__))) for _ in range(200)
        }
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    (answer,) = answers - {True} or {True}
    return answer


def _import(path: Path) -> bool:
    try:
        importlib.import_module(f"{path.name}_later")
    except ImportError:
        return False
    return True


def _c_listed(path: Path) -> int:
    libc = ctypes.CDLL(None)
    libc.opendir.restype = libc.readdir.restype = ctypes.c_void_p
    folder = ctypes.c_void_p(libc.opendir(os.fsencode(path)))
    count = 0
    while libc.readdir(folder):
        count += 1
    libc.closedir(folder)
    return count


def _listed_by_descriptor(path: Path) -> list[str]:
    handle = os.open(path, os.O_RDONLY)
    try:
        return sorted(os.listdir(handle))
    finally:
        os.close(handle)


def _shell(line: str) -> Callable[[Path], str]:
    return lambda path: subprocess.run(["sh", "-c", line.format(path)], capture_output=True, text=True).stdout


def _variable(path: Path, number: int) -> None:
    os.environ[f"ASKED_{path.name}"] = str(number)


def _made_by_itself(path: Path) -> bool:
    known = path.exists()
    path.mkdir(exist_ok=True)
    (path / "part").write_text("1")
    (path / "part").rename(path / "whole")
    return known and (path / "whole").exists()


def _newer(path: Path, number: int) -> None:
    path.mkdir(exist_ok=True)
    for name in "ab":
        (path / name).touch()
    os.utime(path / "ab"[number - 1], ns=(time.time_ns() + number * 10**9,) * 2)


def _newest(times: Iterable[float]) -> int:
    several = list(times)
    return several.index(max(several))


def _by_a_pool(function: Callable[..., Any], made: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Of threads that run nothing of ours."""

    def ask(path: Path) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return list(pool.map(function, made(path)))

    return ask


def _in_a_fork(ask: Callable[[Path], Any]) -> Callable[[Path], str]:
    def forked(path: Path) -> str:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.write(writing, ascii(ask(path)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as stream:
            told = stream.read()
        os.waitpid(child, 0)
        return told

    return forked


def _times_of_open_files(path: Path) -> Iterator[float]:
    for name in "ab":
        with (path / name).open() as stream:
            yield os.fstat(stream.fileno()).st_mtime


def _files(path: Path) -> list[Path]:
    return [path / "a", path / "b"]


def _by_a_process_pool(function: Callable[..., Any], path: Path) -> Any:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(function, [path])[0]


class Disk:
    """Holds a function of C's, which is no method for that."""

    status: Any = os.stat


KEYS = {"newest": lambda entry: entry.stat().st_mtime}


def _later(path: Path) -> list[str]:
    return [f"{path.name}_later"]


def _outside(path: Path) -> Path:
    return path.absolute().parents[2] / f"outside_{path.name}"


def _outside_appears(path: Path, number: int) -> None:
    if number == 2:
        _outside(path).mkdir()
        (_outside(path) / "1").touch()


def _is_opened(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


def _is_loaded(path: str) -> bool:
    import numpy as np  # lazy: one child of many needs it

    try:
        np.load(path)
    except FileNotFoundError:
        return False
    except Exception:  # there is nothing in it
        return True
    return True


def _asked_within(path: Path) -> bool:
    before = os.getcwd()
    os.chdir(_outside(path) / "current")
    try:
        return os.path.exists("1")
    finally:
        os.chdir(before)


def _link_outside_leads_elsewhere(path: Path, number: int) -> None:
    for name in ("first", "second"):
        (_outside(path) / name).mkdir(parents=True, exist_ok=True)
    (_outside(path) / "second" / "1").touch()
    (_outside(path) / "current").unlink(missing_ok=True)
    (_outside(path) / "current").symlink_to("first" if number == 1 else "second")


ASKERS: dict[str, Asker] = {
    "exists": Asker(_appears, os.path.exists),
    "path_exists": Asker(_appears, Path.exists),
    "vanishes": Asker(_vanishes, os.path.exists),
    "lexists": Asker(_link_appears, os.path.lexists),
    "isdir": Asker(_folder_appears, os.path.isdir),
    "access": Asker(_appears, lambda path: os.access(path, os.R_OK)),
    "access_vanishes": Asker(_vanishes, lambda path: os.access(path, os.R_OK)),
    "getsize": Asker(_grows, os.path.getsize),
    "readlink": Asker(_link, os.readlink),
    "resolve": Asker(_link, lambda path: str(path.resolve())),
    "islink": Asker(_becomes_a_link, os.path.islink),
    "islink_of_a_folder": Asker(_folder_becomes_a_link, os.path.islink),
    "islink_of_what_is_read": Asker(_becomes_a_link, _read_if_no_link),
    "islink_in_a_subprocess": Asker(_becomes_a_link, _shell("test -L {} && echo yes")),
    "opened_if_no_link": Asker(_becomes_a_link, _opened_unfollowed(0)),
    "opened_if_no_link_to_a_folder": Asker(_folder_becomes_a_link, _opened_unfollowed(os.O_DIRECTORY)),
    "opened_if_no_link_in_vain": Asker(lambda path, number: None, _opened_unfollowed(0), counts=False),
    "size_of_a_log": Asker(_beside(".log", _grows), _of(".log", os.path.getsize)),
    "a_lock_vanishes": Asker(_beside(".lock", _vanishes), _of(".lock", os.path.exists)),
    "islink_of_a_log": Asker(_beside(".log", _becomes_a_link), _of(".log", os.path.islink)),
    "size_of_a_log_that_goes_on": Asker(_beside(".log", _grows), _of(".log", _add_to), counts=False),
    "a_lock_appears": Asker(_beside(".lock", _appears), _of(".lock", os.path.exists), counts=False),
    "a_lock_that_is_taken": Asker(_beside(".lock", _appears), _of(".lock", _take), counts=False),
    "link_to_nowhere": Asker(_link_to_nowhere, os.path.exists, counts=False),
    "link_now_leads_somewhere": Asker(_leads_somewhere, os.path.exists),
    "where_a_folder_leads": Asker(
        _folder_becomes_a_link, lambda path: len(os.path.realpath(path.absolute() / "w")) > 0, counts=False
    ),
    "extension_beside_a_module": Asker(_extension_beside_it, _import_mine),
    "source_beside_bytecode": Asker(_source_beside_bytecode, _import_mine),
    "package_over_a_module": Asker(_package_over_it, _import_mine),
    "module_over_a_namespace": Asker(_module_over_a_namespace, _import_part),
    "while_a_clock_rings": Asker(_appears, _exists_while_a_clock_rings),
    "up_from_the_current_folder": Asker(
        _outside_appears, lambda path: os.path.exists(os.path.relpath(_outside(path) / "1"))
    ),
    "opened_in_vain_above": Asker(_outside_appears, lambda path: _is_opened(os.path.relpath(_outside(path) / "1"))),
    "link_on_the_way_outside": Asker(
        _link_outside_leads_elsewhere, lambda path: os.path.exists(_outside(path) / "current" / "1")
    ),
    "link_on_the_way_above": Asker(
        _link_outside_leads_elsewhere, lambda path: os.path.exists(os.path.relpath(_outside(path) / "current" / "1"))
    ),
    "entered_by_a_link_outside": Asker(_link_outside_leads_elsewhere, _asked_within),
    "read_in_vain_above_for_the_user": Asker(
        _link_outside_leads_elsewhere, lambda path: _is_loaded(os.path.relpath(_outside(path) / "current" / "1"))
    ),
    "portion_of_a_namespace": Asker(_portion_appears, _parts_of_a_namespace),
    "portion_of_an_extended_package": Asker(_extended_appears, _parts_of_a_namespace),
    "folders_of_an_extended_package": Asker(_extended_appears, _folders_of_a_package),
    "extension_beside_a_subprocess_module": Asker(
        _extension_beside_it,
        lambda path: subprocess.run([sys.executable, "-c", f"import {path.name}_mine"], capture_output=True).returncode,
    ),
    "extension_of_another_name": Asker(_extension_of_another_name, _import_mine, counts=False),
    "c_access": Asker(_appears, lambda path: ctypes.CDLL(None).access(os.fsencode(path), 0)),
    "dirfd": Asker(_appears, lambda path: os.access(path.name, os.F_OK, dir_fd=os.open(path.parent, os.O_RDONLY))),
    "in_a_subprocess": Asker(_appears, _shell("test -e {} && echo yes")),
    "listed_by_a_subprocess": Asker(_another_name, _shell("ls {}")),
    "listed_by_c": Asker(_another_name, _c_listed),
    "listed_by_descriptor": Asker(_another_name, _listed_by_descriptor),
    "iter_modules": Asker(_another_name, lambda path: len(list(pkgutil.iter_modules([str(path)])))),
    "find_spec": Asker(_module, lambda path: importlib.util.find_spec(f"{path.name}_later") is not None),
    "import_in_vain": Asker(_module, _import),
    "opened_through_proc": Asker(_grows, lambda path: Path("/proc/self/cwd", path).read_text()),
    "asked_through_proc": Asker(_appears, lambda path: os.path.exists(f"/proc/self/cwd/{path}")),
    "environb": Asker(_variable, lambda path: os.environb[f"ASKED_{path.name}".encode()]),
    "order_by_a_pool": Asker(_newer, lambda path: _newest(_by_a_pool(os.path.getmtime, _files)(path))),
    "order_of_open_files": Asker(_newer, lambda path: _newest(_times_of_open_files(path))),
    "order_in_a_fork": Asker(_newer, _in_a_fork(lambda path: _newest(map(os.path.getmtime, _files(path))))),
    "listed_by_a_pool": Asker(_another_name, _by_a_pool(os.listdir, lambda path: [path])),
    "import_by_a_pool": Asker(
        _module, lambda path: [*filter(None, _by_a_pool(importlib.util.find_spec, _later)(path))] != []
    ),
    "variable_by_a_pool": Asker(_variable, _by_a_pool(os.environ.get, lambda path: [f"ASKED_{path.name}"])),
    "status_by_a_process_pool": Asker(_grows, lambda path: _by_a_process_pool(os.stat, path).st_size),
    "status_by_a_class": Asker(_grows, lambda path: Disk().status(path).st_size),
    "status_by_name": Asker(_appears, lambda path: os.access(path=path, mode=os.R_OK)),
    "order_by_a_key_in_a_dict": Asker(_newer, lambda path: max(os.scandir(path), key=KEYS["newest"]).name),
    "import_in_a_fork": Asker(_module, _in_a_fork(_import)),
    "listed_outside_in_vain": Asker(_outside_appears, lambda path: glob.glob(f"{_outside(path)}/*")),
    "only_its_time": Asker(_same_size, os.path.getsize, counts=False),
    "only_its_size": Asker(_grows, lambda path: os.access(path, os.F_OK), counts=False),
    "only_names_in_it": Asker(_another_name, os.path.isdir, counts=False),
    "made_by_itself": Asker(lambda path, number: None, _made_by_itself, counts=False),
    "some_other_module": Asker(lambda path, number: None, lambda path: importlib.import_module("json").__name__, False),
}


def build(asker: str) -> str:
    """A builder: asks in its own way."""
    return repr(ASKERS[asker].ask(Path("asked") / asker))
