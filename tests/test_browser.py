"""The HTML report in a real browser: filters, keys, links, no console errors, accessibility. `nox -s browser`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recording import cell, failed, model, passed

from batch_export.record import Failure, RunFacts
from batch_export.report.compare import compare
from batch_export.report.history import Entry
from batch_export.report.html import html_report
from batch_export.report.html_data import Bisected, ReportContext
from batch_export.report.nights import nights_html
from batch_export.report.summary import Counts, summarise
from batch_export.report.world import About
from batch_export.report.world_page import page as world_page

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path (Debian: apt-get install chromium)")
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (dependency group browser)")


def page_text() -> str:
    cells = [
        cell(name, dynamic, opset)
        for name in ("bert", "cnn", "gpt")
        for dynamic in ("static", "full")
        for opset in (18, 20)
    ]
    base = [passed(where) for where in cells]
    new = [replace(record, max_abs=1e-6) for record in base]
    new[1] = failed(cells[1], text="</script><b>no</b> translation for aten.foo")
    new[5] = failed(cells[5], "mismatch", "ValueMismatch", "off")
    base[6] = failed(cells[6])
    past = [
        Entry(
            *(f"r{n}", f"2026-11-0{n}T01:00", "c", "h", "{}", "fail" if n == 3 else "pass", "", ""),
            *(n * 1e-7, n, 1, 1, n == 4, 3, 2048, 1, n / 4, ""),
        )
        for n in range(1, 6)
    ]
    context = ReportContext(
        models={name: model(name) for name in ("bert", "cnn", "gpt")},
        comparison=compare(base, new),
        history={where.name: past for where in cells},
        artifacts="../../store",
        tolerances={"float32": (1e-4, 1e-3)},
        provenance=[("torch", "2.13.0")],
        stale=["model x (why): no model has this name"],
    )
    return html_report(new, summarise(new, Counts(), "python -m batch_export +sweep=all"), context)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The report, opened from disk; what it says on the console, or asks of the network, fails the test."""
    options = getattr(request, "param", {})
    opened = browser.new_page(
        viewport={"width": options.get("width", 1280), "height": 900}, color_scheme=options.get("scheme", "light")
    )
    said: list[str] = []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda asked: said.append(asked.url) if asked.url.startswith("http") else None)
    path = tmp_path / "report.html"
    path.write_text(page_text(), encoding="utf-8")
    opened.goto(path.as_uri())
    opened.wait_for_selector("html[data-ready]")
    yield opened
    opened.close()
    assert said == []


def test_the_story_and_the_causes_come_first(page: Any) -> None:
    assert page.locator("#story").inner_text() == "2 new failures, 1 fixed (against base)"
    assert page.locator("#clusters li").count() == 2
    assert "</script><b>no</b> translation" in page.locator("#clusters").inner_text()
    assert page.locator("#changes h3").all_inner_texts() == ["New failures (2)", "Fixed (1)"]


