"""The documentation: its site has every page once, its glossary every key, and its commands run as they stand.

Where commands of a page stand beside one another as examples, each is carried out on made-up runs; sweeps are planned.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml
from recording import cell, passed, write_run

from batch_export.cli.known import verbs
from batch_export.cli.main import main
from batch_export.config import model as model_config

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
RUN = [DOCS / "tutorial.md", *sorted((DOCS / "how_to").glob("*.md"))]
"""Pages whose commands are run: in each, files are written and commands typed from the top to the bottom."""

_FENCE = re.compile(
    r"^(?P<indent> *)(?:<!-- exit (?P<code>\d+) -->\n *)?"
    r'```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: a file when it has a title, commands when it is of bash."""

    language: str
    title: str
    text: str
    code: int


def blocks(page: Path) -> list[Block]:
    found = []
    for match in _FENCE.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(match["language"], match["title"] or "", text, int(match["code"] or 0)))
    return found


class _Loader(yaml.SafeLoader):
    """Names of Python functions, which the site's configuration holds, are texts."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)


def pages_of(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    values = node.values() if isinstance(node, dict) else node
    return [page for value in values for page in pages_of(value)]


def test_every_page_is_on_the_site_once() -> None:
    site = yaml.load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    assert site["strict"] is True
    assert site["theme"]["font"] is False, "the site asks no other server for anything"
    assert [page for page in DOCS.rglob("*.md") if "```mermaid" in page.read_text(encoding="utf-8")] == [], "as above"
    there = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(pages_of(site["nav"])) == there


def test_the_glossary_has_every_key() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    keys = {*model_config.RESERVED_KEYS, "dtype", "shape", "range", "fill", "value", "example", "check", "atol", "rtol"}
    for path in (PROJECT / "conf" / "provider").glob("*.yaml"):
        keys |= set(yaml.safe_load(path.read_text(encoding="utf-8"))) - {"defaults"}
    assert not [key for key in sorted(keys) if f"`{key}`" not in text]


def test_what_looks_like_a_command_is_run() -> None:
    for page in RUN:
        shown = blocks(page)
        assert any(block.language == "bash" for block in shown), page
        for block in shown:
            assert block.language != "text" or "python -m" not in block.text, f"{page}: not run: {block.text}"


def test_the_pictures_are_there() -> None:
    for page in DOCS.rglob("*.md"):
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), f"{page}: {link}"


PIP = """#!/bin/sh
echo "pip $*" >> "$TOOL_LOG"
"""
NEW_ENVIRONMENT = """#!/bin/sh
test "$1 $2" = "-m venv" && mkdir -p "$3/bin" && cp "$TOOLS/pip" "$TOOLS/python" "$3/bin" && touch "$3/bin/activate"
"""


def environment(folder: Path) -> dict[str, str]:
    """Tools of this test first on the path: nothing is installed, `python` is this one."""
    tools = folder / "tools"
    tools.mkdir()
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for name, text in (("python", python), ("python3.11", NEW_ENVIRONMENT), ("pip", PIP)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "OMP_NUM_THREADS": "1",
        "TOOLS": str(tools),
        "TOOL_LOG": str(folder / "tools.log"),
        "GITHUB_STEP_SUMMARY": str(folder / "step_summary.md"),
    }


def typed(page: Path) -> list[tuple[str, int]]:
    """What a reader types and writes, as pieces of one shell script, each with its exit code."""
    pieces: list[tuple[str, int]] = []
    for block in blocks(page):
        if block.title:
            folder = os.path.dirname(block.title) or "."
            text = block.text.removesuffix("\n")
            pieces.append((f"mkdir -p '{folder}' && cat > '{block.title}' <<'END_OF_FILE'\n{text}\nEND_OF_FILE", 0))
            if block.title.startswith(".github/workflows/"):
                jobs = yaml.safe_load(block.text)["jobs"].values()
                steps = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
                pieces += [(step.strip(), 0) for step in steps]
        elif block.language == "bash":
            lines = block.text.strip().splitlines()
            pieces += [(line, 0) for line in lines[:-1]] + [(lines[-1], block.code)]
    return pieces


OTHERS = [
    page
    for page in (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
    if page not in RUN
]
"""Pages whose commands stand beside one another, as examples; `commands` are the ones that name a program of ours."""
_COMMAND = re.compile(r"(?:\.venv\S*/bin/)?(?P<words>(?:python -m (?:batch_export|benchmarks\.)|nox\b)\S*.*)")
_BUILDS_MUCH = ("sweep=world", "transformers:")
_INSTALLS = ("create", "doctor", "remove")


def commands(page: Path) -> list[list[str]]:
    """The commands of a page's blocks, without what is said beside them."""
    lines = [line for block in blocks(page) if block.language in ("text", "bash") for line in block.text.splitlines()]
    found = [match["words"] for line in lines for part in line.split(" && ") if (match := _COMMAND.match(part.strip()))]
    return [shlex.split(re.split(r"\s{2,}|\s#", text)[0]) for text in found]


