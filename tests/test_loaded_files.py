"""runner/loaded.py: the local files that a process has loaded, and none of those that packages brought."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from batch_export.action import ActionResult
from batch_export.runner.left_behind import is_temporary
from batch_export.runner.loaded import LoadedFiles
from batch_export.runner.recorded_names import Names
from batch_export.runner.system_folders import is_systems_own
from batch_export.sources.asked import ABSENT, of_a_step, state_now
from batch_export.sources.closure import local_roots
from batch_export.sources.recorded import PASSING, changes, current_digest, first_of

CODE = """
import json, sys
from pathlib import Path
from batch_export.runner.loaded import LoadedFiles
from batch_export.runner.module_files import installed_modules

root = Path(sys.argv[1])
sys.path[:0] = [str(root), str(root / ".venv/lib/python3.11/site-packages")]
watched = LoadedFiles([root], [root / "outputs"])
watched.watch()
import mine, package, linked_file, linked.inside
for name in ("weights.bin", "outputs/run.log", "outputs/kept.bin", "mine.pyc"):
    (root / name).read_bytes()
(root / "written.txt").write_text("out")
assert str(root / ".venv/lib/python3.11/site-packages/package.py") in installed_modules()
assert not any("linked" in name or name.endswith("mine.py") for name in installed_modules())
once = [name for name, _ in watched.sources()]
assert once == [name for name, _ in watched.sources()]
later = LoadedFiles([root], [root / "outputs"], installed_modules())
assert [name for name, _ in later.sources()] == [name for name in once if name.endswith(".py")]
print(json.dumps(once))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    packages = tmp_path / ".venv/lib/python3.11/site-packages"
    for folder in (packages, tmp_path / "outputs", tmp_path / "sources/linked"):
        folder.mkdir(parents=True)
    for name in ("mine.py", "sources/linked_file.py", "sources/linked/__init__.py", "sources/linked/inside.py"):
        (tmp_path / name).write_text("")
    (packages / "package.py").write_text("")
    (packages / "linked_file.py").symlink_to(tmp_path / "sources/linked_file.py")
    (packages / "linked").symlink_to(tmp_path / "sources/linked")
    for name in ("weights.bin", "ours.txt", "outputs/run.log", "outputs/kept.bin", "mine.pyc"):
        (tmp_path / name).write_bytes(b"1")
    return tmp_path


def test_what_is_local_is_found_through_links_and_what_is_installed_is_not(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        '["mine.py", "sources/linked/__init__.py", "sources/linked/inside.py", "sources/linked_file.py", "weights.bin"]'
    )


OWN = """
import sys
from pathlib import Path
import batch_export.errors
from batch_export.runner import digests_of_opened, loaded

root = Path(batch_export.__file__).parents[1]
asked = []
known = digests_of_opened.content_digest
digests_of_opened.content_digest = lambda path: asked.append(str(path)) or known(path)
watched = loaded.LoadedFiles([root], [root / "outputs"])
assert not any("batch_export/" in name for name, _ in watched.sources())
assert not any("batch_export/" in path for path in asked), asked
"""


def test_our_own_files_which_no_result_names_are_not_read() -> None:
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


GETDENTS = """
import ctypes, os
handle = ctypes.CDLL(None).open(b"full", os.O_RDONLY)
ctypes.CDLL(None).syscall(217 if os.uname().machine == "x86_64" else 61, handle, ctypes.create_string_buffer(999), 999)
"""
"""A listing by the system's own call, of a folder that was opened as any file is."""

pytestmark = pytest.mark.sampled
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' kernel tells")

WATCH = """
import json, os, socket, sys, threading
from pathlib import Path
from batch_export.runner import witness
from batch_export.runner.loaded import LoadedFiles
from batch_export.runner.system_folders import is_systems_own

root = Path(sys.argv[1])
os.chdir(root)
if sys.argv[3] == "refused":
    witness.MACHINES.clear()
watched = LoadedFiles([root], [root / "outputs"])
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    if sys.argv[3] == "interrupted":
        import errno, fcntl
        real, tries = fcntl.ioctl, iter(range(100000))
        def ioctl(*arguments):
            if arguments[1] == witness._ANSWER and next(tries) % 2 == 0:
                raise OSError(errno.EINTR, "Interrupted system call")
            return real(*arguments)
        fcntl.ioctl = ioctl
    seen = witness.Witness(ours, is_systems_own)
    theirs.close()
    import select
    while handles := seen.handles:
        poll = select.poll()
        for handle in handles:
            poll.register(handle, select.POLLIN)
        for handle, event in poll.poll():
            seen.serve(handle, over=not event & select.POLLIN)
    os._exit(0)
ours.close()
(go, be_told), (done, tell) = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(be_told)
    theirs.close()
    if os.read(go, 1):
        exec(sys.argv[4])
        os.write(tell, b"x")
    os._exit(0)

def somebody_else():
    os.write(be_told, b"x")
    os.read(done, 1)

watched.watch(theirs)
exec(sys.argv[2])
sources, pairs = dict(watched.sources()), watched.asked()
asked = {name: state for name, state in pairs if not state.startswith(("changed ", "altered "))}
orders = {name: state for name, state in pairs if state.startswith(("changed ", "altered "))}
theirs.close()
print(json.dumps([sources, watched.changed, watched.unseen, asked, orders]))
"""


Words = dict[str, str]


def seen(root: Path, code: str, how: str = "", deed: str = "") -> tuple[Words, list[str], str]:
    """What a process that executes `code` in `root` was seen to read, what changed meanwhile, and what is unsure.

    `somebody_else()` in `code` makes a process that nobody watches execute `deed`.
    """
    return seen_and_asked(root, code, how, deed)[:3]


def seen_and_asked(root: Path, code: str, how: str = "", deed: str = "") -> tuple[Words, list[str], str, Words]:
    """As `seen`, and what it was seen to ask about."""
    return _told(root, code, how, deed)[:4]


def orders_seen(root: Path, code: str, how: str = "") -> Words:
    """In which order files were changed, of which such a process asked for the time."""
    return _told(root, code, how, "")[4]


def _told(root: Path, code: str, how: str, deed: str) -> tuple[Words, list[str], str, Words, Words]:
    words = [sys.executable, "-c", WATCH, str(root), code, how, deed]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    sources, changed, unseen, asked, orders = json.loads(ended.stdout)
    return sources, changed, unseen, asked, orders


def _by_a_package(code: str) -> str:
    """The code as that of an installed package, which looks for much."""
    return f"exec(compile({code!r}, '/lib/python3/site-packages/package.py', 'exec'))"


