"""`runner.keep_alive`: the server that stays serves what would come out the same, nobody else, and leaves nothing."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from run_processes import RunProcess, wait_until
from sweeping import STAGES, Listener, cells, model, sweep

from batch_export.cli.doctor import _staying
from batch_export.cli.main import main
from batch_export.config.run import _runner
from batch_export.errors import RunError, UsageError
from batch_export.numbers.tolerances import Tolerance
from batch_export.runner.launcher import Launcher, Staying, environment_of_children
from batch_export.runner.staying import circumstances, client, place
from batch_export.runner.staying.messages import Question
from batch_export.runner.staying.reading import Reading
from batch_export.runner.staying.server import Server
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import MatrixSpec, RunnerSpec, RunSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")

LIBRARY = """
import importlib.metadata, os, shutil, tempfile
import library_part
try:
    import library_extra
except ImportError:
    pass
folder = os.path.dirname(__file__)
with open(os.path.join(folder, "weights.bin")) as stream:
    WEIGHTS = stream.read()
SIZES = os.listdir(os.path.join(folder, "sizes"))
VERSION = importlib.metadata.version("a_distribution")
os.makedirs(os.path.join(folder, "cache"), exist_ok=True)
with open(os.path.join(folder, "cache", "table")) as stream:
    TABLE = stream.read()
scratch = tempfile.mkdtemp(dir=folder)
with open(os.path.join(scratch, "mine"), "w+") as stream:
    stream.write("1")
with open(os.path.join(scratch, "mine")) as stream:
    MINE = stream.read()
os.listdir(scratch)
IS_FAST = os.path.exists(os.path.join(folder, "fast"))
shutil.rmtree(scratch)
"""
SWEEPS = """
import sys
from pathlib import Path
from sweeping import cells, model, sweep

folder = Path(sys.argv[1])
work = cells([model("m", marker=str(folder / "marker"), do={"Reference": sys.argv[2]})], (18,))
try:
    sweep(folder, work, run="run", keep_alive="1h")
except KeyboardInterrupt:
    pass
"""


@dataclass
class Home:
    """A user's folders: `sources` is importable, `packages` is where packages are installed."""

    folder: Path
    sources: Path
    packages: Path
    toolchain: Toolchain

    def serve(self, *preload: str, idle_s: float = 3600.0) -> int | None:
        """Starts and ends a command that has the library preloaded; returns the server, None when it had its own."""
        said: list[str] = []
        staying = Staying(idle_s, self.toolchain, said.append)
        launcher = Launcher(self.folder, preload or ["library"], [str(self.sources)], staying=staying)
        try:
            launcher.start()
            assert (launcher._server is None) == (not said), said
            print(*said)  # why none stays, beside a failure
            return server() if launcher._server is None else None
        finally:
            launcher.close()


def server() -> int | None:
    with place.opened() as there:
        return there.holder()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    made = Home(tmp_path, tmp_path / "sources", tmp_path / "site-packages", Toolchain({"torch": "2"}, {}, {}, {}))
    (made.sources / "sizes").mkdir(parents=True)
    (made.sources / "sizes" / "small").touch()
    (made.sources / "cache").mkdir()
    (made.sources / "cache" / "table").write_text("1")
    (made.sources / "library.py").write_text(LIBRARY)
    (made.sources / "library_part.py").write_text("PART = 1\n")
    (made.sources / "weights.bin").write_text("0.5")
    (made.packages / "a_distribution-1.0.dist-info").mkdir(parents=True)
    (made.packages / "a_distribution-1.0.dist-info" / "METADATA").write_text("Name: a_distribution\nVersion: 1.0\n")
    monkeypatch.setenv(place.ROOT_VARIABLE, str(tmp_path / "server"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(made.packages), str(Path(__file__).parent)]))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.chdir(made.folder)
    yield made
    client.stop()


def test_the_next_command_is_served_by_the_same_server(home: Home) -> None:
    first = home.serve()
    assert first is not None
    (home.folder / "outputs").mkdir()  # which a run makes in the current folder
    (home.sources / "builder.py").write_text("def build(): ...\n")  # of the user's, never preloaded
    (home.sources / "conf").mkdir()
    assert home.serve() == first


