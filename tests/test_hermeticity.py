"""Every kind of input, one perturbed after the other: exactly the model that uses it runs again, and `changes` says
why.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy
import pytest
from sweeping import STAGES, by_name, cells, model, sweep

from batch_export.sources.closure import is_installed
from batch_export.sources.recorded import changes
from batch_export.spec import ModelSpec
from batch_export.store import open_store, read_entry

BUILT = {**STAGES, "Reference": "fake_stages.built"}
VARIABLE = "HERMETIC_MODE"
SOURCES = {
    "mine/source.py": "from mine.constants import NUMBER\ndef build(): return NUMBER\n",
    "mine/constants.py": "NUMBER = 1\n",
    "mine/data.py": "from pathlib import Path\ndef build(): return Path('data.txt').read_text()\n",
    "mine/outside.py": "def build(place): return open(place.removeprefix('at ')).read()\n",
    "mine/missing.py": "def build():\n    try: return open('missing.txt').read()\n    except OSError: return 'none'\n",
    "mine/asked.py": "from pathlib import Path\ndef build(): return Path('maybe.w').exists()\n",
    "mine/plugin.py": "import importlib.util\ndef build(): return importlib.util.find_spec('plug' + '_in') is None\n",
    "mine/listing.py": "import os\ndef build(): return os.listdir('shards')\n",
    "mine/folder.py": "from pathlib import Path\ndef build(path): return [p.name for p in Path(path).rglob('*.w')]\n",
    "mine/weights.py": "def build(path): return open(path).read()\n",
    "mine/imports.py": "import importlib\ndef build(): return importlib.import_module('libbar.inner').make()\n",
    "mine/bare.py": "import libbare\ndef build(): return libbare.NUMBER\n",
    "mine/optional.py": "def build():\n    try: import libnew\n    except ImportError: return 0\n    return 1\n",
    "mine/variable.py": f"import os\ndef build(): return os.getenv('{VARIABLE}')\n",
    "mine/in_package.py": "import os\n"
    "def build(packages): return os.path.exists(packages.removeprefix('at ') + '/libloose/more.w')\n",
    "mine/of_library.py": "def build():\n    import libmade\n    return libmade.make()\n",
    "mine/of_session.py": "import os\ndef build(): return os.environ.get('HOSTNAME')\n",
    "mine/every.py": "import os\ndef build(): return sorted(k for k in os.environ if k.startswith('HERMETIC_ALL'))\n",
    "mine/counted.py": "import os\ndef build(): return len(os.environ)\n",
    "mine/shown.py": "import os\ndef build(): return 'HERMETIC_ALL_1' in repr(os.environ)\n",
    "mine/kept.py": "import os\ndef build(): return b'HERMETIC_ALL_1' in os.environ._data\n",
    "mine/program.py": f"import subprocess\ndef build(): return subprocess.getoutput('echo ${VARIABLE}')\n",
    "mine/by_c.py": "import ctypes\ndef build(): return ctypes.CDLL(None).getenv(b'HERMETIC_C') != 0\n",
    "mine/run_by_c.py": "import ctypes\ndef build(): return ctypes.CDLL(None).system(b'test -n \"$HERMETIC_C\"')\n",
    "mine/text_of_all.py": "import posix\ndef build(): return b'HERMETIC_ALL_1' in posix.environ\n",
    "mine/of_process.py": "def build(): return b'HERMETIC_ALL_1' in open('/proc/self/environ', 'rb').read()\n",
    "mine/forked.py": "import os\ndef build():\n"
    "    if not (pid := os.fork()): os._exit('HERMETIC_ALL_1' in os.environ)\n"
    "    return os.waitpid(pid, 0)[1]\n",
    "mine/anew.py": "import os\nfrom multiprocessing import util\n"
    "def build(): return os.waitpid(util.spawnv_passfds(b'/bin/true', [b'true'], ()), 0)[1]\n",
    "mine/version.py": "from importlib.metadata import version\ndef build(): return version('libver')\n",
    "mine/plugins.py": "from importlib.metadata import entry_points\ndef build(): return not entry_points(group='a')\n",
    "mine/where.py": "import os\ndef build(): return os.path.basename(os.getcwd())\n",
    "mine/here.py": "from pathlib import Path\ndef build(): return Path.cwd().name\n",
    "mine/absolute.py": "import os\ndef build(): return open(os.path.abspath('data.txt')).read()\n",
    "mine/child.py": "import os, subprocess, sys\nCODE = 'import libsub, libone'\ndef build():\n"
    "    env = {'PYTHONPATH': os.environ['PYTHONPATH']}\n"
    "    return subprocess.check_output([sys.executable, '-c', CODE], env=env)\n",
    "mine/odd.py": "def build(): return open(b'w\\xff.bin').read()\n",
    "mine/odd_asked.py": "import os\ndef build(): return os.path.exists(b'w\\xfe.bin')\n",
    "mine/odd_listing.py": "import os\ndef build(): return len(os.listdir('odd'))\n",
    "mine/odd_variable.py": "import os\ndef build(): return ascii(os.getenv('HERMETIC_ODD'))\n",
    "mine/bytecode.py": "from compiled import part\ndef build(): return part.NUMBER\n",
    "mine/space.py": "from spaced.deep import part\ndef build(): return part.NUMBER\n",
    "mine/library.py": "import libhub\ndef build(): return open(libhub.folder() + '/w.bin').read()\n",
    "mine/data_of.py": (
        "import importlib.util, os\n"
        "def build(): return open(os.path.dirname(importlib.util.find_spec('libattr').origin) + '/w.txt').read()\n"
    ),
    "mine/found.py": "import importlib.util\ndef build(): return importlib.util.find_spec('libmaybe') is None\n",
    "mine/discovered.py": (
        "import pkgutil, libspace\n"
        "def build(): return sorted(one.name for one in pkgutil.iter_modules(libspace.__path__))\n"
    ),
    "mine/generated.py": (
        "import importlib.util, os\n"
        "def build(): return open(os.path.dirname(importlib.util.find_spec('libattr').origin) + '/made/w.txt').read()\n"
    ),
    "mine/data_only.py": "def build(packages): return open(packages.removeprefix('at ') + '/libdata/w').read()\n",
    "mine/loose.py": "def build(packages): return open(packages.removeprefix('at ') + '/libloose/w.txt').read()\n",
    "mine/download.py": (
        "import os\n"
        "def build():\n"
        "    if not os.path.exists('fetched.w'): open('fetched.w', 'w').write('1')\n"
        "    return open('fetched.w').read()\n"
    ),
    "mine/shadow.py": "import libouter\ndef build(): return libouter.NUMBER\n",
    "mine/resources.py": (
        "from importlib import resources\n"
        "def build(): return sorted(one.name for one in resources.files('kept_data').iterdir())\n"
    ),
    "mine/vendored.py": (
        "import sys\ndef build():\n    sys.path.insert(0, 'vendor')\n    import libonly\n    return libonly.NUMBER\n"
    ),
    "mine/spelled.py": (
        "import os, sys\n"
        "HERE = os.path.dirname(os.path.abspath(__file__))\n"
        "def build():\n"
        "    sys.path[:0] = [os.path.join(HERE, '../first'), os.path.join(HERE, '../second')]\n"
        "    import only_second\n"
        "    return only_second.NUMBER\n"
    ),
    "mine/further.py": (
        "import sys\n"
        "def build(place):\n"
        "    sys.path.append(place.removeprefix('at '))\n"
        "    try: import lib_further\n"
        "    except ImportError: return 0\n"
        "    return 1\n"
    ),
    "mine/spaces.py": (
        "import os, sys\n"
        "def build():\n"
        "    sys.path[:0] = ['first', 'second']\n"
        "    import only_space\n"
        "    return sorted(name for place in only_space.__path__ for name in os.listdir(place))\n"
    ),
    "mine/unpacked.py": ("def build():\n    try: return open('unpacked').read()\n    except OSError: return 'none'\n"),
    "mine/deleted.py": (
        "import os\n"
        "def build():\n"
        "    try: del os.environ['HERMETIC_DELETED']\n"
        "    except KeyError: return 0\n"
        "    return 1\n"
    ),
    "mine/config.py": "def build(size): return size\n",
    "mine/nested_module.py": "def build(made): return made\n",
    "mine/nested_listing.py": "def build(made): return sorted(made)\n",
    "mine/nested_variable.py": "def build(made): return made\n",
    "mine/nested_version.py": "def build(made): return made\n",
    "mine/walked.py": (
        "import glob\ndef build(packages): return glob.glob(packages.removeprefix('at ') + '/libloose/more/*')\n"
    ),
    "mine/beside_it.py": "def build():\n    import libmade\n    return libmade.beside()\n",
    "mine/by_numpy.py": (
        "import numpy\n"
        "def build(packages):\n"
        "    try: return numpy.load(packages.removeprefix('at ') + '/libloose/more.npy').sum()\n"
        "    except FileNotFoundError: return 0\n"
    ),
    "mine/instantiated.py": (
        "from hydra.utils import instantiate\n"
        "def build(): return instantiate({'_target_': 'builtins.float', '_args_': ['2']})\n"
    ),
    "mine/late.py": "import libhub\ndef build(): return libhub.late()\n",
    "mine/forked_listing.py": (
        "import os\n"
        "def build():\n"
        "    reading, writing = os.pipe()\n"
        "    if not (pid := os.fork()):\n"
        "        os.write(writing, b'%d' % len(os.listdir('shards')))\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "    return os.read(reading, 9)\n"
    ),
    "mine/copied.py": "import os\ndef build(): return (dict(os.environ), {**os.environ})[0]['HOME']\n",
    "mine/formatted.py": "import os\ndef build(): return '{SSH_TTY}'.format_map(os.environ)\n",
    "mine/pooled.py": (
        "import os\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "def build():\n"
        "    with ThreadPoolExecutor(1) as pool: return list(pool.map(os.environ.get, ['SSH_TTY']))\n"
    ),
    "mine/expanded.py": "import os\ndef build(): return os.path.expandvars('at $SSH_TTY')\n",
    "mine/bystander.py": "import os\nimport libnone\ndef build(): return os.getenv('HOME')\n",
}
EVERY = {
    "every",
    "counted",
    "shown",
    "kept",
    "program",
    "by_c",
    "run_by_c",
    "text_of_all",
    "of_process",
    "forked",
    "anew",
    "copied",
}
"""Models that went through all variables, or may have."""
# `child` starts another Python, which looks for modules by itself: what is installed, or comes into a root, is its.
EVERY_MODEL = {name.removeprefix("mine/").removesuffix(".py") for name in SOURCES} - {"constants"} | {"package"}
DATA = {"data.txt": "1", "folder/a/b.w": "1", "weights.bin": "1", "shards/1": "", "outside/w.bin": "1"}
DATA |= {"w\udcff.bin": "1", "odd/\udcff": "1", "spaced/deep/part.py": "NUMBER = 1\n"}
DATA |= {"shelf/w.bin": "9", "kept_data/1": ""}
DATA |= {
    "unpacked/part": "",
    "vendor/other.py": "",
    "first/other.py": "",
    "second/only_second.py": "NUMBER = 1\n",
    "second/only_space/1": "",
}
PACKAGES = {
    "libfoo/__init__.py": "def make(): return 1\n",
    "libbar/__init__.py": "",
    "libbar/inner.py": "import os\nMODE = os.environ.get('LIBBAR_MODE')\ndef make(): return MODE\n",
    "libbare/__init__.py": "NUMBER = 1\n",
    "libmade/__init__.py": "import os\nHERE = os.path.dirname(__file__)\n"
    "def make(): return os.path.exists(os.path.join(HERE, 'made.w'))\n"
    "def beside():\n"
    "    import pkgutil\n"
    "    try: return pkgutil.get_data('libmade', 'beside.w')\n"
    "    except OSError: return None\n",
    "libnone.py": "",
    "libouter.py": "from libinner import NUMBER\n",
    "libinner.py": "NUMBER = 1\n",
    "libsub/__init__.py": "",
    "libone.py": "",
    "libattr/__init__.py": "",
    "libattr/w.txt": "1",
    "libattr/made/w.txt": "1",
    "libmaybe/__init__.py": "",
    "libspace/one.py": "",
    "libonly.py": "NUMBER = 1\n",
    "libdata/w": "1",
    "libloose/w.txt": "1",
    "libhub.py": "import os\nHUB = os.getenv('LIBHUB_HOME')\ndef folder(): return os.getenv('LIBHUB_CACHE', HUB)\n"
    "def late():\n    import liblate\n    return liblate.__name__\n",
    "liblate.py": "import os\nALL = sorted(os.environ)\n",
}


def install(packages: Path, name: str, version: str, *, direct: bool = False, build: str = "") -> None:
    """Writes a distribution's metadata, in the place of an older one's.

    Args:
        packages: where.
        name: of the distribution.
        version: its version.
        direct: whether it came from a path.
        build: what all its files hash to.
    """
    for old in packages.glob(f"{name}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    folder = packages / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = [path for path in packages.glob(f"{name}/*") if path.is_file()]
    files = sorted(path.relative_to(packages).as_posix() for path in found)
    (folder / "RECORD").write_text("".join(f"{file},sha256={build},1\n" for file in files or [f"{name}.py"]))
    if direct:
        (folder / "direct_url.json").write_text('{"url": "file:///somewhere", "dir_info": {}}')


@dataclass
class Project:
    """A user's folder with installed packages, its models, and how many sweeps it has seen."""

    root: Path
    models: dict[str, ModelSpec]
    monkeypatch: pytest.MonkeyPatch

    @property
    def packages(self) -> Path:
        return self.root / "venv/site-packages"

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ran(self) -> set[str]:
        """Sweeps, and returns the models whose reference was executed."""
        result = by_name(
            sweep(self.root / "runs", cells(self.models.values(), opsets=(18,)), stages=BUILT, preload=("libhub",))
        )
        assert {record.verdict for record in result.values()} == {"pass"}, [one.message for one in result.values()]
        return {record.cell.model for record in result.values() if record.actions[0].origin == "ran"}

    def reasons(self) -> list[str]:
        """What has changed since results were stored."""
        store = open_store(self.root / "runs/store")
        entries = (read_entry(path) for path in store.actions.glob("*/*.json"))
        roots = (self.root, *(Path(entry) for entry in sys.path if entry and not is_installed(Path(entry))))
        return sorted({text for entry in entries if entry for text in changes(entry.result, roots, store.root)})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    monkeypatch = pytest.MonkeyPatch()
    root = tmp_path_factory.mktemp("hermetic")
    outside = root / "outside"
    root = root / "project"
    packages = root / "venv/site-packages"
    arguments = {
        "folder": {"path": "folder"},
        "weights": {"path": "weights.bin"},
        "outside": {"place": f"at {outside / 'w.bin'}"},
        "further": {"place": f"at {root.parent / 'more'}"},
        "config": {"size": 1},
        "data_only": {"packages": f"at {packages}"},
        "loose": {"packages": f"at {packages}"},
        "in_package": {"packages": f"at {packages}"},
        "walked": {"packages": f"at {packages}"},
        "by_numpy": {"packages": f"at {packages}"},
        "nested_module": {"made": {"_target_": "later_module.read"}},
        "nested_listing": {"made": {"_target_": "glob.glob", "_args_": ["shards/*"]}},
        "nested_variable": {"made": {"_target_": "os.getenv", "_args_": ["HERMETIC_NESTED"]}},
        "nested_version": {"made": {"_target_": "importlib.metadata.version", "_args_": ["libver"]}},
    }
    names = [name.removeprefix("mine/").removesuffix(".py") for name in SOURCES if name != "mine/constants.py"]
    models = {
        name: replace(model(name), target=f"mine.{name}.build", arguments=arguments.get(name, {})) for name in names
    }
    models["package"] = replace(model("package"), target="libfoo.make", arguments={})
    made = Project(root, models, monkeypatch)
    for name, text in {"mine/__init__.py": "", **SOURCES, **DATA}.items():
        made.write(name, text)
    for name, text in PACKAGES.items():
        made.write(f"venv/site-packages/{name}", text)
    (root / "outside").rename(outside)
    (root.parent / "more").mkdir()
    _compile(made, 1)
    install(packages, "libfoo", "1.0")
    install(packages, "libbar", "1.0", direct=True)
    install(packages, "libnone", "1.0")
    install(packages, "libmade", "1.0")
    install(packages, "libver", "1.0")
    install(packages, "libsub", "1.0")
    install(packages, "libone", "1.0")
    install(packages, "libattr", "1.0")
    install(packages, "libdata", "1.0")
    install(packages, "libmaybe", "1.0")
    install(packages, "libhub", "1.0")
    install(packages, "liblate", "1.0")
    monkeypatch.chdir(root)
    second = root / "venv/second/site-packages"
    second.mkdir(parents=True)
    for path in (second, packages, root):
        monkeypatch.syspath_prepend(str(path))
    path = os.pathsep.join([str(root), str(packages), str(second), os.path.dirname(__file__)])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv(VARIABLE, "one secret")
    monkeypatch.setenv("HERMETIC_ODD", "\udcff")
    monkeypatch.setenv("LIBHUB_HOME", str(outside))
    for name in ("EDITOR", "SSH_TTY"):
        monkeypatch.setenv(name, "one")
    assert made.ran() == set(models)
    yield made
    monkeypatch.undo()


