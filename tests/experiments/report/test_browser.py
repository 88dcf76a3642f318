"""Reports in headless Chromium: nothing clipped or too small at any width, light and dark; what a click does."""

import os
import re
import warnings
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from clip_geometry import measure
from clip_geometry_experiments.report.gallery import TextTable
from clip_geometry_experiments.report.page import Section, write_report
from clip_geometry_experiments.run.runner import run
from support.browser import SMALLEST_LETTERS, WIDTHS, chromium, faults_of, letters_of, opened, refusing_injections

CONFIGS = Path(__file__).parents[3] / "configs"
EVERY = [str(path.relative_to(CONFIGS).with_suffix("")) for path in sorted(CONFIGS.rglob("*.yaml"))]
SEEN = ["quickstart", "tyshchuk2023/isotropy"]
# one of each paper, sweeps, and those whose reports are unlike the others
UNLIKE = [
    "cai2021/contextual", "mickus2024/init_scale", "rudman2024/finetune", "rudman2024/stability",
    "tyshchuk2023/initialization", "tyshchuk2023/joint_distribution", "tyshchuk2023/semantic_map",
    "train_cifar100", "train_multilingual", "train_scenes_arms",
]  # fmt: skip
HEAVIEST = 1.6  # MB of the quickstart's page
SLOWEST = 1500  # ms until it is loaded

OPEN = "document.querySelectorAll('details').forEach((each) => (each.open = true))"
# axe-core takes seconds for thousands of cells, which are alike
FEWER = "document.querySelectorAll('.data tr:nth-child(n+4), .measures [hidden]').forEach((each) => each.remove())"
HEADINGS = """[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((each) => each.checkVisibility())
  .map((each) => [Number(each.tagName[1]), each.textContent.trim()])"""


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def report_of(tmp_path_factory):
    """The smoke report of a config, made once; with CLIP_GEOMETRY_SMOKE, the one that .ci/run has made there."""
    before, made = os.environ.get("CLIP_GEOMETRY_SMOKE"), {}
    runs = tmp_path_factory.mktemp("runs")

    def report(name: str) -> Path:
        if before and name not in made:
            (made[name],) = Path(before).glob(f"{name.replace('/', '-')}-smoke-*/report.html")
        elif name not in made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of maps and classifiers on so few rows
                made[name] = run(CONFIGS / f"{name}.yaml", {}, smoke=True, runs=runs, device="cpu")
        return made[name]

    return report


def ids(names):
    return [name.replace("/", "-") for name in names]


@pytest.mark.parametrize("name", [SEEN[0], *(pytest.param(n, marks=pytest.mark.slow) for n in [*SEEN[1:], *UNLIKE])])
def test_nothing_is_wrong_at_any_width_light_and_dark(browser, report_of, name):
    """By axe-core on the widest screen and on a phone; dark on the widest only, since it changes only colors."""
    found = []
    for width in WIDTHS:
        with opened(browser, report_of(name), width=width) as page:
            faults = faults_of(page, axe=False)
            page.evaluate(OPEN)
            faults += faults_of(page, axe=False)
            if width in (WIDTHS[0], WIDTHS[-1]):
                page.evaluate(FEWER)
                faults += faults_of(page)
            if width == WIDTHS[0]:
                page.emulate_media(color_scheme="dark")
                faults += [f"dark: {fault}" for fault in faults_of(page)]
            found += [f"{width} px: {fault}" for fault in faults]
    assert found == []


@pytest.mark.parametrize("name", [SEEN[0], *(pytest.param(n, marks=pytest.mark.slow) for n in [*SEEN[1:], *UNLIKE])])
def test_figures_are_readable_on_a_phone(browser, report_of, name):
    with opened(browser, report_of(name), width=390) as page:
        figures = page.locator("figure img").all()
        assert figures
        for image in figures:
            svg = b64decode(image.get_attribute("src").partition(",")[2]).decode()
            assert letters_of(image, svg) >= SMALLEST_LETTERS, image.get_attribute("alt")