def edited_in_place(home: Home) -> None:
    """Keeps size and time of modification."""
    file = home.sources / "library_part.py"
    status = file.stat()
    file.write_text("PART = 2\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(home: Home) -> None:
    (home.folder / "new").write_text(LIBRARY + "\n")
    (home.folder / "new").replace(home.sources / "library.py")


def upgraded(home: Home) -> None:
    (home.packages / "a_distribution-1.0.dist-info" / "METADATA").write_text("Name: a_distribution\nVersion: 1.1\n")


def reinstalled(home: Home) -> None:
    (home.packages / "a_distribution-1.0.dist-info").rename(home.packages / "a_distribution-2.0.dist-info")


EDITS: dict[str, Callable[[Home], object]] = {
    "a source is edited": edited_in_place,
    "a source is replaced": replaced,
    "a source is gone": lambda home: (home.sources / "library_part.py").unlink(),
    "a package takes a module's place": lambda home: (home.sources / "library_part").mkdir(),
    "a module appears that was looked for": lambda home: (home.sources / "library_extra.py").touch(),
    "a module appears that comes before": lambda home: (home.folder / "library.py").touch(),
    "a weights file is edited": lambda home: (home.sources / "weights.bin").write_text("0.6"),
    "a file in a folder that it would have made": lambda home: (home.sources / "cache" / "table").write_text("2"),
    "a file appears that was asked about": lambda home: (home.sources / "fast").touch(),
    "a listed folder has one more file": lambda home: (home.sources / "sizes" / "large").touch(),
    "a distribution's metadata change": upgraded,
    "a distribution is installed": reinstalled,
    "a module appears among the packages": lambda home: (home.packages / "library_extra.py").touch(),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_anything_that_was_preloaded_ends_the_server(edit: str, home: Home) -> None:
    first = home.serve()
    assert first is not None
    EDITS[edit](home)
    toolchain, environment = home.toolchain, environment_of_children([str(home.sources)])
    found = client.status(client.question_of(environment, ["library"], toolchain, 1.0, session=False))
    assert found is not None
    assert found.answer is not None
    assert found.answer.differs
    assert all(name.startswith(f"{home.folder}{os.sep}") for name in found.answer.differs), found.answer.differs


def change_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))