def _compile(project: Project, number: int) -> None:
    """Writes a module's bytecode, without its source."""
    project.write("compiled/part.py", f"NUMBER = {number}\n")
    source = project.root / "compiled/part.py"
    py_compile.compile(str(source), str(source.with_suffix(".pyc")))
    source.unlink()


def _config(project: Project) -> None:
    project.models["config"] = replace(project.models["config"], arguments={"size": 2})


def _outside(project: Project) -> None:
    (project.root.parent / "outside/w.bin").write_text("2")


def _newly_installed(project: Project) -> None:
    project.write("venv/site-packages/libnew.py", "")
    install(project.packages, "libnew", "1.0")


def _uninstalled(project: Project) -> None:
    for folder in project.packages.glob("libmaybe*"):
        shutil.rmtree(folder)


def _installed_again_from_its_path(project: Project) -> None:
    project.write("venv/site-packages/libbar/inner.py", PACKAGES["libbar/inner.py"] + "# new\n")
    install(project.packages, "libbar", "1.0", direct=True)


def _moved(project: Project) -> None:
    elsewhere = project.root.parent / "elsewhere"
    shutil.copytree(project.root, elsewhere, ignore=shutil.ignore_patterns("runs", "venv"))
    project.monkeypatch.chdir(elsewhere)