READ = {"weights.bin"}
TRY = "import contextlib\nwith contextlib.suppress(OSError):"
SHELL = "import subprocess; subprocess.run(['sh', '-c', {!r}], check=True)"


@pytest.mark.parametrize(
    ("code", "recorded"),
    [
        pytest.param("open('weights.bin').read()", {"weights.bin"}, id="read"),
        pytest.param("open('made.txt', 'w').write('1'); open('made.txt').read()", set(), id="made"),
        pytest.param("open('made.txt', 'w').close(); os.unlink('made.txt')", set(), id="made and removed"),
        pytest.param(SHELL.format("echo 1 > made.txt; cat made.txt > copy.txt"), set(), id="made by a subprocess"),
        pytest.param("open('weights.bin', 'wb').write(b'2')", set(), id="overwritten"),
        pytest.param("open('weights.bin', 'r+b').read()", {"weights.bin"}, id="opened for both"),
        pytest.param("open('weights.bin', 'ab').write(b'2')", set(), id="appended to"),
        pytest.param("os.path.exists('none') or open('outputs/kept.bin').read()", set(), id="ignored"),
        pytest.param(
            "one = threading.Thread(target=open, args=('weights.bin',)); one.start(); one.join()",
            {"weights.bin"},
            id="in a thread",
        ),
        pytest.param(
            "open('weights.bin'); watched.sources(); open('a.txt', 'w').close(); open('ours.txt'); watched.set_aside()",
            {"weights.bin"},
            id="set aside",
        ),
        pytest.param(
            "watched.sources(); open('ours.txt'); watched.set_aside(); open('ours.txt')",
            {"ours.txt"},
            id="opened again",
        ),
        pytest.param("os.mkfifo('pipe'); os.open('pipe', os.O_RDWR)", set(), id="a pipe"),
        pytest.param("os.symlink('weights.bin', 'w'); open('w'); os.unlink('w')", {"weights.bin"}, id="own link"),
        pytest.param("os.link('weights.bin', 'w'); open('w'); os.unlink('w')", {"weights.bin"}, id="own hard link"),
        pytest.param(
            "os.rename('weights.bin', 'w'); open('w'); os.rename('w', 'weights.bin')",
            {"weights.bin"},
            id="there and back",
        ),
        pytest.param(
            "os.mkdir('a'); os.symlink(root, 'a/b'); open('a/b/weights.bin'); os.unlink('a/b'); os.rmdir('a')",
            {"weights.bin"},
            id="through a link in a folder of its own",
        ),
        pytest.param(
            "os.mkdir('a'); open('a/x', 'w').close(); os.rename('a', 'b')\n"
            "open('b/x'); os.unlink('b/x'); os.rmdir('b')",
            set(),
            id="in a folder of its own",
        ),
        pytest.param("os.open('outputs/..', os.O_TMPFILE | os.O_RDWR)", set(), id="a file without a name"),
        pytest.param("open('weights.bin', 'ab').close(); open('weights.bin').read()", READ, id="opened to append"),
        pytest.param(
            SHELL.format("echo >> weights.bin; cat weights.bin > /dev/null"), READ, id="appended to by a subprocess"
        ),
        pytest.param(f"{TRY} open('weights.bin', 'x')\nopen('weights.bin').read()", READ, id="made in vain"),
        pytest.param(
            f"open('w', 'w').close()\n{TRY} os.link('w', 'weights.bin')\nopen('weights.bin').read()",
            READ,
            id="named in vain",
        ),
        pytest.param(
            f"{TRY} os.symlink('nowhere', 'weights.bin')\nopen('weights.bin').read()", READ, id="linked in vain"
        ),
        pytest.param(
            f"{TRY} os.replace('weights.part', 'weights.bin')\nopen('weights.bin').read()", READ, id="moved in vain"
        ),
        pytest.param(
            "os.mkdir('d.part'); open('d.part/w.txt', 'w').close()\n"
            f"{TRY} os.rename('d.part', 'full')\nopen('full/w.txt').read()",
            {"full/w.txt"},
            id="a folder that is there already",
        ),
        pytest.param(
            f"{TRY} os.rename('d.part', 'full')\nopen('full/w.txt').read()", {"full/w.txt"}, id="a folder in vain"
        ),
        pytest.param("open('outputs/../weights.bin').read()", READ, id="up from what is ignored"),
        pytest.param("open(f'/etc/..{root}/weights.bin').read()", READ, id="up from what is the system's"),
        pytest.param("open('weights.bin').read(); os.utime('weights.bin')", READ, id="given another time"),
        pytest.param(
            "one = open('weights.bin'); one.read(); os.utime(one.fileno())", READ, id="given another time when open"
        ),
        pytest.param("open('weights.bin').read(); os.chmod('weights.bin', 0o600)", READ, id="given other rights"),
        pytest.param(
            "one = open('weights.bin'); one.read(); os.fchmod(one.fileno(), 0o600)",
            READ,
            id="given other rights when open",
        ),
        pytest.param("open('weights.bin').read(); os.chown('weights.bin', -1, os.getgid())", READ, id="given away"),
        pytest.param(
            "open('data.lock').read(); open('data.log').read()", {"data.lock", "data.log"}, id="data as locks"
        ),
        pytest.param("open('data.lock', 'a').close(); open('data.lock').read()", set(), id="a lock that is taken"),
        pytest.param("open('data.log').read(); open('data.log', 'a').write('2')", set(), id="a log that goes on"),
        pytest.param(f"open('n.lock', 'w').close(); open('n.lock').read()\n{TRY} open('m.log')", set(), id="own locks"),
        pytest.param("open('weights.bin').read(); os.link('weights.bin', 'w'); os.unlink('w')", READ, id="two names"),
    ],
)
@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
def test_what_is_read_counts_and_what_is_made_does_not(root: Path, code: str, recorded: set[str], how: str) -> None:
    if how == "refused" and ("subprocess" in code or "utime" in code):
        pytest.skip("Python does not hear of it")
    (root / "full").mkdir()
    for name in ("full/w.txt", "data.lock", "data.log"):
        (root / name).write_text("1")
    sources, changed, unseen = seen(root, code, how)
    assert {name for name in sources if not name.endswith(".py")} == recorded
    assert changed == []
    assert unseen == ("" if how == "kernel" else f"not on Linux {platform.machine()}")


SOUGHT = "os.path.exists('w') or open('w', 'w').write('1')"