def test_on_a_phone_tables_show_all_columns(browser, tmp_path):
    grid = TextTable(
        title="Repairs",
        columns=("repair", ">both", ">mrr", ">hit_at_10", ">cross_r_at_1", ">neighbors", "verdict"),
        rows=[["posterior", *["0.576 ± 0.020"] * 5, "costs nothing"], ["none", *["0.500 ± 0.001"] * 5, "baseline"]],
        marked=[True, False],
    )
    cells = {"label": "BERT", "published": "5.6", "ours": "5.73 ± 0.08", "difference": "0.1", "cause": "other rows"}
    line = SimpleNamespace(first=True, how="all-MiniLM", size="1,000 × 384", setup="A", **cells)
    beside = SimpleNamespace(title="Table 3", rows=[line], notes=[], missing=[], setups={"A": "one seed"})
    section = Section(facts={}, rows=[], figures=[], grids=[grid], beside=[beside])
    page = write_report(tmp_path / "page.html", title="T", intro="", sections=[section], explanations={})
    with opened(browser, page, width=390) as shown:
        for cell in shown.locator("td[data-label]").all():
            box = cell.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        for words in ("costs nothing", "baseline", "other rows"):
            assert shown.get_by_text(words).is_visible()
        verdict = shown.locator(".grid td", has_text="costs nothing")
        assert verdict.evaluate("(e) => getComputedStyle(e, '::before').content") == '"verdict "'
        name, number = shown.locator(".grid th[scope=row]").first, shown.locator(".grid td.num").first
        assert name.bounding_box()["y"] < verdict.bounding_box()["y"] < number.bounding_box()["y"]
        assert faults_of(shown) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY, ids=ids(EVERY))
def test_every_section_begins_with_one_to_three_sentences(report_of, name):
    source = report_of(name).read_text(encoding="utf-8")
    briefs = [
        re.findall(r"<li>(.*?)</li>", found, re.DOTALL)
        for found in re.findall(r'<ul class="findings">(.*?)</ul>', source, re.DOTALL)
    ]
    assert len(briefs) == source.count('<div class="part"')
    for brief in briefs:
        assert 1 <= len(brief) <= 3
        for sentence in brief:
            assert sentence.endswith(".") and not re.search(r"None|nan|\{|\s[,.;]", sentence), sentence
            assert not re.search(r"[a-z]\. [A-Z]", sentence), sentence