Perturb = Callable[[Project], object]
PERTURBATIONS: dict[str, tuple[set[str], str, Perturb]] = {
    "nothing": (set(), "", lambda project: None),
    "source": (
        {"source"},
        "file mine/constants.py has changed",
        lambda p: p.write("mine/constants.py", "NUMBER = 2 #\n"),
    ),
    "data": ({"data", "absolute"}, "file data.txt has changed", lambda p: p.write("data.txt", "2")),
    "outside": ({"outside", "library"}, "outside/w.bin has changed", _outside),
    "missing": ({"missing"}, "file missing.txt is new", lambda p: p.write("missing.txt", "here")),
    "asked": ({"asked"}, "maybe.w: absent -> file 4", lambda p: p.write("maybe.w", "here")),
    "plugin": ({"child", "plugin"}, "plug_in.py: absent -> file 0", lambda p: p.write("plug_in.py", "")),
    "listing": (
        {"forked_listing", "listing", "nested_listing"},
        "folder shards/ has changed",
        lambda p: p.write("shards/2", ""),
    ),
    "listing by a library": (
        {"resources"},
        "folder kept_data/ has changed",
        lambda p: p.write("kept_data/2", ""),
    ),
    "in place of a package": (
        {"child", "shadow"},
        "libinner: no module -> module libinner.py",
        lambda p: p.write("libinner.py", "NUMBER = 2\n"),
    ),
    "folder": ({"folder"}, "", lambda p: p.write("folder/a/c.w", "new")),
    "weights": ({"weights"}, "file weights.bin has changed", lambda p: p.write("weights.bin", "2")),
    "package": (
        {"child", "package", "plugins"},
        "package libfoo: 1.0 -> 2.0",
        lambda p: install(p.packages, "libfoo", "2.0"),
    ),
    "path install": ({"imports"}, "package libbar: 1.0 ", _installed_again_from_its_path),
    "edited by hand": (
        {"imports"},
        "package libbar: 1.0 ",
        lambda p: p.write("venv/site-packages/libbar/__init__.py", "# by hand"),
    ),
    "without metadata": (
        {"bare"},
        "package libbare: content ",
        lambda p: p.write("venv/site-packages/libbare/__init__.py", "NUMBER = 22\n"),
    ),
    "version": (
        {"child", "version", "nested_version", "plugins"},
        "package libver: 1.0 -> 2.0",
        lambda p: install(p.packages, "libver", "2.0"),
    ),
    "of a process": (
        {"child", "plugins"},
        "package libsub: 1.0 -> 2.0",
        lambda p: install(p.packages, "libsub", "2.0"),
    ),
    "file of a process": (
        {"child", "plugins"},
        "package libone: 1.0 -> 2.0",
        lambda p: install(p.packages, "libone", "2.0"),
    ),
    "data of a package": (
        {"child", "data_of", "generated", "plugins"},
        "package libattr: 1.0 -> 2.0",
        lambda p: install(p.packages, "libattr", "2.0"),
    ),
    "data beside a package's files": (
        {"generated"},
        "libattr/made/w.txt has changed",
        lambda p: p.write("venv/site-packages/libattr/made/w.txt", "2"),
    ),
    "built again": (
        {"bystander"},
        "package libnone: 1.0 is installed with other files",
        lambda p: install(p.packages, "libnone", "1.0", build="2"),
    ),
    "a package of data": (
        {"child", "data_only", "plugins"},
        "package libdata: 1.0 -> 2.0",
        lambda p: install(p.packages, "libdata", "2.0"),
    ),
    "data of nobody's": (
        {"loose"},
        "libloose/w.txt has changed",
        lambda p: p.write("venv/site-packages/libloose/w.txt", "2"),
    ),
    "what it would make again": (set(), "", lambda p: (p.root / "fetched.w").unlink()),
    "what it made is another's now": (
        {"download"},
        "fetched.w: made as ",
        lambda p: p.write("fetched.w", "2"),
    ),
    "in place of what is only found": (
        {"child", "found"},
        "libmaybe: no module -> module libmaybe.py",
        lambda p: p.write("libmaybe.py", ""),
    ),
    "no more in its place, as before": (set(), "", lambda p: (p.root / "libmaybe.py").unlink()),
    "a new version of what is only found": (
        {"child", "plugins"},
        "",
        lambda p: install(p.packages, "libmaybe", "2.0"),
    ),
    "uninstalled": ({"child", "found", "plugins"}, "package libmaybe: __init__.py -> absent", _uninstalled),
    "a folder more of a namespace": (
        {"discovered"},
        "package libspace: ",
        lambda p: p.write("venv/second/site-packages/libspace/three.py", ""),
    ),
    "a module more of a namespace": (
        {"discovered"},
        "libspace/ has changed",
        lambda p: p.write("venv/site-packages/libspace/two.py", ""),
    ),
    "newly installed": ({"child", "optional", "plugins"}, "package libnew: absent -> content ", _newly_installed),
    "variable": (
        {"variable", *EVERY},
        f"environment variable {VARIABLE} has another value",
        lambda p: p.monkeypatch.setenv(VARIABLE, "two"),
    ),
    "a file in a package's folder that the user's own code missed": (
        {"in_package"},
        "libloose/more.w: absent -> file 1",
        lambda p: (p.packages / "libloose" / "more.w").write_text("1"),
    ),
    "a file beside itself that a library's function missed": (
        {"of_library"},
        "libmade/made.w: absent -> file 1",
        lambda p: (p.packages / "libmade" / "made.w").write_text("1"),
    ),
    "a file beside itself that a library's function missed by its loader": (
        {"beside_it"},
        "libmade/beside.w: absent -> file 1",
        lambda p: (p.packages / "libmade" / "beside.w").write_text("1"),
    ),
    "a folder in a package's that was listed in vain": (
        {"walked"},
        "libloose/more: absent -> folder",
        lambda p: p.write("venv/site-packages/libloose/more/1", ""),
    ),
    "a file in a package's folder that the toolchain missed for the user": (
        {"by_numpy"},
        "libloose/more.npy: absent -> file ",
        lambda p: numpy.save(p.packages / "libloose" / "more.npy", numpy.ones(2)),
    ),
    "a module that an argument names": (
        {"child", "nested_module"},
        "later_module: no module -> module later_module.py",
        lambda p: p.write("later_module.py", "def read(): return 2\n"),
    ),
    "a variable that an argument names": (
        {"nested_variable", *EVERY},
        "environment variable HERMETIC_NESTED has another value",
        lambda p: p.monkeypatch.setenv("HERMETIC_NESTED", "1"),
    ),
    "a variable of the session, in a text": (
        {"expanded", "formatted", "pooled"},
        "environment variable SSH_TTY has another value",
        lambda p: p.monkeypatch.setenv("SSH_TTY", "another"),
    ),
    "a variable of the session, by its name": (
        {"of_session"},
        "environment variable HOSTNAME has another value",
        lambda p: p.monkeypatch.setenv("HOSTNAME", "another"),
    ),
    "another variable of the session": (set(), "", lambda p: p.monkeypatch.setenv("EDITOR", "another")),
    "any variable": (
        EVERY,
        "environment variable (any: all were read) has another value",
        lambda p: p.monkeypatch.setenv("HERMETIC_ALL_1", "1"),
    ),
    "a package's variable": (
        {"imports", *EVERY},
        "environment variable LIBBAR_MODE has another value",
        lambda p: p.monkeypatch.setenv("LIBBAR_MODE", "1"),
    ),
    "odd name": ({"odd"}, r"file bytes//w\xff.bin has changed", lambda p: p.write("w\udcff.bin", "2")),
    "odd name asked": (
        {"odd_asked"},
        r"bytes//w\xfe.bin: absent -> file 4",
        lambda p: p.write("w\udcfe.bin", "here"),
    ),
    "odd name listed": ({"odd_listing"}, "folder odd/ has changed", lambda p: p.write("odd/\udcfe", "")),
    "odd variable": (
        {"odd_variable", *EVERY},
        "environment variable HERMETIC_ODD has another value",
        lambda p: p.monkeypatch.setenv("HERMETIC_ODD", "\udcfe"),
    ),
    "namespace": (
        {"space"},
        "file spaced/deep/part.py has changed",
        lambda p: p.write("spaced/deep/part.py", "NUMBER = 22\n"),
    ),
    "bytecode without a source": ({"bytecode"}, "file compiled/part.pyc has changed", lambda p: _compile(p, 2)),
    "a module before an installed one, in a folder that the model put on the path": (
        {"vendored"},
        "vendor/libonly: no module -> module libonly.py",
        lambda p: p.write("vendor/libonly.py", "NUMBER = 2\n"),
    ),
    "a module in an earlier folder, found by a path with a way up": (
        {"spelled"},
        "first/only_second: no module -> module only_second.py",
        lambda p: p.write("first/only_second.py", "NUMBER = 2\n"),
    ),
    "a module that was looked for outside": (
        {"further"},
        "more/lib_further: no module -> module lib_further.py",
        lambda p: (p.root.parent / "more/lib_further.py").write_text(""),
    ),
    "a part of a namespace in a folder that the model put on the path": (
        {"spaces"},
        "first/only_space: absent -> folder",
        lambda p: p.write("first/only_space/2", ""),
    ),
    "a file in the place of a folder that was opened": (
        {"unpacked"},
        "unpacked: folder -> file 4",
        lambda p: (shutil.rmtree(p.root / "unpacked"), p.write("unpacked", "here")),
    ),
    "a variable that was deleted": (
        {"deleted", *EVERY},
        "environment variable HERMETIC_DELETED has another value",
        lambda p: p.monkeypatch.setenv("HERMETIC_DELETED", "1"),
    ),
    "start of Python": (
        EVERY_MODEL,
        "what starts with Python, sitecustomize: absent -> content ",
        lambda p: p.write("venv/site-packages/sitecustomize.py", ""),
    ),
    "local start of Python": (
        EVERY_MODEL,
        "sitecustomize: no module -> module sitecustomize.py",
        lambda p: p.write("sitecustomize.py", "import builtins\n"),
    ),
    "edited start of Python": (
        EVERY_MODEL,
        "file sitecustomize.py has changed",
        lambda p: p.write("sitecustomize.py", "import builtins # edited\n"),
    ),
    "a library's folder": (
        {"library", "outside", *EVERY},
        "environment variable LIBHUB_HOME has another value",
        lambda p: p.monkeypatch.setenv("LIBHUB_HOME", str(p.root / "shelf")),
    ),
    "another variable for a library's folder": (
        {"library", *EVERY},
        "environment variable LIBHUB_CACHE has another value",
        lambda p: p.monkeypatch.setenv("LIBHUB_CACHE", str(p.root.parent / "outside")),
    ),
    "folder's name": (
        {"child", "plugins", "where", "here"},
        "the current folder, whose name was asked for, is another one",
        _moved,
    ),
    "hashing": (
        EVERY_MODEL,
        "environment variable PYTHONHASHSEED has another value",
        lambda p: p.monkeypatch.setenv("PYTHONHASHSEED", "7"),
    ),
    "no more asserts": (
        EVERY_MODEL,
        "environment variable PYTHONOPTIMIZE has another value",
        lambda p: p.monkeypatch.setenv("PYTHONOPTIMIZE", "1"),
    ),
    "asserts again, as before": (set(), "", lambda p: p.monkeypatch.delenv("PYTHONOPTIMIZE")),
    "config": ({"config"}, "", _config),
}


