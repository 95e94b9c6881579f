"""junit.xml, GitHub's annotations, Parquet, JSON Schemas and the HTML report as text: what machines read."""

from __future__ import annotations

import io
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import cell, circumstances, failed, model, passed, write_run
from rich.console import Console

from batch_export.cli import main as cli
from batch_export.judge.verdict import judge
from batch_export.record import Failure, Record, RunFacts
from batch_export.report.annotations import github_lines
from batch_export.report.baseline import baseline_of, write_baseline
from batch_export.report.compare import Comparison, compare
from batch_export.report.formats import FORMATS
from batch_export.report.html import html_report, safe_json
from batch_export.report.html_context import context_of
from batch_export.report.html_data import Bisected, ReportContext, digits, report_data
from batch_export.report.junit import junit_xml
from batch_export.report.markdown import markdown
from batch_export.report.parquet import parquet_bytes
from batch_export.report.redact import shorten
from batch_export.report.rows import row_of
from batch_export.report.run_folder import write_bisected
from batch_export.report.run_folder import write_run as write_planned
from batch_export.report.schemas import encoded, schemas
from batch_export.report.spreadsheet import COLUMNS, csv_text
from batch_export.report.summary import Counts, Summary, summarise
from batch_export.report.table import legend
from batch_export.report.terminal import tell
from batch_export.report.wording import DISTRIBUTION_LEGEND, GLYPHS, cell_text
from batch_export.stages.follow_up_request import Answer

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"
RECORDS = [
    passed(cell("bert", opset=18)),
    failed(cell("bert"), text="no translation for aten.foo <b>&"),
    failed(cell("bert", opset=21), "crash", "SIGSEGV", "the child died"),
    replace(failed(cell("cnn")), verdict="xfail", extra={"reason": "a known bug"}),
    replace(passed(cell("cnn", opset=18)), verdict="xpass", message="passes, though it was expected to fail"),
    Record(cell("gpt"), "skip", message="cuda is not installed"),
    Record(cell("vit"), "missing", message="the run ended before this cell had a record"),
]