def made_small(words: list[str]) -> list[str]:
    """What a test executes of a command of ours: a sweep is planned, or composed where planning builds much."""
    if words[0] in verbs() or words[0] == "--help":
        return [*words, "--help"] if words[0] == "env" and words[1] in _INSTALLS else words
    overrides = [word for word in words if word not in ("-q", "--last-failed")]
    if any(sign in word for word in overrides for sign in _BUILDS_MUCH):
        return [*overrides, "--cfg", "job"]
    return ["plan", *overrides]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages' examples speak of: runs, shards, a file, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for where in ("outputs/2026-11-22/01-00-00-000", "outputs/2026-11-22/02-00-00-000"):
        write_run(tmp_path / where, [passed(cell("bert"))])
    for number, name in ((1, "bert"), (2, "cnn")):
        run = tmp_path / f"shard{number}" / "2026-11-22" / "01-00-00-000"
        write_run(run, [passed(cell(name))], shard=f"{number}/2")
        (run.parents[1] / "latest").symlink_to(run)
    (tmp_path / "outputs" / "latest").symlink_to(tmp_path / "outputs" / "2026-11-22" / "02-00-00-000")
    graph = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) {y = Relu(x)}'
    onnx.save(onnx.parser.parse_model(graph), tmp_path / "m.onnx")
    (shown,) = re.findall(r"^```yaml\n(_target_.*?)^```", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "my_conf" / "model").mkdir(parents=True)
    (tmp_path / "my_conf" / "model" / "tiny.yaml").write_text(shown)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in OTHERS if commands(page)], ids=lambda page: page.stem)
def test_the_commands_of_every_other_page_can_be_typed(page: Path, prepared: Path) -> None:
    sessions = re.findall(r"@nox.session(?:\(.*\))?\ndef (\w+)", (PROJECT / "noxfile.py").read_text())
    for words in commands(page):
        if words[0] == "nox":
            assert words[2:3] in [[name] for name in ("", *sessions)] or len(words) == 1, words
        elif words[2].startswith("benchmarks."):
            file = PROJECT / "benchmarks" / f"{words[2].partition('.')[2]}.py"
            assert file.is_file(), words
            text = file.read_text(encoding="utf-8")
            assert [flag for flag in words if flag.startswith("--") and f'"{flag}"' not in text] == [], words
        else:
            try:
                code = main(["batch-export", *made_small(words[3:])])
            except SystemExit as ended:
                code = int(ended.code or 0)
            assert code == 0, words


@pytest.mark.docs
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    pieces = typed(page)
    script = "\n".join(f'{piece}\necho "@@ $?"' for piece, _ in pieces)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    parts = re.split(r"^@@ (\d+)$", done.stdout, flags=re.MULTILINE)
    said, codes = parts[0::2], [int(code) for code in parts[1::2]]
    wrong = [
        f"$ {piece}\n{output}\nexit code {code}, and the page means {meant}"
        for (piece, meant), output, code in zip(pieces, said, codes, strict=False)
        if code != meant
    ]
    assert not wrong, "\n".join(wrong)
    assert len(codes) == len(pieces)