@linux_only
@pytest.mark.parametrize(
    ("code", "made"),
    [
        pytest.param(SOUGHT, "w", id="asked about"),
        pytest.param(f"{TRY} open('w')\nopen('w', 'w').write('1')", "w", id="opened in vain"),
        pytest.param("open('w', 'x').write('1')", "w", id="only if it is not there"),
        pytest.param(
            "os.path.exists('w') or open('w.part', 'w').write('1'); os.replace('w.part', 'w'); open('w').read()",
            "w",
            id="moved there",
        ),
        pytest.param("open('.w', 'w').write('1'); os.link('.w', 'w')", "w", id="named so if it is not there"),
        pytest.param("os.mkdir('d'); os.path.exists('d/w') or open('d/w', 'w').write('1')", "d/w", id="within"),
        pytest.param(
            "os.path.exists('d') or os.mkdir('d'); open('d/w', 'w').write('1'); open('d/w').read()",
            "d/w",
            id="unpacked",
        ),
        pytest.param(SHELL.format("test -e w || echo 1 > w"), "w", id="by a subprocess"),
        pytest.param("open('w', 'w').write('1'); open('w').read(); os.path.exists('w')", "", id="made anew each time"),
        pytest.param("os.makedirs('d/e'); open('d/e/w', 'w').write('1')", "", id="in a folder that is made if need be"),
        pytest.param(f"{SOUGHT}; open('w', 'a').write('2')", "", id="a table that grows"),
        pytest.param(f"{SOUGHT}; os.unlink('w')", "", id="gone at the end"),
        pytest.param("os.path.exists('w.log') or open('w.log', 'w').write('1')", "", id="a log"),
        pytest.param(
            "import tempfile\nname = tempfile.mkdtemp() + '/w'\n"
            "os.path.exists(name) or open(name, 'w').write('1'); open(name).read()",
            "",
            id="temporary",
        ),
    ],
)
def test_what_a_model_looked_for_and_made_is_a_condition_of_the_next_build(root: Path, code: str, made: str) -> None:
    sources, _, _, asked = seen_and_asked(root, code)
    states = {name: state for name, state in asked.items() if state.startswith("made as ")}
    assert {*states} == ({made} if made else set())
    assert made not in sources
    if made:
        path, state = root / made, states[made]
        assert state_now(str(path), state) == state
        path.write_text("2")
        assert state_now(str(path), state) != state
        path.unlink()
        assert state_now(str(path), state) == state


@linux_only
@pytest.mark.parametrize(
    "code",
    [
        *("os.listdir('d')", "next(os.walk('d'), ())", "os.open('d', os.O_DIRECTORY)", "os.chdir('d')"),
        *("os.truncate('d', 0)", "os.utime('d')", "os.chmod('d', 0o644)", "os.statvfs('d')", "os.unlink('d')"),
        *("open('d/w', 'w')", "open('d/w', 'a')", "os.mkdir('d/e')", "os.symlink('w', 'd/w')", "os.mkfifo('d/w')"),
        *("os.rename('weights.bin', 'd/w')", "tempfile.TemporaryFile(dir='d')", "tempfile.NamedTemporaryFile(dir='d')"),
        *("os.rmdir('d')", "glob.glob('d/*.t')", "subprocess.run(['ls', 'd'], capture_output=True)"),
    ],
)
def test_what_was_there_when_a_call_needed_it_counts(root: Path, code: str) -> None:
    *_, asked = seen_and_asked(
        root, f"import contextlib, glob, subprocess, tempfile\nwith contextlib.suppress(OSError): {code}"
    )
    assert of_a_step(asked["d"]) == ABSENT


@linux_only
@pytest.mark.parametrize(("code", "state"), [("os.listdir('w')", "file"), ("os.open('d', os.O_DIRECTORY)", "folder")])
def test_what_a_path_was_that_is_opened_as_a_folder_counts(root: Path, code: str, state: str) -> None:
    (root / "w").write_text("1")
    (root / "d").mkdir()
    *_, asked = seen_and_asked(root, f"import contextlib\nwith contextlib.suppress(OSError): {code}")
    assert asked[code.split("'")[1]] == state


@linux_only
def test_nobody_is_asked_about_what_was_made_and_removed(root: Path) -> None:
    code = (
        "import tempfile\nwith tempfile.TemporaryDirectory(dir='.') as name:\n"
        "  open(name + '/a', 'w').close(); os.path.exists(name + '/a'); os.path.exists(name + '/b'); os.listdir('.')"
    )
    *_, asked = seen_and_asked(root, code)
    assert not [name for name in asked if not name.endswith(("py", "so"))]


@linux_only
def test_a_databases_write_ahead_log_is_part_of_it_and_its_name_is_in_no_listing(root: Path) -> None:
    base = sqlite3.connect(root / "base.db")
    base.execute("pragma journal_mode=wal")
    base.execute("create table t (n)")
    base.execute("pragma wal_checkpoint(truncate)")
    found = []
    for number in range(2):
        base.execute("insert into t values (?)", (number,))
        base.commit()
        content = (root / "base.db").stat().st_mtime_ns  # to read it here would let go of the connection's locks
        code = "import sqlite3; sqlite3.connect('base.db').execute('select n from t').fetchall(); os.listdir('.')"
        found.append((content, *map(seen(root, code)[0].get, ("base.db", "./", "base.db-wal"))))
    base.close()
    (content, digest, listing, log), (same_content, other, same_listing, _) = found
    assert (content, listing, log) == (same_content, same_listing, None)
    assert digest != other
    last, _, _ = seen(root, code)
    assert last["./"] == listing


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no such folder")
@pytest.mark.parametrize("how", ["kernel", "refused"])
def test_what_lies_in_shared_memory_counts(root: Path, how: str) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as weights:
        sources, _, _ = seen(root, f"open({weights.name!r}).read(); open('/dev/null').read()", how)
        assert [name for name in sources if name.startswith("/dev/")] == [weights.name]


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize("deed", ["(root / 'weights.bin').write_bytes(b'22')", "(root / 'weights.bin').unlink()"])
def test_what_somebody_changes_after_it_was_read_is_never_taken_for_what_was_read(
    root: Path, deed: str, how: str
) -> None:
    sources, changed, _ = seen(root, "open('weights.bin').read(); somebody_else()", how, deed)
    assert sources["weights.bin"] == "changed while it was read"
    assert changed == [str(root / "weights.bin")]