@pytest.mark.parametrize("what", ["variable", "folder", "limit", "umask", "preload", "version", "sources"])
def test_what_children_take_over_from_the_command_is_the_servers_identity(
    what: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = environment_of_children([])
    before = circumstances.circumstances(environment, ["library"], home.toolchain)
    assert (
        circumstances.differences(before, circumstances.circumstances(environment, ["library"], home.toolchain)) == []
    )
    preload, toolchain = ["library"], home.toolchain
    limit, mask = resource.getrlimit(resource.RLIMIT_NOFILE), os.umask(0o022)
    os.umask(mask)
    try:
        if what == "variable":
            environment = {**environment, "TORCH_LOGS": "secret"}
        elif what == "folder":
            monkeypatch.chdir(home.sources)
        elif what == "limit":
            change_limit()
        elif what == "umask":
            os.umask(mask ^ 0o007)
        elif what == "preload":
            preload = ["library", "library_part"]
        elif what == "version":
            toolchain = Toolchain({"torch": "3"}, {}, {}, {})
        else:
            toolchain = Toolchain({"torch": "2"}, {"Capture": "0" * 64}, {}, {})
        found = circumstances.differences(before, circumstances.circumstances(environment, preload, toolchain))
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    names = {
        "variable": "environment variable TORCH_LOGS",
        "folder": "current folder",
        "limit": "limit RLIMIT_NOFILE",
        "umask": "the process's Umask",
        "preload": circumstances.PRELOADED,
        "version": "version of torch",
        "sources": "sources of batch_export",
    }
    assert found == [names[what]]


def test_another_variable_starts_another_server(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    first = home.serve()
    monkeypatch.setenv("SHLVL", "17")  # a terminal in a terminal
    assert home.serve() == first
    monkeypatch.setenv("LIBRARY_SETTING", "on")
    assert home.serve() not in (None, first)


def test_what_changed_before_the_watch_began_is_found_too(tmp_path: Path) -> None:
    code = """
        import os, sys, time, json
        sys.path.insert(0, sys.argv[1])
        import seen_early
        from batch_export.runner.staying.reading import Reading
        reading = Reading(int(sys.argv[2]))
        reading.watch()
        reading.finish()
        print(json.dumps(list(reading.changed())))
    """
    (tmp_path / "seen_early.py").touch()
    changed_ns = (tmp_path / "seen_early.py").stat().st_ctime_ns
    for began_ns, expected in ((changed_ns + 3_600_000_000_000, []), (changed_ns, [str(tmp_path / "seen_early.py")])):
        with RunProcess("\n".join(line[8:] for line in code.splitlines()), tmp_path, began_ns) as run:
            assert run.process.stdout is not None
            assert [
                name for name in json.loads(run.process.stdout.read()) if name.startswith(str(tmp_path))
            ] == expected


def test_a_server_does_not_stay_where_code_of_the_users_starts_with_python(home: Home) -> None:
    (home.sources / "sitecustomize.py").touch()
    listener = Listener()
    staying = Staying(3600.0, home.toolchain, listener.message)
    launcher = Launcher(home.folder, [], [str(home.sources)], staying=staying)
    launcher.start()
    launcher.close()
    assert len(listener.messages) == 1
    assert "could not be started: sitecustomize, which every start of Python imports" in listener.messages[0]
    assert server() is None


def test_a_sweep_sees_new_sources_and_is_served_by_the_server_of_the_one_before(home: Home) -> None:
    stage = (
        "import library\nfrom fake_stages import reference\n"
        "def execute(bench):\n"
        "    open({!r}, 'a').write(library.WEIGHTS + {!r})\n    return reference.execute(bench)\n"
    )
    said = home.folder / "said"
    servers = []
    sys.path.insert(0, str(home.sources))
    try:
        for name, mine, weights in (("a", " one,", "0.5"), ("b", " two,", "0.5"), ("c", " two,", "0.6")):
            (home.sources / "my_stage.py").write_text(stage.format(str(said), mine))
            if (home.sources / "weights.bin").read_text() != weights:
                (home.sources / "weights.bin").write_text(weights)
            listener = Listener()
            stages = {**STAGES, "Reference": "my_stage"}
            work = cells([model(name)], (18,))
            done = sweep(home.folder, work, listener=listener, preload=["library"], stages=stages, keep_alive="1h")
            assert [record.verdict for record in done.records] == ["pass"]
            assert listener.messages == []
            servers.append(server())
    finally:
        sys.path.remove(str(home.sources))
    assert said.read_text() == "0.5 one,0.5 two,0.6 two,"
    assert servers[0] is not None
    assert servers[1] == servers[0]
    assert servers[2] not in (None, servers[0])
    wait_until(lambda: not Path(f"/proc/{servers[0]}").exists())


@pytest.mark.parametrize("way", ["killed", "interrupted"])
def test_nothing_but_the_server_is_left_of_a_command_that_ends_early(way: str, home: Home) -> None:
    with RunProcess(SWEEPS, home.folder, "hang_with_helper") as run:
        wait_until(lambda: len(run.others()) == 5)  # server, session, keeper, child and its helper
        stays = server()
        if way == "killed":
            run.kill()
        else:
            run.process.send_signal(signal.SIGINT)
            assert run.process.wait() == 0
        wait_until(lambda: run.others() == [stays])
    resumed = sweep(home.folder, cells([model("m", marker=str(home.folder / "marker"))], (18,)), run="run")
    assert [record.verdict for record in resumed.records] == ["pass"]
    assert server() == stays
    assert client.stop() == stays
    assert run.others() == []


def test_a_run_goes_on_when_its_server_is_ended(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with RunProcess(SWEEPS, home.folder, "hang") as run:
        wait_until(lambda: len(run.others()) == 4)
        stays = server()
        assert main(["batch-export", "stop"]) == 0
        assert capsys.readouterr().out == f"ended the server that stayed, process {stays}\n"
        assert main(["batch-export", "stop"]) == 0
        assert capsys.readouterr().out == "no server stays between commands\n"
        assert len(run.others()) == 3, "session, keeper and child"
        assert stays not in run.others()
        run.kill()
        run.require_nothing_left()


def test_the_server_ends_by_itself(home: Home) -> None:
    assert home.serve(idle_s=1e-6) is not None
    wait_until(lambda: server() is None)


def test_the_time_without_a_command_counts(home: Home) -> None:
    now = [100.0]
    with place.opened() as there:
        tested = Server(there, Question({}, {}, 60.0, False), Reading(0), None, lambda: now[0])  # type: ignore[arg-type]
    assert tested.left_s() == 60.0
    now[0] = 159.0
    assert tested.left_s() == 1.0
    tested._sessions.add(1)
    now[0] = 1000.0
    assert tested.left_s() is None
    tested._sessions.clear()
    assert tested.left_s() == 0.0


def test_a_folder_of_others_is_not_used(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place._root() / place._machine()
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    listener = Listener()
    done = sweep(home.folder, cells([model("m")], (18,)), listener=listener, keep_alive="1h")
    assert [record.verdict for record in done.records] == ["pass"]
    assert len(listener.messages) == 1
    assert "open to other users. Next step: `chmod 700" in listener.messages[0]
    folder.chmod(0o700)
    monkeypatch.setattr(place.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RunError, match="open to other users"), place.opened():
        pass
    monkeypatch.undo()


def test_another_users_process_is_not_talked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert place.peer_of(ours) == os.getpid()
        monkeypatch.setattr(place.os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(RunError, match="belongs to user"):
            place.peer_of(ours)


def test_words_that_nobody_understands_are_passed_over(home: Home) -> None:
    first = home.serve()
    with place.opened() as there:
        for said in (b"", b"nothing", (2).to_bytes(8, "big") + b"{}", (1 << 60).to_bytes(8, "big")):
            connection = there.connect()
            assert connection is not None
            with connection:
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""
    assert home.serve() == first


def test_a_library_that_cannot_be_preloaded_is_said_as_without_a_server(home: Home) -> None:
    (home.sources / "library.py").write_text("raise ValueError('this library is broken')\n")
    listener = Listener()
    launcher = Launcher(
        home.folder, ["library"], [str(home.sources)], staying=Staying(60.0, home.toolchain, listener.message)
    )
    with pytest.raises(RunError, match="this library is broken"):
        launcher.start()
    launcher.close()
    assert "could not be started: its log is" in listener.messages[0]
    assert server() is None


@pytest.mark.parametrize(("keep_alive", "variable"), [("", ""), ("0", ""), ("1h", "true")])
def test_no_server_stays_unless_it_was_asked_for_and_never_in_ci(
    keep_alive: str, variable: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", variable)
    done = sweep(home.folder, cells([model("m")], (18,)), keep_alive=keep_alive)
    assert [record.verdict for record in done.records] == ["pass"]
    assert server() is None


def test_a_span_that_is_none_is_said() -> None:
    assert _runner({"keep_alive": "1.5h"}).keep_alive == "1.5h"
    with pytest.raises(
        UsageError, match=r"runner.keep_alive: '10 years' is not a span of time; .* such as 10m; 0 is off"
    ):
        _runner({"keep_alive": "10 years"})


def test_doctor_tells_of_the_server(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    spec = RunSpec(
        MatrixSpec((), (), (), (), ()), RunnerSpec(), MeasureSpec(), {"float32": Tolerance(0.1, 0.0)}, "", ""
    )
    assert [finding.what for finding in _staying(spec)] == [
        "no server stays between commands (runner.keep_alive is off)"
    ]
    first = home.serve()
    (finding,) = _staying(spec)
    assert finding.what.startswith(
        f"server that stays between commands: process {first}, 0 runs at work, ends after 3600 s"
    )
    (home.sources / "weights.bin").write_text("0.6")
    (finding,) = _staying(spec)
    assert "the next run starts another one, as this has changed: " in finding.what