def test_what_still_fails_is_no_news_and_folded_away(browser: Any, tmp_path: Path) -> None:
    records = [failed(cell("bert", "static", 20)), failed(cell("bert", "static", 21))]
    context = ReportContext(comparison=compare(records, records))
    path = tmp_path / "report.html"
    path.write_text(html_report(records, summarise(records, Counts()), context), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#changes summary").all_inner_texts() == ["Still failing (2)"]
    assert not page.locator("#changes li").first.is_visible()
    page.locator("#changes summary").click()
    assert page.locator("#changes li").count() == 2
    page.close()


def test_filters_dim_hide_and_reset(page: Any) -> None:
    assert page.locator("#shown").inner_text() == "12 of 12 cells, 3 models"
    page.select_option("#f-verdict", "bad")
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('2 of')")
    assert page.locator("#grid tbody tr").count() == 2
    assert page.locator("#grid td.dim").count() == 6
    page.select_option("#f-verdict", "mark:fixed")
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('1 of')")
    page.locator("button[type=reset]").click()
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('12 of')")
    page.select_option("#f-opset", "20")
    page.wait_for_function("document.getElementById('shown').textContent.startsWith('6 of')")
    assert page.locator("#grid tbody tr").first.locator("td").count() == 2
    page.select_option("#f-opset", "")
    page.fill("#q", "aten.foo")
    page.wait_for_function("document.getElementById('shown').textContent === '1 of 12 cells, 1 model'")
    page.fill("#q", "")
    page.select_option("#sort", "bad")
    page.wait_for_function("document.querySelector('#grid tbody th').textContent === 'bert'")
    assert "pass" in page.locator("#legend").inner_text()
    page.select_option("#shade", "error")
    page.wait_for_selector("#grid td.heat")
    assert page.locator("#grid td.heat").first.inner_text() == "1e-6"
    assert "absolute difference from eager" in page.locator("#legend").inner_text()
    page.select_option("#shade", "latency")
    page.wait_for_function("/(ms|µs)$/.test(document.querySelector('#grid td.heat').textContent)")


def test_the_matrix_is_used_by_keys_alone(page: Any) -> None:
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    first = page.locator("#grid td[tabindex='0']")
    assert first.count() == 1
    first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("cnn/")
    page.keyboard.press("Enter")
    assert page.locator("#cell").evaluate("dialog => dialog.open")
    assert page.locator("#cell-name").inner_text() == label.partition(":")[0]
    page.keyboard.press("Escape")
    assert not page.locator("#cell").evaluate("dialog => dialog.open")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate("document.activeElement.cellIndex") == 1


@pytest.mark.parametrize("page", [{"width": 390}], indirect=True)
def test_on_a_phone_keys_and_eyes_meet_the_matrix_first(page: Any) -> None:
    def sections() -> list[str]:
        found: list[str] = page.evaluate(
            "[...document.querySelectorAll('main > section:not([hidden])')].map((s) => s.id)"
        )
        return found

    first = page.locator("#matrix").bounding_box()["y"], page.locator("#clusters").bounding_box()["y"]
    assert first[0] < first[1]
    page.locator(".about summary").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('section').id") == "matrix"
    assert sections()[0] == "matrix"
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelector('main > section:not([hidden])').id !== 'matrix'")
    assert sections().index("clusters") < sections().index("matrix")


def test_a_cell_has_everything_and_an_address(page: Any) -> None:
    page.goto(page.url.partition("#")[0] + "#cell=" + cell("gpt", "full", 18).name)
    page.wait_for_selector("#cell[open]")
    text = page.locator("#cell").inner_text()
    for part in ("Reproduce", "Stages", "Contract", "Error against eager", "Latency", "History", "File"):
        assert part in text, part
    assert "matrix.models=[gpt]" in text
    assert "95 % interval" in text
    assert page.locator("#cell a").first.get_attribute("href") == "./../../store/models/aa/bb.onnx"
    assert page.locator("#cell svg[role=img]").count() >= 3
    page.locator("[data-close]").click()
    page.locator("#changes a").first.click()
    page.wait_for_selector("#cell[open]")
    assert page.locator("#cell-name").inner_text().startswith("bert/")


def test_a_cell_shows_its_outcomes_and_a_small_trend_of_each_quantity(page: Any) -> None:
    page.goto(page.url.partition("#")[0] + "#cell=" + cell("gpt", "full", 18).name)
    page.wait_for_selector("#cell[open]")
    captions = page.locator("#cell h3:text('History') ~ figure figcaption, #cell .trends figcaption").all_inner_texts()
    trends = [
        "Largest error: 5.0e-7 (1.0e-7 to 5.0e-7)",
        "Latency: 5 ms (1 ms to 5 ms)",
        "Capture and translation: 1.25 s (0.25 s to 1.25 s)",
        "File size: 2 KiB, always",
    ]
    assert [one for one in captions if one] == ["Last 5 runs: 1 bad", *trends]
    assert page.locator("#cell .dot.bad").count() == 1
    latency = page.locator("#cell figure", has_text="Latency: 5 ms").first
    assert latency.locator("circle").count() == 4, "what a busy machine measured is left out"
    page.locator("#cell summary", has_text="Median of the 4 cells of gpt").click()
    assert page.locator("#cell details .trends figcaption").all_inner_texts() == trends


def test_a_suspicion_names_the_command_that_decides(browser: Any, tmp_path: Path) -> None:
    base, new = [passed(cell(), ms=1.0, contended=True)], [passed(cell(), ms=2.4)]
    found = compare(base, new, base_name="latest~1", new_name="latest")
    path = tmp_path / "report.html"
    path.write_text(html_report(new, summarise(new, Counts()), ReportContext(comparison=found)), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert "Perhaps slower, measured on a busy machine (1)" in page.locator("#changes").inner_text()
    assert page.locator("#changes .command pre").inner_text() == (
        "python -m batch_export compare 'latest~1' latest --busy"
    )
    page.close()


def _of_many_models(browser: Any, path: Path, count: int, columns: tuple[int, ...], width: int) -> Any:
    """A report whose last model is a thousand times as slow as the others and has a file a thousand times as large."""
    records = []
    for number in range(count):
        scale = 1000 if number == count - 1 else 1 + number / count
        for opset in columns:
            made = passed(cell(f"model_{number:02}", opset=opset), ms=scale)
            assert made.onnx is not None
            records.append(replace(made, onnx=replace(made.onnx, bytes=int(10_000 * scale)), eager_ms=3.0))
    path.write_text(html_report(records, summarise(records, Counts()), ReportContext()), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    return page


def test_forty_models_need_no_box_that_scrolls_inside_the_page(browser: Any, tmp_path: Path) -> None:
    page = _of_many_models(browser, tmp_path / "report.html", 40, (18, 19, 20), 1280)
    box = page.locator(".scroll")
    assert page.locator("#grid tbody tr").count() == 40
    assert box.evaluate("e => e.scrollHeight - e.clientHeight") <= 1
    assert box.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
    page.close()


@pytest.mark.parametrize(("columns", "width"), [(1, 1280), (45, 1920)])
def test_the_matrix_takes_the_width_that_is_there(browser: Any, tmp_path: Path, columns: int, width: int) -> None:
    page = _of_many_models(browser, tmp_path / "report.html", 4, tuple(range(13, 13 + columns)), width)
    grid, box = page.locator("#grid"), page.locator(".scroll")
    assert grid.evaluate("e => e.offsetWidth") >= 0.85 * width
    assert box.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
    page.close()


def test_one_model_does_not_hide_the_others(browser: Any, tmp_path: Path) -> None:
    page = _of_many_models(browser, tmp_path / "report.html", 6, (18,), 1280)
    for title in (
        "Latency, median (logarithmic)",
        "File size (logarithmic)",
        "Speed-up over eager, median (logarithmic)",
    ):
        figure = page.locator("#plots figure", has_text=title)
        widths = figure.locator("rect").evaluate_all("bars => bars.map((bar) => +bar.getAttribute('width'))")
        assert len(widths) == 6, title
        assert min(widths) > max(widths) / 20, title
    page.close()
    path = tmp_path / "alike.html"
    alike = [passed(cell(name), ms=ms) for name, ms in (("a", 1.0), ("b", 3.0))]
    path.write_text(html_report(alike, summarise(alike, Counts()), ReportContext()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    captions = page.locator("#plots figcaption").all_inner_texts()
    assert "Latency, median" in captions, "where all can be seen the bars are plain"
    page.close()


@pytest.mark.parametrize("page", [{"width": 400}, {"width": 400, "scheme": "dark"}, {"width": 1280}], indirect=True)
def test_nothing_is_wider_than_the_window(page: Any) -> None:
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#grid td[data-i]").nth(1).click()
    page.wait_for_selector("#cell[open]")
    assert page.locator("#cell").evaluate("dialog => dialog.scrollWidth") <= width


LOOKS = [{"scheme": scheme, "width": width} for scheme in ("light", "dark") for width in (1280, 390)]


@pytest.mark.parametrize("page", LOOKS, indirect=True, ids=lambda look: f"{look['scheme']}-{look['width']}")
def test_axe_finds_nothing_to_complain_of(page: Any, tmp_path: Path) -> None:
    page.screenshot(path=tmp_path / "report.png", full_page=True)  # for a person to look at
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = axe.Axe().run(page).response["violations"]
    assert [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found] == []
    page.locator("#grid td.v-fail").first.click()
    page.wait_for_selector("#cell[open]")
    page.evaluate("document.querySelectorAll('#cell details').forEach((d) => { d.open = true; })")
    page.screenshot(path=tmp_path / "cell.png")
    found = axe.Axe().run(page, context="#cell").response["violations"]
    assert [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found] == []


def test_one_cause_over_three_models_is_one_entry_with_one_command(browser: Any, tmp_path: Path) -> None:
    cells = [cell(name, "static", opset) for name in ("bert", "cnn", "gpt") for opset in (18, 20)]
    bad = [failed(where, "mismatch", "ValueMismatch", f"off by {number}") for number, where in enumerate(cells)]
    where = Failure("mismatch", "ValueMismatch", "off", operator="Gemm", source="layers.py:12")
    output = replace(
        passed(cells[0]).runs[0].outputs[0],
        worst_index=(1, 3),
        worst_values=("0.25", "0.75"),
        max_ulp=8388608.0,
        outside=5,
        decades=((-7, 20), (-1, 5)),
    )
    runs = (RunFacts({"batch": 2}, (output,)),)
    new = [passed(cells[0]), *(replace(record, failure=where, runs=runs) for record in bad[1:])]
    found = Bisected(
        "bert: the first wrong value is y" + ", and so are those that follow" * 5,
        "n_3",
        "Gemm",
        "layers.py:12",
        "layers.0",
        "translation: why",
    )
    context = ReportContext(run="outputs/2026-11-21/1", bisected={cells[1]: found})
    path = tmp_path / "report.html"
    path.write_text(html_report(new, summarise(new, Counts()), context), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.locator("#clusters li").count() == 1
    assert page.locator("#clusters [data-open]").count() == 5
    said = page.locator("#clusters li").inner_text()
    assert "5 fail" in said
    assert "First wrong: Gemm · n_3 · layers.py:12" in said
    assert page.locator("#clusters pre").all_inner_texts() == [
        "python -m batch_export bisect bert/static/opset20/cpu/core --run outputs/2026-11-21/1"
    ]
    page.locator("#clusters [data-open]").first.click()
    shown = page.locator("#cell").inner_text()
    for part in (
        "n_3",
        "layers.0",
        "translation: why",
        "the first wrong value is y",
        "Elements by size of their error",
    ):
        assert part in shown, part
    assert page.locator("#worst").inner_text() == (
        "Worst element y[1, 3]: eager 0.25, file 0.75, 8.4e+6 units in the last place apart; "
        "5 of 8 elements beyond the default tolerance of float32."
    )
    assert page.locator("#cell .command pre").count() == 3
    for word in ("Source", "Operator", "Module"):  # beside a long sentence a column keeps room for its words
        row = page.locator("#cell tbody th", has_text=word).first
        assert row.evaluate("e => e.offsetHeight") < 30, word
    number = page.locator("#cell th", has_text="max abs").evaluate("e => getComputedStyle(e).textAlign")
    assert number == "right"
    page.emulate_media(media="print")
    assert not page.locator("#clusters .command button").first.is_visible()
    page.close()


def _night(run: str, verdict: str, latency: float) -> Entry:
    stage = "load" if verdict == "fail" else ""
    made = (run, f"{run[:10]}T03:00", "c", "h", "{}")
    return Entry(*made, verdict, stage, "", 1e-7, latency, 1, 1, False, 3, 10_000, 1, 1, "")


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look['scheme']}-{look['width']}")
def test_the_page_of_many_runs_is_for_everybody_too(browser: Any, tmp_path: Path, look: dict[str, Any]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    runs = [f"2026-11-{day:02}/03-00-00-000" for day in range(1, 31)]
    past = {}
    for where in (cell("bert", opset=18), cell("bert", opset=20), cell("cnn")):
        verdicts = ["fail" if where.opset == 18 and day > 20 else "pass" for day in range(30)]
        past[where.name] = [
            _night(run, verdict, day + 1.0) for day, (run, verdict) in enumerate(zip(runs, verdicts, strict=True))
        ]
    commands = dict.fromkeys(runs, "python -m batch_export +sweep=all")
    path = tmp_path / "nights.html"
    path.write_text(nights_html(past, runs, commands, tmp_path, path), encoding="utf-8")
    size = {"width": look["width"], "height": 900}
    with browser.new_context(viewport=size, color_scheme=look["scheme"], java_script_enabled=True) as context:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.locator("details.model[open]").count() == 1, "models with something bad are open"
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.screenshot(path=tmp_path / "nights.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= look["width"]
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found] == []


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: f"{look['scheme']}-{look['width']}")
def test_five_thousand_architectures_are_searched_and_filtered(
    browser: Any, tmp_path: Path, look: dict[str, Any]
) -> None:
    records = [passed(cell(f"toys:family{n}.Model{n}", dynamic)) for n in range(5000) for dynamic in ("static", "full")]
    records[4243] = failed(records[4243].cell, text="no translation for aten.foo")
    path = tmp_path / "world.html"
    path.write_text(world_page(records, About({"torch": "2.13.0"}, {"toys": 9000})), encoding="utf-8")
    with browser.new_context(
        viewport={"width": look["width"], "height": 900}, color_scheme=look["scheme"], java_script_enabled=True
    ) as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        rows = page.locator("#rows > li")
        assert page.locator("#shown").inner_text() == "5,000 of 5,000 architectures"
        before = rows.count()
        assert before < 1000, "rows are made as they are looked at"
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        page.locator(f"#rows > li:nth-child({before + 1})").wait_for(state="attached")
        page.fill("#search", "family2121 foo")
        assert rows.count() == 1
        rows.locator("summary").click()
        rows.get_by_text("aten.foo").wait_for()  # what is opened is made when the browser says so
        assert "batch-export repro toys:family2121.Model2121/full/" in rows.inner_text()
        page.fill("#search", "")
        page.select_option("#outcome", "fail")
        assert rows.count() == 1
        page.select_option("#outcome", "pass")
        assert page.locator("#shown").inner_text() == "4,999 of 5,000 architectures"
        assert page.evaluate("document.documentElement.scrollWidth") <= look["width"]
        page.fill("#search", "family12")
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not there")
        found = axe.Axe().run(page).response["violations"]
        assert [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found] == []
        assert complaints == []