NEWER = """
import glob, os
from pathlib import Path
for name, time in (("a.pt", 1000), ("b.pt", 2000), ("c.pt", 2000)):
    Path(name).write_text("1")
    os.utime(name, (time, time))
"""
NEWEST = [
    "max(glob.glob('*.pt'), key=os.path.getmtime)",
    "max(Path('.').glob('*.pt'), key=lambda path: path.stat().st_mtime)",
    "[os.path.getmtime(name) for name in ('a.pt', 'b.pt', 'c.pt')]",
]


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize("code", NEWEST)
def test_the_order_of_times_counts_where_a_model_asks_for_them(root: Path, code: str, how: str) -> None:
    subprocess.run([sys.executable, "-c", NEWER], cwd=root, check=True)
    orders = orders_seen(root, f"import glob; {code}", how)
    assert orders == {"b.pt": "changed after a.pt", "c.pt": "changed with b.pt"}
    assert state_now(str(root / "b.pt"), orders["b.pt"]) == orders["b.pt"]
    os.utime(root / "a.pt", (3000, 3000))
    assert state_now(str(root / "b.pt"), orders["b.pt"]) == "changed before a.pt"
    (root / "a.pt").unlink()
    assert state_now(str(root / "b.pt"), orders["b.pt"]) == "absent"


HANDED = _by_a_package("def of_all(give, paths): return [give(path) for path in paths]") + "; of_all({}, {})"
IN_OTHER_WAYS = {
    "entries of a folder": "max(os.scandir('.'), key=lambda entry: entry.stat().st_mtime)",
    "handed to a package": HANDED.format("os.path.getmtime", "['a.pt', 'b.pt', 'c.pt']"),
    "asked in one function and compared in another": (
        "def status(path):\n  return os.stat(path)\n"
        "def newest(paths):\n  return max(map(status, paths), key=lambda one: one.st_mtime)\n"
        "newest(['a.pt', 'b.pt', 'c.pt'])"
    ),
}


@linux_only
@pytest.mark.parametrize("way", IN_OTHER_WAYS)
def test_the_order_of_times_counts_however_they_are_asked_for(root: Path, way: str) -> None:
    subprocess.run([sys.executable, "-c", NEWER], cwd=root, check=True)
    (root / "model.py").write_text(f"import os\n{IN_OTHER_WAYS[way]}\n")
    orders = orders_seen(root, "import runpy; runpy.run_path('model.py')")
    assert orders["b.pt"] == "changed after a.pt"
    assert orders["c.pt"] == "changed with b.pt"


def _alter_later(path: Path, other: Path) -> None:
    """Sets a file's mode until that was later than the other one's: clocks of file systems tick slowly."""
    while path.stat().st_ctime_ns <= other.stat().st_ctime_ns:
        path.chmod(0o600)


@linux_only
def test_the_order_in_which_files_were_altered_counts_apart(root: Path) -> None:
    subprocess.run([sys.executable, "-c", NEWER], cwd=root, check=True)
    a, b, c = (root / name for name in ("a.pt", "b.pt", "c.pt"))
    for older, newer in ((a, b), (b, c)):
        _alter_later(newer, older)
    orders = orders_seen(root, "import glob; max(glob.glob('*.pt'), key=os.path.getctime)")
    assert orders == {"b.pt": "altered after a.pt", "c.pt": "altered after b.pt"}
    _alter_later(a, b)
    assert state_now(str(root / "b.pt"), orders["b.pt"]) == "altered before a.pt"


@linux_only
def test_a_time_that_nobody_asked_for_does_not_count(root: Path) -> None:
    subprocess.run([sys.executable, "-c", NEWER], cwd=root, check=True)
    code = "import glob, linecache; [os.stat(name).st_size for name in glob.glob('*.pt')]; linecache.checkcache()"
    assert orders_seen(root, code) == {}
    ours = _by_a_package("import os; [os.stat(name).st_mtime for name in ('a.pt', 'b.pt')]; os.path.getmtime('c.pt')")
    assert orders_seen(root, ours) == {}


TRIED = """
try:
    open({name!r}).read()
except OSError:
    pass
"""


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize("name", ["best.bin", "later/best.bin"])
def test_what_comes_after_it_was_tried_in_vain_is_never_taken_for_what_was_read(
    root: Path, name: str, how: str
) -> None:
    deed = f"(root / {name!r}).parent.mkdir(exist_ok=True); (root / {name!r}).write_bytes(b'22')"
    sources, changed, _ = seen(root, TRIED.format(name=name) + "somebody_else()", how, deed)
    assert sources[name] == "changed while it was read"
    assert changed == [str(root / name)]


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize(
    "making",
    [
        "open('later/best.bin', 'w').close()",
        "open('temporary', 'w').close(); os.replace('temporary', 'later/best.bin')",
        "os.mkdir('made'); open('made/best.bin', 'w').close(); os.rmdir('later'); os.rename('made', 'later')",
        "os.link('weights.bin', 'later/best.bin')",
        "os.symlink('../weights.bin', 'later/best.bin')",
        "import shutil; shutil.copy('weights.bin', 'later/best.bin')",
        "os.rmdir('later'); os.mkdir('there'); open('there/best.bin', 'w').close(); os.symlink('there', 'later')",
    ],
)
def test_what_a_model_makes_after_it_tried_it_in_vain_is_its_own(root: Path, making: str, how: str) -> None:
    (root / "later").mkdir()
    code = TRIED.format(name="later/best.bin") + f"{making}; open('later/best.bin').read(); somebody_else()"
    _, changed, _ = seen(root, code, how, "(root / 'outputs/x').write_text('1')")
    assert changed == []


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize("deed", ["(root / 'more.txt').write_text('1')", "(root / 'ours.txt').unlink()"])
@pytest.mark.parametrize("code", ["os.listdir('.')", "import glob; glob.glob('*.txt')", "[*Path('.').iterdir()]"])
def test_a_listing_that_somebody_changes_later_is_never_taken_for_what_was_listed(
    root: Path, code: str, deed: str, how: str
) -> None:
    sources, changed, _ = seen(root, f"{code}; somebody_else()", how, deed)
    assert sources["./"] == "changed while it was read"
    assert changed == [str(root)]


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize(
    "doing",
    [
        "open('more.txt', 'w').close(); os.mkdir('more')",
        "os.unlink('ours.txt')",
        "os.rename('ours.txt', 'theirs.txt')",
        "Path('ours.txt').replace('theirs.txt')",
        "import shutil; shutil.rmtree('sources')",
        "import shutil; shutil.copytree('sources', 'copied')",
    ],
)
def test_what_a_model_itself_does_in_a_listed_folder_changes_nothing_of_it(root: Path, doing: str, how: str) -> None:
    code = f"os.listdir('.'); {doing}; somebody_else()"
    sources, changed, _ = seen(root, code, how, "(root / 'outputs/x').write_text('1')")
    assert sources["./"] != "changed while it was read"
    assert changed == []