def test_headings_go_down_one_level_at_a_time(browser, report_of):
    for name in SEEN:
        with opened(browser, report_of(name)) as page:
            page.evaluate(OPEN)
            levels = [level for level, _ in page.evaluate(HEADINGS)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(lower - upper <= 1 for upper, lower in pairwise(levels)), levels


def test_figures_are_on_a_white_card_whatever_the_page(browser, report_of):
    """Its background, and the share of a figure's pixels that are lighter than the middle."""
    shares = []
    for dark in (False, True):
        with opened(browser, report_of("quickstart"), dark=dark) as page:
            card = page.locator(".card").first
            assert card.evaluate("(e) => getComputedStyle(e).backgroundColor") == "rgb(255, 255, 255)"
            shares.append(
                page.evaluate("""() => new Promise((done) => {
              const image = document.querySelector(".card img"), canvas = document.createElement("canvas");
              document.body.append(canvas); // the scheme of an image is that of where it is drawn
              [canvas.width, canvas.height] = [350, 150];
              const context = canvas.getContext("2d");
              context.drawImage(image, 0, 0, 350, 150);
              const pixels = context.getImageData(0, 0, 350, 150).data;
              let light = 0;
              for (let k = 0; k < pixels.length; k += 4) light += pixels[k] > 127;
              done(light / (pixels.length / 4));
            })""")
            )
    assert shares[0] == shares[1] > 0.8


def test_a_link_opens_the_glossary_where_it_leads(browser, report_of):
    with opened(browser, report_of("tyshchuk2023/isotropy")) as page:
        explanation = page.locator("#measure-isoscore")
        assert not explanation.is_visible()
        page.click('table.measures a[href="#measure-isoscore"]')
        assert explanation.is_visible()
        top = explanation.bounding_box()["y"]
        assert 0 <= top < 900


def test_the_table_is_sorted_and_filtered(browser, report_of):
    with opened(browser, report_of("tyshchuk2023/isotropy")) as page:
        table, count = page.locator("table.measures"), page.locator(".tools output")
        shown = "tbody:not([hidden]) tr:not(.group)"
        lines = table.locator(shown).count()
        assert count.inner_text() == f"{lines} lines"

        def values():
            texts = table.locator(f"{shown} td.value").all_inner_texts()
            return [float(text.split()[0].replace("−", "-")) for text in texts]

        as_it_was = values()
        head = table.locator("thead th", has_text="Value").first
        for way, order in (("ascending", sorted), ("descending", lambda each: sorted(each, reverse=True))):
            head.get_by_role("button").click()
            assert head.get_attribute("aria-sort") == way
            assert values() == order(as_it_was)
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") is None and values() == as_it_was
        page.get_by_label("Filter").fill("isoscore text")
        kept = table.locator(shown)
        assert kept.count() == 2 and count.inner_text() == f"2 of {lines} lines"
        assert all("isoscore" in text and "text" in text for text in kept.all_inner_texts())
        page.get_by_label("Filter").fill("nothing like it")
        assert table.locator(shown).count() == 0
        page.get_by_label("Filter").fill("")
        assert values() == as_it_was and page.errors == []


@pytest.mark.parametrize("width", [1400, 390])
def test_a_figure_enlarges_by_click_and_by_key_and_closes(browser, report_of, width):
    with opened(browser, report_of("quickstart"), width=width) as page:
        figure, large = page.locator("figure").first, page.locator("#zoom")
        small = figure.locator("img").bounding_box()["width"]
        assert not large.is_visible()
        for act in (figure.locator(".enlarge").click, lambda: page.keyboard.press("Enter")):
            act()
            assert large.is_visible()
            assert large.locator("img").bounding_box()["width"] > 1.2 * small
            assert large.locator("img").get_attribute("alt") == figure.locator("img").get_attribute("alt")
            assert faults_of(page, axe=False) == []
            page.keyboard.press("Escape")
            assert not large.is_visible()  # and the focus is where it was
        figure.locator(".enlarge").click()
        large.get_by_role("button", name="Close").click()
        assert not large.is_visible()


def test_every_figure_has_words_and_its_files(browser, report_of):
    with opened(browser, report_of("quickstart")) as page:
        for figure in page.locator("figure").all():
            assert re.match(r"Figure \d+, [A-Z][^:]+: \w", figure.locator("img").get_attribute("alt"))
            files = [each.get_attribute("href") for each in figure.locator(".files a").all()]
            assert [Path(each).suffix for each in files] == [".svg", ".png"]
            assert all((report_of("quickstart").parent / each).is_file() for each in files)


def test_without_its_script_the_page_has_everything(browser, report_of):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report_of("tyshchuk2023/isotropy").resolve().as_uri())
    assert page.locator(".tools").count() == page.locator("#zoom").count() == 0
    page.locator("#reading > summary").click()
    assert page.locator("#measure-isoscore").is_visible()
    assert page.locator("table.measures").is_visible() and page.locator(".card img").first.is_visible()
    context.close()


def test_nothing_else_runs_applies_or_loads(browser, report_of, tmp_path):
    with refusing_injections(browser, report_of("quickstart"), tmp_path) as shown:
        assert shown.locator("#zoom").count() == 1  # the page's own script did


@pytest.mark.parametrize("dark", [False, True])
def test_a_measurement_in_a_notebook_is_read_in_its_colors(browser, tmp_path, dark):
    rng = np.random.default_rng(0)
    found = measure(*rng.standard_normal((2, 40, 8)))._repr_html_()
    page = tmp_path / "cell.html"
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    page.write_text(f"{head}<title>A cell</title><main><h1>A cell</h1>{found}</main>", encoding="utf-8")
    for width in WIDTHS:
        with opened(browser, page, width=width, dark=dark) as shown:
            assert faults_of(shown, axe=width == WIDTHS[0]) == []


def test_the_quickstart_is_light_and_quick(browser, report_of):
    file = report_of("quickstart")
    assert file.stat().st_size < HEAVIEST * 1e6
    times = []
    for _ in range(3):
        with opened(browser, file) as page:
            page.wait_for_load_state("load")
            times.append(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert 0 < min(times) < SLOWEST, times