OF_EVERY_MODEL = ("local start of Python", "edited start of Python", "hashing")
"""Two alike are in every run: all models run again, which takes its time."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.ops] * (kind in OF_EVERY_MODEL)) for kind in PERTURBATIONS]
)
def test_exactly_what_is_concerned_runs_again(project: Project, kind: str) -> None:
    concerned, reason, perturb = PERTURBATIONS[kind]
    perturb(project)
    reasons = project.reasons()
    assert not reason or any(reason in text for text in reasons), reasons
    assert project.ran() == concerned


def test_no_value_of_a_variable_is_stored(project: Project) -> None:
    entries = list((project.root / "runs/store/actions").rglob("*.json"))
    assert any(VARIABLE in path.read_text() for path in entries)
    assert not any("secret" in path.read_text() for path in entries)


def test_what_was_made_of_what_came_through_a_pipe_is_not_used_again(project: Project) -> None:
    for folder in {project.root, Path.cwd()}:
        (folder / "mine/pipe.py").write_text(
            "import os\ndef build(): return os.read(os.open('pipe', os.O_RDONLY), 1)\n"
        )
    os.mkfifo("pipe")
    handle = os.open("pipe", os.O_RDWR)
    os.write(handle, b"12")
    project.models["pipe"] = replace(project.models["data"], name="pipe", target="mine.pipe.build")
    assert "pipe" in project.ran()
    assert "file pipe is a pipe or a device, of which nobody can read again what was read" in project.reasons()
    assert project.ran() == {"pipe"}
    del project.models["pipe"]
    os.close(handle)
