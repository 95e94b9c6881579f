"""SECURITY.md, claim by claim: what is read is data, names lead nowhere, texts stay texts, secrets are not written."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import torch
from recording import cell, failed, passed, write_run
from rich.console import Console
from sweeping import Listener, cells, model, sweep
from test_store import put_result

from batch_export.errors import SaveError, StoreError
from batch_export.exporter.program.checkpoint import load
from batch_export.record import Failure, OnnxFacts, Record
from batch_export.report.html import html_report
from batch_export.report.html_context import context_of
from batch_export.report.html_data import ReportContext
from batch_export.report.junit import junit_xml
from batch_export.report.markdown import markdown
from batch_export.report.sarif import sarif_text
from batch_export.report.spreadsheet import csv_text
from batch_export.report.summary import Counts, summarise
from batch_export.report.terminal import tell
from batch_export.runner.stored_models import stored_model
from batch_export.runner.units import Unit
from batch_export.store import open_store

ROOT = Path(__file__).parents[1]
SECRET = "do-not-tell-a-soul-7f3a"
HOSTILE = (
    "=cmd|' /C calc'!A0",
    "+SUM(1)",
    "-1+1",
    "@SUM(1)",
    "\t=1+1",
    "\r\n=1+1",
    "\uff1d1+1",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{ 7 * 7 }} ${7*7} %(x)s",
    "]]><!-- & &amp; \x00 \x0b \U0001f600",
    "[click](javascript:alert(1)) ![x](http://evil.example/x.png)",
    "| a | b |\n|---|---|",
    "\x1b]0;title\x07\x1b[31mred",
    "::error file=x::y %0A",
    "../../../../etc/passwd",
    "a" * 5000,
)


def hostile(text: str) -> Record:
    """A failing record with the text wherever a text can be."""
    where = replace(cell(), model=text, dynamic=text, provider=text, exporter=text)
    failure = Failure("translate", text, text, details=text, source=f"{text}:3", node=text, operator=text)
    return replace(
        failed(where, "translate", text, text), failure=failure, findings=(failure,), log=text, extra={"reason": text},
        onnx=OnnxFacts(text, text, 1, 20, 1), placement={text: 1},
    )  # fmt: skip


class Evil:
    """A pickle that leaves a file behind when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


# what is read is data


def test_a_checkpoint_runs_no_code_when_it_is_read(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "x": Evil(tmp_path / "was_here")}, tmp_path / "evil.pt")
    with pytest.raises(SaveError, match="could not be read: UnpicklingError"):
        load(tmp_path / "evil.pt")
    assert not (tmp_path / "was_here").exists()