@linux_only
@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize(
    "question",
    [
        "os.path.exists({!r})",
        "os.path.isfile({!r})",
        "Path({!r}).exists()",
        "Path({!r}).is_file()",
        "os.access({!r}, os.R_OK)",
        "import contextlib\nwith contextlib.suppress(OSError): os.stat({!r})",
        "import contextlib\nwith contextlib.suppress(OSError): open({!r}).read()",
    ],
)
def test_what_the_users_own_code_asks_about_counts_anywhere(root: Path, question: str, made: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as elsewhere:
        name = os.path.join(os.path.realpath(elsewhere), "k.txt")
        if made:
            Path(name).write_text("1")
        sources, _, _, asked = seen_and_asked(root, question.format(name))
        assert name in {**sources, **asked}, (sources, asked)
        other, _, _, as_well = seen_and_asked(root, _by_a_package(f"os.path.exists({name!r})"))
        assert name not in {**other, **as_well}


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
def test_what_a_package_opens_in_vain_for_the_users_own_code_counts_anywhere(root: Path, how: str) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as elsewhere:
        name = os.path.join(os.path.realpath(elsewhere), "last.pt")
        code = f"import contextlib\nwith contextlib.suppress(OSError): {_by_a_package(f'open({name!r})')}"
        sources, _, _ = seen(root, code, how)
        assert sources[name] == ABSENT


HOME = os.path.realpath(os.path.expanduser("~"))
HOLDS_DATA = not (is_temporary(f"{HOME}/x", ()) or is_systems_own(f"{HOME}/x") or "/." in HOME)


@linux_only
@pytest.mark.skipif(not (HOLDS_DATA and os.access(HOME, os.W_OK)), reason="no data may lie in the home folder")
@pytest.mark.parametrize(
    "looked",
    [
        _by_a_package("os.path.exists(name)"),
        "from safetensors import safe_open\ntry: safe_open(name, 'pt')\nexcept OSError: pass",
    ],
    ids=["asked by a library", "opened by Rust"],
)
def test_what_others_look_for_in_vain_counts_where_data_lie(root: Path, looked: str) -> None:
    with tempfile.TemporaryDirectory(dir=HOME) as elsewhere:
        folder = os.path.realpath(elsewhere)
        (Path(folder) / ".cache").mkdir()
        for name, counts in (("last.w", True), (".cache/last.w", False), ("none/last.w", False)):
            path = os.path.join(folder, name)
            sources, _, _, asked = seen_and_asked(root, f"name = {path!r}\n{looked}")
            assert (path in {**sources, **asked}) is counts, name
        path = os.path.join(folder, "later.w")
        deed = f"Path({path!r}).write_text('1')"
        sources, _, _, asked = seen_and_asked(root, f"name = {path!r}\n{looked}\nsomebody_else()", "", deed)
        assert {**asked, **sources}[path] in (ABSENT, "changed while it was read")


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
def test_our_own_runs_count_for_nothing(root: Path, how: str) -> None:
    """A model that looks through its project finds more of them each time."""
    found = []
    for number in (1, 2):
        run = root / "made/2026-11-30" / f"05-17-30-12{number}"
        run.mkdir(parents=True)
        (run / "records.jsonl").write_text("")
        for name, text in (("history.sqlite", ""), (".gitignore", "*")):
            (root / "made" / name).write_text(text)
        latest = root / "made/latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to(run.relative_to(root / "made"))
        code = (
            "import glob; glob.glob('**/*.py', recursive=True); [*Path('.').rglob('*')]; os.path.exists('made/latest')"
        )
        sources, changed, _, asked = seen_and_asked(root, code, how)
        assert not changed
        found.append((sources, asked))
    assert found[0] == found[1]
    (root / "made/2026-11-30/05-17-30").mkdir()  # Hydra's own
    other, _, _, _ = seen_and_asked(root, "os.listdir('made')", how)
    assert other["made/"] != found[0][0]["made/"]


@linux_only
def test_what_is_not_there_beside_what_was_used_counts_anywhere(root: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as elsewhere:
        folder = os.path.realpath(elsewhere)
        Path(folder, "last.txt").write_text("1")
        code = (
            "import posix\nfor one in ('best.txt', 'last.txt'):\n"
            "    try: posix.stat({0!r} + one)\n"
            "    except OSError: continue\n"
            "    os.open({0!r} + one, os.O_RDONLY)"
        )
        sources, _, _, asked = seen_and_asked(root, code.format(folder + os.sep))
        assert (set(sources), set(asked)) == ({f"{folder}/last.txt"}, {f"{folder}/best.txt"})


@linux_only
def test_a_change_is_seen_after_which_size_and_time_are_put_back(root: Path) -> None:
    deed = (
        "path = root / 'weights.bin'; was = path.stat(); path.open('r+b').write(b'2'); "
        "os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))"
    )
    sources, changed, _ = seen(root, "open('weights.bin').read(); somebody_else()", "", deed)
    assert sources["weights.bin"] == "changed while it was read"
    assert changed == [str(root / "weights.bin")]


@linux_only
def test_a_file_that_nobody_can_read_or_find_is_recorded_as_such(root: Path) -> None:
    code = (
        "import contextlib\nfor name in ('gone.bin', 'weights.bin'):\n  with contextlib.suppress(OSError): open(name)"
    )
    sources, _, _ = seen(root, code)
    assert (sources["gone.bin"], len(sources["weights.bin"])) == ("absent", 64)


@pytest.mark.parametrize(
    ("code", "places"),
    [
        (
            "sys.path[:0] = ['over', str(root / 'vendor'), str(root)]; import kept, mine",
            {
                "over/kept": "no module",
                "vendor/kept": "module kept.py",
                "over/mine": "no module",
                "vendor/mine": "no module",
            },
        ),
        (
            "sys.path.insert(0, str(root)); import parted; parted.__path__.insert(0, str(root / 'over')); "
            "import parted.inner",
            {"over/inner": "no module", "parted/inner": "module inner.py"},
        ),
    ],
    ids=["the path", "a package's path"],
)
def test_folders_that_an_import_looked_in_first_count(root: Path, code: str, places: dict[str, str]) -> None:
    for name in ("over", "vendor", "parted"):
        (root / name).mkdir()
    for name in ("vendor/kept.py", "parted/__init__.py", "parted/inner.py"):
        (root / name).write_text("")
    asked = seen_and_asked(root, code)[3]
    assert {name: asked.get(name) for name in places} == places


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
def test_what_a_failed_step_opened_in_vain_counts_wherever_it_would_lie(
    root: Path, how: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = str(tmp_path_factory.mktemp("elsewhere") / "weights.bin")
    code = (
        "threading.excepthook = lambda _: None\n"
        f"one = threading.Thread(target=open, args=({name!r},)); one.start(); one.join()\n"  # for nobody's sake
        f"told = [dict(watched.sources(failed=failed)).get({name!r}) for failed in (False, True, False)]\n"
        "assert told == [None, 'absent', None], told"
    )
    seen(root, code, how)


@linux_only
def test_what_a_failed_step_asked_about_in_vain_counts_wherever_it_would_lie(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("elsewhere")
    name = str(there / "weights.bin")
    code = (
        f"for one in ({name!r}, {str(there)!r}, '/usr/lib/weights.bin'): {_by_a_package('os.path.exists(one)')}\n"
        "watched.sources()\n"
        "told = [{name for name, _ in watched.asked(failed=failed) if name[0] == '/'} for failed in (False, True)]\n"
        f"assert told == [set(), {{{name!r}}}], told"
    )
    seen(root, code)


@linux_only
@pytest.mark.parametrize("how", ["kernel", "refused"])
@pytest.mark.parametrize(
    ("code", "counts"),
    [
        pytest.param("os.open('pipe', os.O_RDWR)", True, id="read"),
        pytest.param("os.path.exists('pipe'); os.open('pipe', os.O_RDONLY | os.O_NONBLOCK)", True, id="asked about"),
        pytest.param("os.symlink('pipe', 'link'); os.open('link', os.O_RDWR)", True, id="through a link"),
        pytest.param("os.open('pipe', os.O_PATH)", False, id="not opened"),
        pytest.param("os.unlink('pipe'); os.mkfifo('pipe'); os.open('pipe', os.O_RDWR)", False, id="made"),
        pytest.param(
            "import contextlib\nwith contextlib.suppress(OSError): os.open('pipe', 2049)", False, id="written"
        ),
        pytest.param("open('nothing').read()", False, id="nothing in a file's place"),
    ],
)
def test_what_comes_through_a_pipe_is_never_taken_for_what_was_read(
    root: Path, code: str, counts: bool, how: str
) -> None:
    os.mkfifo(root / "pipe")
    (root / "nothing").symlink_to("/dev/null")
    sources, _, _ = seen(root, code, how)
    state = sources.get("pipe", "")
    assert (state == PASSING) is counts
    assert not counts or current_digest("pipe", [root], root / "outputs") != state
    assert "nothing" not in sources


@linux_only
def test_a_signal_that_interrupts_an_answer_does_not_hold_the_call_for_ever(root: Path) -> None:
    sources, _, _ = seen(root, "open('weights.bin').read()", "interrupted")
    assert "weights.bin" in sources


@linux_only
@pytest.mark.parametrize(
    "question",
    [
        "os.getxattr('weights.bin', 'user.scale')",
        "os.getxattr(os.open('weights.bin', 0), 'user.scale')",
        "os.listxattr(os.open('weights.bin', 0))",
    ],
)
def test_a_users_extended_attributes_count_beside_the_content(root: Path, question: str) -> None:
    path = root / "weights.bin"
    try:
        os.setxattr(path, "user.scale", b"2")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    _, _, _, asked = seen_and_asked(root, f"open('weights.bin').read(); {question}")
    state = asked["weights.bin"]
    assert state_now(str(path), state) == state != "attributes none"
    os.setxattr(path, "user.scale", b"3")
    assert state_now(str(path), state) != state


@linux_only
@pytest.mark.parametrize(
    ("code", "counts"),
    [
        pytest.param("open(os.path.realpath('{}') + '/w.txt')", True, id="resolved and opened"),
        pytest.param("os.chdir('{}'); open('w.txt')", True, id="entered"),
        pytest.param("os.chdir('{}/.'); open('w.txt')", True, id="entered by another spelling"),
        pytest.param(
            "open('w.txt', opener=lambda *_: os.open('w.txt', 0, dir_fd=os.open('{}', 0o200000)))", True, id="as"
        ),
        pytest.param("os.fchdir(os.open('{}', 0)); open('w.txt')", True, id="entered by its descriptor"),
        pytest.param("open('{}/../v1/w.txt')", True, id="a way up"),
        pytest.param("os.listdir('{}')", True, id="listed"),
        pytest.param("os.path.realpath('{}')", True, id="resolved by the user's own code"),
        pytest.param(_by_a_package("os.path.realpath('{}')"), False, id="resolved by a package, of no use"),
    ],
)
@pytest.mark.parametrize("place", ["outside", "inside"])
def test_a_link_that_chose_what_was_used_counts_wherever_it_lies(
    root: Path, tmp_path_factory: pytest.TempPathFactory, code: str, counts: bool, place: str
) -> None:
    home = root if place == "inside" else tmp_path_factory.mktemp("data").resolve()
    (home / "v1").mkdir()
    (home / "v1" / "w.txt").write_text("1")
    (home / "current").symlink_to("v1")
    name = "current" if place == "inside" else str(home / "current")
    sources, _, _, asked = seen_and_asked(root, code.format(home / "current"))
    linked = asked.get(name) == "link v1" or f"{name}/" in sources
    assert linked is (counts or place == "inside")


@linux_only
@pytest.mark.parametrize(
    ("code", "deed"),
    [
        ("os.listdir('full')", "(root / 'full' / '.hidden').write_text('')"),
        (
            "[one.is_dir() for one in os.scandir('full')]",
            "(root / 'full' / 'a').rmdir(); (root / 'full' / 'a').write_text('')",
        ),
        (
            "[one.is_symlink() for one in os.scandir('full')]",
            "(root / 'full' / 'a').rmdir(); (root / 'full' / 'a').symlink_to('b')",
        ),
        (f"subprocess.run([sys.executable, '-c', {GETDENTS!r}])", "(root / 'full' / 'b').write_text('')"),
    ],
    ids=["hidden", "folder", "link", "by its descriptor"],
)
def test_what_a_listing_tells(root: Path, code: str, deed: str) -> None:
    (root / "full" / "a").mkdir(parents=True)
    code = f"import subprocess\n{code}"
    before, _, _ = seen(root, code)
    exec(deed, {"root": root})
    after, _, _ = seen(root, code)
    assert before["full/"] != after["full/"]


@linux_only
def test_a_link_that_leads_nowhere_that_can_be_asked_is_listed_as_a_link(root: Path) -> None:
    (root / "full").mkdir()
    digests = []
    for target in ("loop", "../full/loop", ""):
        (root / "full" / "loop").unlink(missing_ok=True)
        if target:
            (root / "full" / "loop").symlink_to(target)
        digests.append(seen(root, "import glob; glob.glob('full/*'); list(os.walk('full'))")[0]["full/"])
        assert current_digest("full/", (root,), root / "outputs") == digests[-1]
    assert len({*digests}) == 3


@linux_only
@pytest.mark.parametrize("target", [".", ".."])
@pytest.mark.parametrize(
    "code",
    ["glob.glob('d/**', recursive=True)", "list(os.walk('d', followlinks=True))", "os.listdir('d/b' + '/y' * 40)"],
)
def test_a_folder_that_links_lead_back_to_is_listed_as_it_is_found_again(root: Path, code: str, target: str) -> None:
    (root / "d/b").mkdir(parents=True)
    (root / "d/b/y").symlink_to(target)
    sources, _, _, asked = seen_and_asked(root, f"import contextlib, glob\nwith contextlib.suppress(OSError): {code}")
    result = ActionResult("Reference", "k", sources=tuple(sources.items()), asked=tuple(asked.items()))
    assert list(changes(result, (root,), root / "outputs")) == []
    (root / "d/b/new").mkdir()
    assert (list(changes(result, (root,), root / "outputs")) != []) is any(name.endswith("/") for name in sources)


@linux_only
@pytest.mark.parametrize(
    "code",
    [
        "os.scandir = refuse",
        "import contextlib\n"
        "class One: name, path, is_dir = 'w', f'{root}/full/w', refuse\n"
        "os.scandir = lambda _: contextlib.nullcontext([One])",
    ],
    ids=["the folder", "what is in it"],
)
def test_what_may_not_be_asked_about_ends_no_process(root: Path, code: str) -> None:
    (root / "full").mkdir()
    refuse = "def refuse(*_): raise PermissionError(13, 'Permission denied')"
    assert "full/" in seen(root, f"{refuse}\nos.listdir('full')\n{code}")[0]


def test_a_circle_of_links_on_the_path_is_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.syspath_prepend(tmp_path / "loop")
    assert tmp_path / "loop" not in local_roots()


@linux_only
@pytest.mark.parametrize(
    ("code", "deed"),
    [
        ("os.path.exists('d/w/')", "(root / 'd/w').unlink(); (root / 'd/w').mkdir()"),
        ("os.path.isdir('d/w/.')", "(root / 'd/w').unlink(); (root / 'd/w').mkdir()"),
        (f"{TRY} os.unlink('d/w/')", "(root / 'd/w').unlink(); (root / 'd/w').mkdir()"),
        (f"{TRY} os.stat('d/w/')", "(root / 'd/w').unlink()"),
        ("os.path.exists('d/new/')", "(root / 'd/new').mkdir()"),
        (f"{TRY} os.stat('d/new/')", "(root / 'd/new').touch()"),
        ("os.path.isdir('d/sub/')", "(root / 'd/sub').rmdir()"),
        ("os.path.islink('d/link/')", "(root / 'd/link').unlink()"),
        ("os.path.exists('d/nosuch/../w')", "(root / 'd/nosuch').mkdir()"),
        ("os.path.exists('d/nosuch/..')", "(root / 'd/nosuch').mkdir()"),
        (
            "os.path.exists('d/nosuch/../none')",
            "(root / 'other').mkdir(); (root / 'none').touch(); (root / 'd/nosuch').symlink_to(root / 'other')",
        ),
        (f"{TRY} open('d/nosuch/../w')", "(root / 'd/nosuch').mkdir()"),
        ("os.path.exists('d/w/../w')", "(root / 'd/w').unlink(); (root / 'd/w').mkdir(); (root / 'd/w/w').touch()"),
        ("os.path.exists('d/link/../w')", "(root / 'd/w').unlink()"),
        ("os.path.exists('d/sub/../w')", "(root / 'd/w').unlink()"),
        ("os.path.exists('d/sub/..')", "(root / 'd/sub').rmdir()"),
        ("os.path.exists('d/..')", "(root / 'd').rename(root / 'e')"),
        ("os.path.exists('d/sub/../w')", "(root / 'd/sub').rmdir()"),
        (
            "os.path.exists('d/sub/../none')",
            "(root / 'd/sub').rmdir(); (root / 'd/sub').symlink_to('../full/sub'); (root / 'full/none').touch()",
        ),
        ("os.path.getsize('d/sub/../w')", "(root / 'd/sub').rmdir(); (root / 'd/sub').touch()"),
        ("os.path.exists('d/link/../w')", "(root / 'd/link').unlink()"),
        ("os.path.exists('d/link/../w')", "(root / 'd/link').unlink(); (root / 'd/link').symlink_to('../full/sub')"),
        ("open('d/sub/../w').read()", "(root / 'd/sub').rmdir()"),
        ("open('d/sub/../w').read()", "(root / 'd/w').write_text('456')"),
        ("open('d/link/../w').read()", "(root / 'd/link').unlink(); (root / 'd/link').symlink_to('../full/sub')"),
        ("open('d/sub/../w', 'a').write('4')", "(root / 'd/sub').rmdir()"),
        ("os.listdir('d/sub/..')", "(root / 'd/sub').rmdir()"),
        (SHELL.format("cat d/sub/../w > /dev/null"), "(root / 'd/sub').rmdir()"),
        (SHELL.format("test -e d/sub/in/../../w"), "(root / 'd/sub/in').rmdir()"),
    ],
)
def test_what_was_asked_is_what_is_asked_again(root: Path, code: str, deed: str) -> None:
    (root / "d/sub").mkdir(parents=True)
    (root / "full/sub").mkdir(parents=True)
    (root / "d/link").symlink_to("sub")
    (root / "d/w").write_text("123")
    if "in" in code.split("/"):
        (root / "d/sub/in").mkdir()
    sources, _, _, asked = seen_and_asked(root, code)
    result = ActionResult("Reference", "k", sources=tuple(sources.items()), asked=tuple(asked.items()))
    assert list(changes(result, (root,), root / "outputs")) == []
    exec(deed, {"root": root})
    assert list(changes(result, (root,), root / "outputs")) != []


@linux_only
def test_what_an_editor_leaves_in_a_folder_is_in_no_listing(root: Path) -> None:
    (root / "full").mkdir()
    before, _, _ = seen(root, "os.listdir('full')")
    for name in (".git", ".pytest_cache", ".nfs000", ".DS_Store"):
        (root / "full" / name).mkdir()
    assert seen(root, "os.listdir('full')")[0] == before


@linux_only
def test_a_file_of_a_later_root_is_not_taken_for_one_of_its_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    for name in ("data.txt", "module.py"):
        (second / name).write_text("1")
    names = Names((first, second), ())
    assert names.of(second / "module.py") == "module.py"
    name = names.of(second / "data.txt")
    (first / "data.txt").write_text("1")
    (second / "data.txt").write_text("2")
    assert name is not None
    assert first_of(name, (first, second)) == second / "data.txt"


@linux_only
@pytest.mark.parametrize("code", ["open('data.txt').close()", "os.path.exists('data.txt')", "os.listdir('folder')"])
def test_what_is_gone_is_not_found_in_a_later_root(root: Path, tmp_path: Path, code: str) -> None:
    later = tmp_path / "later"
    for folder in (root, later):
        (folder / "folder").mkdir(parents=True)
        (folder / "data.txt").write_text("1")
    sources, _, _, asked = seen_and_asked(root, code)
    result = ActionResult("Reference", "k", sources=tuple(sources.items()), asked=tuple(asked.items()))
    assert list(changes(result, (root, later), root / "outputs")) == []
    (root / "data.txt").unlink()
    (root / "folder").rmdir()
    assert list(changes(result, (root, later), root / "outputs")) != []


@pytest.mark.parametrize("has_file", [True, False], ids=["a package", "a folder as a package"])
def test_a_package_alike_in_an_earlier_root_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    roots = [tmp_path / "first", tmp_path / "second"]
    for folder in (*roots, roots[1] / "package_alike"):
        folder.mkdir()
    if has_file:
        (roots[1] / "package_alike/__init__.py").write_text("")
    monkeypatch.syspath_prepend(roots[1])
    importlib.import_module("package_alike")
    watched = LoadedFiles(roots, [tmp_path / "store"])
    sources = watched.sources()
    result = ActionResult("Reference", "k", sources=sources, asked=watched.asked())
    assert not any("package_alike" in text for text in changes(result, roots, tmp_path / "store"))
    (roots[0] / "package_alike").mkdir()
    if has_file:
        (roots[0] / "package_alike/__init__.py").write_text("")
    assert any("package_alike" in text for text in changes(result, roots, tmp_path / "store"))
    del sys.modules["package_alike"]


def test_data_of_a_later_root_are_named_by_a_module_there(tmp_path: Path) -> None:
    """A second checkout with the same sources, in the place of the first one on the path, has data of its own."""
    roots = [tmp_path / "here", tmp_path / "one/src", tmp_path / "two/src"]
    for root in roots:
        (root / "data").mkdir(parents=True)
        for name in ("module.py", "data.txt", "data/more.txt", "../w.txt", "../setup.py"):
            (root / name).write_text("1")
    (roots[0] / "module.py").unlink()
    names = Names(roots[:2], ())
    names.find_by([str(roots[1] / "module.py")])
    found = [names.of(roots[1] / "data.txt"), names.of(roots[1] / "data", os.sep), names.of_asked(str(roots[1] / "no"))]
    assert found == ["beside//module//data.txt", "beside//module//data", "beside//module//no"]
    assert names.of(roots[1] / "module.py") == "module.py"
    assert names.of(roots[0] / "data.txt") == "data.txt"
    assert names.of_project(roots[1].parent / "w.txt") == "beside//module//../w.txt"
    assert names.of_project(roots[0] / "data.txt") == "beside//module//../../here/data.txt"
    (tmp_path / "setup.py").unlink()
    assert names.of_project(roots[0] / "data.txt") is None  # what lies beside a project is none of it
    assert names.of_project(roots[1] / "data.txt") is None
    assert names.of_project(roots[1].parent / "setup.py") == "beside//module//../setup.py"
    assert names.of_asked_near(str(roots[1] / "../w.txt")) == "beside//module//../w.txt"
    assert names.of_asked_near(str(roots[1].parent)) is None
    assert names.of_asked_near(str(roots[1] / "data.txt")) is None
    assert names.of_asked_near(str(roots[1].parent / ".venv/lib/site-packages/torch")) is None
    above = Names((tmp_path, roots[1]), ())
    above.find_by([str(roots[1] / "module.py")])
    assert above.of(roots[1].parent / "w.txt") == "one/w.txt"
    assert above.of_project(roots[1].parent / "w.txt") == "beside//module//../w.txt"
    beneath = Names((roots[1].parent, roots[1]), ())
    beneath.find_by([str(roots[1] / "module.py")])
    assert beneath.of_project(roots[1].parent / "w.txt") == "beside//module//../w.txt"
    placed = Names((roots[0], roots[1], roots[2]), ())
    placed.find_by([str(roots[1] / "module.py")])
    found = [placed.of(roots[2] / "data.txt"), placed.of_project(roots[2] / "data.txt")]
    assert found == [str(roots[2] / "data.txt"), "root//2//data.txt"]
    assert placed.of_project(roots[2], f"{os.sep}") == f"root//2//.{os.sep}"
    assert placed.of_asked_near(str(roots[2] / "no")) == "root//2//no"
    assert first_of("root//2//data.txt", (roots[0], roots[2], roots[1])) == roots[1] / "data.txt"
    assert first_of("root//3//data.txt", roots) is None
    for first, second in ((roots[1], roots[2]), (roots[2], roots[1])):
        path = (roots[0], first, second)
        assert first_of("beside//module//data.txt", path) == first / "data.txt"
        assert first_of(f"beside//module//data{os.sep}", path) == first / "data"
        assert first_of("beside//module//../w.txt", path) == first / "../w.txt"
    assert first_of("beside//module//data.txt", roots[:1]) is None
    result = ActionResult("Reference", "k", sources=(("beside//module//data.txt", "other"),))
    told = list(changes(result, roots, tmp_path / "store"))
    assert told == ["file data.txt beside module has changed"]


def test_data_around_the_current_folder_are_named_by_a_module_in_it(tmp_path: Path) -> None:
    """Where that is a project's `src`, or lies in a repository: another checkout has data of its own."""
    files = (
        "one/.git/HEAD",
        "one/common/w.txt",
        "one/app/pyproject.toml",
        "one/app/w.txt",
        "one/app/src/m.py",
        "w.txt",
    )
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    one = tmp_path / "one"
    names = Names((one / "app/src",), ())
    assert names.of_project(one / "app/w.txt") is None
    names.find_by([str(one / "app/src/m.py")])
    places = [one / "app/w.txt", one / "common/w.txt", tmp_path / "w.txt", one / "app/src/w.txt"]
    found = [names.of_project(place) for place in places]
    assert found == ["beside//m//../w.txt", "beside//m//../../common/w.txt", None, None]
    assert names.of_asked_near(str(one / "common/no")) == "beside//m//../../common/no"
    (one / "app/m.py").write_text("")
    flat = Names((one / "app",), ())
    flat.find_by([str(one / "app/m.py")])
    assert flat.of_project(one / "common/w.txt") == "beside//m//../common/w.txt"
    assert flat.of_project(tmp_path / "w.txt") is None