def same_as_golden(name: str, text: str) -> None:
    """Compares with tests/golden; `BATCH_EXPORT_GOLDEN=write` writes it, for a reviewed change."""
    path = GOLDEN / name
    if os.environ.get("BATCH_EXPORT_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# JUnit

# The common subset (Jenkins' and Ant's format as GitLab and GitHub's reporters read it), in our own words.
JUNIT_XSD = """<?xml version="1.0"?>
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="outcome" mixed="true">
    <xs:attribute name="message" type="xs:string"/><xs:attribute name="type" type="xs:string"/>
  </xs:complexType>
  <xs:element name="testsuites"><xs:complexType>
    <xs:sequence><xs:element ref="testsuite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attribute name="name" type="xs:string"/><xs:attribute name="time" type="xs:decimal"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger"/>
  </xs:complexType></xs:element>
  <xs:element name="testsuite"><xs:complexType>
    <xs:sequence><xs:element ref="testcase" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/><xs:attribute name="timestamp" type="xs:dateTime"/>
    <xs:attribute name="time" type="xs:decimal"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger"/>
    <xs:attribute name="skipped" type="xs:nonNegativeInteger"/>
  </xs:complexType></xs:element>
  <xs:element name="testcase"><xs:complexType>
    <xs:sequence>
      <xs:choice minOccurs="0" maxOccurs="1">
        <xs:element name="skipped" type="outcome"/><xs:element name="error" type="outcome"/>
        <xs:element name="failure" type="outcome"/>
      </xs:choice>
      <xs:element name="system-out" type="xs:string" minOccurs="0"/>
    </xs:sequence>
    <xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="classname" type="xs:string" use="required"/>
    <xs:attribute name="time" type="xs:decimal"/>
  </xs:complexType></xs:element>
</xs:schema>"""


def test_junit_fits_the_common_schema_and_counts_add_up() -> None:
    xmlschema = pytest.importorskip("xmlschema", reason="xmlschema is not installed")
    text = junit_xml(RECORDS, timestamp="2026-11-21T02:00:00")
    xmlschema.XMLSchema(JUNIT_XSD).validate(text)
    root = ElementTree.fromstring(text.encode())
    assert root.attrib["tests"] == "7"
    assert (root.attrib["failures"], root.attrib["errors"]) == ("2", "2")
    assert sum(int(suite.attrib["tests"]) for suite in root) == 7
    assert sum(len(suite.findall("testcase/failure")) for suite in root) == 2
    assert [e.attrib["message"] for e in root.iter("skipped")] == [
        "expected to fail: a known bug",
        "cuda is not installed",
    ]


def test_junit_is_as_it_was_reviewed() -> None:
    same_as_golden("junit.xml", junit_xml(RECORDS, timestamp="2026-11-21T02:00:00"))


@settings(max_examples=60)
@given(st.text())
def test_junit_survives_every_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # lone surrogates are in no record: JSON cannot hold them
    record = replace(failed(cell("m"), text=text), error_class=text)
    ElementTree.fromstring(junit_xml([record]).encode())


# Markdown, CSV, the data of the HTML report, the table


def golden_records() -> list[Record]:
    """Two models whose failures have one cause, one of them seen again; everything else that a report may show."""
    where = Failure("mismatch", "ValueMismatch", "off", node="n_3", operator="Gemm", source="layers.py:12")
    worst = replace(
        passed(cell()).runs[0].outputs[0],
        worst_index=(1, 3),
        worst_values=("0.25", "0.75"),
        max_ulp=8388608.0,
        outside=5,
        decades=((-7, 20), (-1, 5)),
    )
    off = (RunFacts({"batch": 2}, (worst,)), RunFacts({"batch": 3}, error="Invalid shape", variant="zeros"))
    bad = [
        replace(failed(cell(name, opset=opset), "mismatch", "ValueMismatch", f"y is off by 0.{opset}"), failure=where)
        for name, opset in (("resnet", 20), ("vit_small", 20), ("vit_small", 21))
    ]
    again = Failure("crash", "SIGSEGV", "the child died")
    return [
        *RECORDS,
        *(replace(record, runs=off, max_abs=0.5, log="logs/x.log") for record in bad),
        replace(
            passed(cell("resnet", opset=18), contended=True),
            placement={"CPUExecutionProvider": 50},
            extra={"float64": "not needed: no error uses more than 0.02 of its tolerance"},
        ),
        replace(
            passed(cell("resnet", opset=21)), verdict="flaky", attempts=(again,), message="passed when tried again"
        ),
        *(
            replace(
                passed(cell("noisy", opset=opset), ms=123.4, contended=True),
                max_abs=0.9,
                by_distribution=True,
                extra={"nondeterministic": "eager is not deterministic (y by 0.8)"},
            )
            for opset in (20, 21)
        ),
    ]


def golden_summary() -> Summary:
    summary = summarise(golden_records(), Counts(12.5, 20, 4), "python -m batch_export +sweep=all")
    return replace(summary, stale_exclusions=("model gtp* (slow): matches no cell; the matrix has no model 'gtp*'",))


def golden_comparison() -> Comparison:
    base = [passed(record.cell) for record in golden_records() if record.cell.model != "bert"]
    return compare([*base, passed(cell("lost"))], golden_records(), base_name="latest~1")


def test_markdown_is_as_it_was_reviewed() -> None:
    same_as_golden("summary.md", markdown(golden_records(), golden_summary()))


def test_csv_is_as_it_was_reviewed() -> None:
    same_as_golden("summary.csv", csv_text(golden_records()))


def test_the_data_of_the_html_report_is_as_it_was_reviewed() -> None:
    records = golden_records()
    context = ReportContext(
        models={name: model(name) for name in {record.cell.model for record in records}},
        comparison=golden_comparison(),
        provenance=[("torch", "2.13.0")],
        artifacts="../../store",
        tolerances={"float32": (1e-4, 1e-3)},
        stale=["model x (why): no model has this name"],
        disagreements=["tract alone refuses the file, cpu and openvino run it (bert/full/opset20/core)"],
        run="outputs/2026-11-21/1",
        bisected={
            records[8].cell: Bisected("the sentence", "n_7", "Gemm", "layers.py:12", "blocks.0", "translation: so")
        },
    )
    data = report_data(records, golden_summary(), context)
    same_as_golden("report.json", msgspec.json.format(msgspec.json.encode(data), indent=1).decode() + "\n")


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_is_as_it_was_reviewed(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    records = [*golden_records(), *(passed(cell("many_opsets", "full", opset)) for opset in range(18, 26))]
    tell(console, records, summarise(records, Counts()), Path("outputs/2026-11-21/1"), golden_comparison())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    same_as_golden(f"table-{width}.txt", "".join(f"{line.rstrip()}\n" for line in text.splitlines()))


@pytest.mark.parametrize("width", [80, 160])
def test_marked_cells_are_whole_and_explained_at_every_width(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    random = [
        replace(passed(cell("m" * 40, "full", opset), ms=0.012, contended=True), max_abs=2e-10, by_distribution=True)
        for opset in range(18, 26)
    ]
    tell(console, random, summarise(random, Counts()), Path("outputs/2026-11-21/1"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(len(line) for line in lines if "summary.md" not in line) <= width
    assert "".join(lines).count("✓ 2e-10*~12us") == 8
    assert DISTRIBUTION_LEGEND in lines
    page = html_report(random, summarise(random, Counts()), ReportContext())
    assert DISTRIBUTION_LEGEND.partition("'")[0] in page
    assert DISTRIBUTION_LEGEND.removeprefix("* ") in markdown(random, summarise(random, Counts()))
    plain = [replace(record, by_distribution=False) for record in random]
    counted = summarise(plain, Counts())
    for text in (html_report(plain, counted, ReportContext()), markdown(plain, counted)):
        assert "random model" not in text


def test_a_file_that_holds_for_some_sizes_only_is_marked_everywhere() -> None:
    limited = replace(passed(cell("cnn", "full")), extra={"guards": ["batch <= 100"]})
    other, whole = replace(limited, cell=cell("vit", "batch")), passed(cell())
    assert "✓ 1e-7^" in cell_text(limited, GLYPHS)
    assert "^" not in cell_text(whole, GLYPHS)
    assert "^" not in cell_text(replace(limited, verdict="fail", stage="mismatch"), GLYPHS)
    said = "^ not at every size of its free axes: cnn full, vit batch holds for: batch <= 100"
    records = [limited, other, whole]
    assert said in legend(records)
    assert said in legend([row_of(record) for record in records]), "tables are made of rows"
    assert len(legend([whole])) == 1
    counted = summarise(records, Counts())
    assert "holds for: batch &lt;= 100" in html_report(records, counted, ReportContext())
    assert "not at every size of its free axes" in markdown(records, counted)
    tried = replace(limited, runs=(*limited.runs, replace(limited.runs[0], sizes={"batch": 1})))
    assert judge(tried, model("cnn"), {}, ()).message == "holds for: batch <= 100"


# GitHub


def test_annotations_name_causes_and_stay_on_one_line() -> None:
    where = Failure("translate", "MissingOperator", "no such op", source="models/bert.py:12")
    lines = github_lines([replace(failed(cell(), text="100% wrong\nsecond"), failure=where), failed(cell("cnn"))])
    assert lines[0].startswith("::error file=models/bert.py,line=12,title=bert static opset 20 cpu%3A translate")
    assert lines[0].endswith("::100%25 wrong")
    assert lines[1].startswith("::error title=cnn")
    still = github_lines([failed(cell())], {cell(): "still"})
    assert still[0].startswith("::warning ")
    assert len(github_lines([failed(cell(), text="no " + "x" * i) for i in range(30)])) == 10
    outside = replace(failed(cell()), failure=replace(where, source="/usr/lib/python3/x.py:3"))
    assert "file=" not in github_lines([outside])[0]


# schemas


def test_the_published_schemas_are_current() -> None:
    for name, schema in schemas().items():
        published = (ROOT / "docs" / "schema" / name).read_bytes()
        assert published == encoded(schema), f"run: python -m batch_export.report.schemas docs/schema ({name})"


def test_files_of_a_run_fit_their_schemas(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    made = schemas()

    def fits(name: str, text: bytes | str) -> None:
        jsonschema.Draft202012Validator(made[name]).validate(json.loads(text))

    folder = tmp_path / "2026-11-01" / "1"
    write_run(folder, RECORDS)
    for line in (folder / "records.jsonl").read_text().splitlines():
        fits("record.schema.json", line)
    fits("run.schema.json", (folder / "run.json").read_text())
    fits("summary.schema.json", (folder / "summary.json").read_text())
    write_baseline(tmp_path / "base.json", baseline_of(RECORDS, "x"))
    fits("baseline.schema.json", (tmp_path / "base.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        fits("record.schema.json", '{"cell": {}}')


# Parquet


def test_the_csv_opens_in_pandas_with_numbers_as_numbers() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_csv(io.StringIO(csv_text(RECORDS)))
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == len(RECORDS)
    for name in ("opset", "max_abs", "latency_median_ms", "eager_ms", "nodes"):
        assert pandas.api.types.is_numeric_dtype(frame[name]), name
    assert list(frame["verdict"]) == [record.verdict for record in RECORDS]


def test_parquet_has_the_columns_of_the_csv_with_types(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    (tmp_path / "x.parquet").write_bytes(parquet_bytes(RECORDS))
    table = parquet.read_table(tmp_path / "x.parquet")
    assert tuple(table.column_names) == COLUMNS
    assert (table.num_rows, table.schema.field("opset").type) == (7, pyarrow.int64())
    assert table.column("latency_median_ms").to_pylist()[:2] == [1.0, None]


# HTML


def html(records: list[Record] = RECORDS, **context: Any) -> str:
    models = {name: model(name) for name in {record.cell.model for record in records}}
    return html_report(records, summarise(records, Counts()), ReportContext(models=models, **context))


def test_the_report_is_one_file_that_needs_no_network() -> None:
    text = html()
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|\#|\$|\")[^"'$]*//""", text)
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text
    assert "@import" not in text
    assert text.count("<script") == 2


@settings(max_examples=40)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_no_text_of_a_record_ends_its_element(text: str) -> None:
    payload = safe_json([text, "</script><!--"])
    assert "<" not in payload
    assert msgspec.json.decode(payload) == [text, "</script><!--"]


def test_the_data_holds_every_cell_and_the_story_comes_first() -> None:
    base = [passed(record.cell) for record in RECORDS]
    found = compare(base, RECORDS, base_name="latest~1")
    data = report_data(RECORDS, summarise(RECORDS, Counts()), ReportContext(comparison=found))
    assert len(data["cells"]) == 7
    assert data["story"] == "4 new failures, 1 vanished, 1 declared to fail (against latest~1)"
    assert [entry[0] for entry in data["changes"]] == [change.kind for change in found.changes]
    assert sum(len(cluster[4]) for cluster in data["clusters"]) == 4
    assert data["text"][0] == ""


def test_numbers_are_short() -> None:
    values = (1.23456, 1e-7, float("nan"), float("inf"), None, 5.0)
    assert [digits(value) for value in values] == [1.23, 1e-07, None, None, None, 5]


def test_shared_files_carry_no_home_folder_and_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("SECRET_OF_THE_TEST", "do-not-tell-a-soul")
    bad = failed(cell(), text="File /home/somebody/models/x.py, and /Users/other/y.py")
    bad = replace(bad, failure=replace(bad.failure, source="/home/somebody/models/x.py:3", details="/home/somebody/z"))
    folder = tmp_path / "2026-11-01" / "1"
    write_run(folder, [bad])
    monkeypatch.chdir(tmp_path)
    assert cli.main(["batch_export", "report", str(folder)]) == 1
    for name in ("report.html", "junit.xml"):
        text = (folder / name).read_text()
        assert "~/models/x.py" in text
        assert "somebody" not in text
        assert "do-not-tell" not in text


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/home/me/a and /home/you/b", "~/a and ~/b"),
        ("C:\\Users\\me\\x", "~\\x"),
        ("/homes/x /data/home/x", "/homes/x /data/home/x"),
        ("/root/.cache/x", "~/.cache/x"),
    ],
)
def test_home_folders_become_a_tilde(text: str, short: str) -> None:
    assert shorten(text, home="/root") == short


# the verb


def test_report_renders_one_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "outputs/2026-11-01/1", [passed(cell())])
    for name, start in (("junit", "<?xml"), ("csv", "schema_version,"), ("markdown", "# batch_export"), ("json", "{")):
        assert cli.main(["batch_export", "report", "latest", "--format", name]) == 0
        assert capsys.readouterr().out.startswith(start)
    assert cli.main(["batch_export", "report", "latest", "--format", "html", "-o", "r.html"]) == 0
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    for name, form in FORMATS.items():
        if name != "parquet":
            assert cli.main(["batch_export", "report", "latest", "--format", name, "-o", form.file]) == 0
            assert (tmp_path / form.file).stat().st_size > 100
    assert json.loads((tmp_path / "sarif.json").read_text())["version"] == "2.1.0"
    assert "1 cell: 1 pass" in (tmp_path / "summary.txt").read_text()
    capsys.readouterr()
    assert cli.main(["batch_export", "report", "latest", "--format", "pdf"]) == 2
    assert "invalid choice: 'pdf'" in capsys.readouterr().err


# Markdown


def test_a_large_summary_folds_its_tables_and_stays_below_a_megabyte() -> None:
    many = [passed(cell(f"model_{number}", opset=18 + number % 8)) for number in range(500)]
    many += [failed(cell(f"bad_{number}"), text="x" * (4000 + number)) for number in range(400)]
    text = markdown(many, summarise(many, Counts()))
    assert "<details><summary>Show the table</summary>" in text
    assert len(text.encode()) < 1_048_576
    assert text.endswith("Cut here: the rest is in report.html and summary.csv.\n")


# links


def test_links_start_from_where_the_report_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work" / "outputs" / "2026-11-01" / "1"
    write_run(folder, RECORDS)
    summary = summarise(RECORDS, Counts())
    assert context_of(folder, RECORDS, summary).logs == "."
    away = context_of(folder, RECORDS, summary, place=tmp_path / "site")
    assert (tmp_path / "site" / away.logs).resolve() == folder
    monkeypatch.setenv("HOME", str(tmp_path / "work"))
    hidden = context_of(folder, RECORDS, summary, place=Path("/srv/site"))
    assert (hidden.logs, hidden.artifacts) == ("", "")  # a way there would tell whose home it leads through


# what bisect leaves


def test_a_report_shows_what_bisect_left_beside_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "2026-11-01" / "1"
    bad = [failed(cell(name), "mismatch", "ValueMismatch", "off") for name in ("bert", "cnn", "gpt")]
    write_run(folder, bad)
    number = Answer(
        True, "bert: wrong", {"onnx_node": "n_3", "onnx_operator": "Gemm", "source": None, "blame": "rounding"}
    )
    write_bisected(folder, bad[0].cell, msgspec.json.encode(number))
    export = Answer(True, "cnn: no", {"node": "foo", "operator": "aten.foo", "source": "cnn.py:3"})
    write_bisected(folder, bad[1].cell, msgspec.json.encode(export))
    write_bisected(folder, bad[2].cell, b"{ cut off")
    assert context_of(folder, bad, summarise(bad, Counts())).bisected == {
        bad[0].cell: Bisected("bert: wrong", "n_3", "Gemm", "", "", "rounding"),
        bad[1].cell: Bisected("cnn: no", "foo", "aten.foo", "cnn.py:3"),
    }


# workflows and examples


# Inputs as the actions document them; `None` stands for actions without required ones.
ACTIONS = {
    "actions/checkout@v4": ({"fetch-depth", "ref", "submodules", "lfs"}, set()),
    "actions/setup-python@v5": ({"python-version", "cache", "cache-dependency-path"}, set()),
    "actions/cache/restore@v4": ({"path", "key", "restore-keys", "fail-on-cache-miss", "lookup-only"}, {"path", "key"}),
    "actions/cache/save@v4": ({"path", "key", "upload-chunk-size"}, {"path", "key"}),
    "actions/upload-artifact@v4": ({"name", "path", "if-no-files-found", "retention-days"}, {"path"}),
}


def loaded(path: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_nightly_workflow_gives_its_actions_what_they_take() -> None:
    workflow = loaded(".github/workflows/nightly.yml")
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}  # YAML 1.1 reads `on` as a truth value
    steps = workflow["jobs"]["sweep"]["steps"]
    for step in steps:
        assert ("uses" in step) != ("run" in step), step
        if "uses" in step:
            known, required = ACTIONS[step["uses"]]
            assert required <= set(step.get("with", {})) <= known, step
    by_name = {step.get("name"): step for step in steps}
    restored, kept = by_name["Restore the store and the history"], by_name["Keep the store and the history"]
    assert restored["with"]["path"] == kept["with"]["path"]
    assert restored["with"]["key"] == kept["with"]["key"]
    assert kept["with"]["key"].startswith(restored["with"]["restore-keys"])
    names = [Path(line).name for line in by_name["Report"]["with"]["path"].split()]
    written = {form.file for form in FORMATS.values()} | {"records.jsonl", "run.json", "environment.json"}
    assert set(names) - {"summary.*"} <= written
    after = steps[[step.get("name") for step in steps].index("Sweep") + 1 :]
    assert all(step["if"] == "always()" for step in after), "a red sweep still leaves its report and its store"


def command_lines() -> list[str]:
    """What runners and the hook hand to batch_export, words behind nox's session `sweep`."""
    scripts: list[str] = []
    for name in ("nightly", "checks"):
        for job in loaded(f".github/workflows/{name}.yml")["jobs"].values():
            scripts += [step["run"] for step in job["steps"] if "run" in step]
    jobs = loaded("examples/gitlab/gitlab-ci.yml")
    scripts += [*jobs["nightly"]["script"], *jobs["exports"]["script"]]
    scripts += [loaded("examples/pre-commit/pre-commit-config.yaml")["repos"][0]["hooks"][0]["entry"]]
    found = [re.fullmatch(r"nox (?:-R )?-s sweep -- (.*)", line.strip()) for line in "\n".join(scripts).splitlines()]
    return [line[1] for line in found if line]


def test_the_examples_ask_for_what_exists() -> None:
    gitlab = loaded("examples/gitlab/gitlab-ci.yml")[".sweep"]
    assert gitlab["artifacts"]["reports"]["junit"] == "report/junit.xml"
    assert gitlab["after_script"] == ["cp -rL outputs/latest report"]
    hook = loaded("examples/pre-commit/pre-commit-config.yaml")["repos"][0]["hooks"][0]
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)
    assert re.match(hook["files"], "models/torch_basic.py")
    lines = command_lines()
    assert len(lines) == 11
    for line in lines:
        sweeps = re.findall(r"\+sweep=(\w+)", line)
        assert all((ROOT / "conf" / "sweep" / f"{name}.yaml").is_file() for name in sweeps)
        assert sweeps or re.fullmatch(r"cache gc --max-size \dG", line)


def test_the_repro_command_keeps_the_sweep_its_settings_and_the_users_configs(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "2026-11-01" / "01-00-00-000"
    records = [failed(cell())]
    overrides = (
        "+sweep=nightly",
        "matrix.models=[a]",
        "runner.timeout_s=9",
        "baseline=latest",
        "hydra.run.dir=x",
        "hydra.searchpath=[y]",
    )
    spec = replace(write_run(folder, records), overrides=overrides)
    write_planned(folder, spec, [], "")
    summary = summarise(records, Counts(), "python -m batch_export +sweep=nightly --config-dir 'my conf'")
    assert context_of(folder, records, summary).repro == (
        "python -m batch_export +sweep=nightly runner.timeout_s=9 'hydra.searchpath=[y]' --config-dir 'my conf'"
    )


def test_a_page_that_is_made_elsewhere_names_and_links_what_it_does_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, records = tmp_path / "home", [passed(cell())]
    (home / "outputs" / "store").mkdir(parents=True)
    folder = home / "outputs" / "2026-11-22" / "01-00"
    spec = write_run(folder, records, made=replace(circumstances("2026-11-22T01:00:00"), folder=str(home)))
    write_planned(folder, replace(spec, store_path="outputs/store"), [], "")
    found = []
    for place in (home, tmp_path):
        monkeypatch.chdir(place)
        context = context_of(folder, records, summarise(records, Counts()))
        found.append((context.run, context.artifacts))
    assert found == [("outputs/2026-11-22/01-00", "../../store")] * 2