@pytest.mark.parametrize("name", ["../outside.pt", "/etc/passwd", "a/b.pt"])
def test_the_index_of_a_checkpoint_names_files_beside_it_only(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    torch.save({"w": torch.ones(1)}, tmp_path / "outside.pt")
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(SaveError, match="names files outside of its folder"):
        load(index)


def test_nothing_of_ours_unpickles_or_evaluates() -> None:
    """Calls that run what they are given: a repro is a program (SECURITY.md); guards are what torch has just made of
    the model that is being exported, and are not read from anywhere.
    """
    found: set[str] = set()
    for path in (ROOT / "batch_export").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                if {"pickle", "cloudpickle", "marshal", "shelve", "dill"} & {name.partition(".")[0] for name in names}:
                    found.add(path.name)
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
            unsafe = called in ("eval", "exec", "yaml.load", "yaml.unsafe_load", "os.system", "os.popen")
            unsafe |= called == "torch.load" and keywords.get("weights_only") != "True"
            unsafe |= keywords.get("allow_pickle") == "True" or keywords.get("shell") == "True"
            if unsafe:
                found.add(path.name)
    assert found == {"attempt.py", "guards.py", "guard_points.py", "guard_symbols.py"}


# names lead nowhere


@pytest.mark.parametrize("name", [text for text in HOSTILE if text])
def test_no_name_leads_out_of_the_folder_of_logs(tmp_path: Path, name: str) -> None:
    unit = Unit(f"{name}/static/core", ())
    assert (tmp_path / unit.log_name).resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("key", ["../../secret", "/etc/passwd", "a/b", "", ".."])
def test_a_key_that_is_none_is_no_path(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="is not the key of an action"):
        open_store(tmp_path).entry_path(key)
    folder = tmp_path / "outputs" / "2026-11-01" / "1"
    write_run(folder, [passed(cell())])
    (folder.parent / "secret.json").write_text("{}")
    assert key not in context_of(folder, [], summarise([], Counts())).realised


@pytest.mark.parametrize("path", ["../outside.onnx", "/etc/hostname", "models/../../outside.onnx", "link.onnx"])
def test_a_record_from_elsewhere_names_no_file_outside_of_the_store(tmp_path: Path, path: str) -> None:
    store = open_store(tmp_path / "store")
    (tmp_path / "outside.onnx").write_text("secret")
    (store.root / "link.onnx").symlink_to(tmp_path / "outside.onnx")
    for digest in ("a" * 64, "../../outside", "*"):
        record = passed(cell(), onnx=OnnxFacts(path, digest, 1, 20, 1))
        with pytest.raises(LookupError, match="is no longer in the store"):
            stored_model(record, store)
    result = put_result(store, "a", tmp_path)
    assert result.model is not None
    inside = store.model_path(result.model)
    here = passed(cell(), onnx=OnnxFacts(inside.relative_to(store.root).as_posix(), result.model.onnx, 1, 20, 1))
    assert stored_model(here, store) == inside


# texts stay texts


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_is_only_a_text_in_every_report(text: str) -> None:
    record = hostile(text)
    summary = summarise([record], Counts(), command=text)
    (row,) = csv.DictReader(io.StringIO(csv_text([record]), newline=""))
    assert not [value for value in row.values() if re.match(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", value)]
    page = html_report([record], summary, ReportContext())
    assert page.count("<script") == 2
    assert not re.search(r"<(img|svg)\b[^>]*on(error|load)", page.replace("\\u003c", "("))
    assert "\\u003c/script" in page or "</script" not in text
    root = ElementTree.fromstring(junit_xml([record]))
    assert [child.tag for child in root] == ["testsuite"]
    log = json.loads(sarif_text([record], ROOT, text))
    message = log["runs"][0]["results"][0]["message"]["text"]
    assert not re.search(r"(?<!\\)\]\(", message), "a link in SARIF"
    shown = markdown([record], summary)
    fenced = re.sub(r"^(`{3,})text\n.*?\n\1$", "", shown, flags=re.S | re.M)
    body = re.sub(r"(?m)^  `[^`\n]*`$", "", fenced)  # code holds no markup
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)\b)", body), "HTML in Markdown"
    assert not re.search(r"(?<!\\)\]\(", body), "a link in Markdown"
    stream = io.StringIO()
    tell(Console(file=stream, width=200, force_terminal=False), [record], summary, Path("run"))
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", stream.getvalue()), "control characters on a terminal"


def page_sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "page" / "src").glob("*.ts")))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(
    "names", ['"javascript:alert(1)", "x"', '"javascript:alert(1)//", ""', '"", "javascript:alert(1)"']
)
def test_the_address_of_a_file_is_never_a_script(names: str) -> None:
    script = (ROOT / "batch_export" / "report" / "templates" / "report.js").read_text(encoding="utf-8")
    escape = re.search(r"var escape = .*;", script)
    address = re.search(r"function relativeAddress\(.*?\n  \}", script, re.DOTALL)
    assert escape is not None
    assert address is not None
    code = f"""{escape[0]}
    {address[0]}
    const made = relativeAddress({names}).replace(/&#39;/g, "'");
    console.log(new URL(made, "https://run.example/a/b").href)"""
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("https://run.example/")


def test_links_of_the_report_are_relative() -> None:
    found = re.findall(r'href="([^"]*)"', page_sources())
    assert len(found) == 3
    for address in found:
        assert address.startswith(("#", "${relativeAddress(")), address


# secrets stay where they are


def test_no_environment_variable_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("A_TOKEN_OF_THE_TEST", SECRET)
    work = cells([model("fine"), model("bad", do={"Capture": "raise"}), model("dead", do={"Capture": "segfault"})])
    listener = Listener()
    result = sweep(tmp_path, work, listener=listener)
    assert {record.verdict for record in result.records} == {"pass", "fail"}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in written)
    for path in written:
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in msgspec.json.encode([listener.messages, *map(str, listener.records)]).decode()
    assert os.environ["A_TOKEN_OF_THE_TEST"] == SECRET
