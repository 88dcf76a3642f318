"""The site, built as CI builds it: complete, offline, and readable on every screen."""

import html
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clip_geometry
from support.browser import SMALLEST_LETTERS, WIDTHS, faults_at_every_width, letters_of, opened
from support.generated import site_module

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
MAIN = ("index", "start", "howto/broken_index", "measures/isoscore", "papers/tyshchuk2023", "api/transforms")
SECONDS = 240  # of a build
by_page = site_module("measure_pages").by_page


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site: the one that CI has built, or built here."""
    if built := os.environ.get("CLIP_GEOMETRY_SITE"):
        return Path(built)
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert time.perf_counter() - began < SECONDS * max(1, busy)
    return folder


def words(path: Path) -> str:
    """The text of a page."""
    page = re.sub(r"<(script|style)\b.*?</\1>", " ", path.read_text(encoding="utf-8"), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def test_every_measure_has_a_page_with_a_figure(site):
    for name, members in by_page().items():
        path = site / "measures" / f"{name}.html"
        text = words(path)
        for measure in members:
            for said in (measure.name, measure.caveat, measure.formula, measure.reference):
                assert " ".join(said.split()) in text, (name, said)
        assert path.read_text(encoding="utf-8").count('role="img"') >= 1, name
        assert "It changes after:" in text and "same after:" in text
    index = (site / "measures.html").read_text(encoding="utf-8")
    assert all(f'href="measures/{name}.html"' in index for name in by_page())


def test_the_figure_agrees_with_the_declared_invariances(site):
    """Of what a measure declares, the drawn changes move nothing; most changes move it."""
    declared = {"rotation": "rotated", "translation": "one vector added", "scale": "all rows × 3"}
    for name, members in by_page().items():
        said = words(site / "measures" / f"{name}.html").partition("same after: ")[2].partition(" It moves")[0]
        for invariance, change in declared.items():
            assert invariance not in members[0].invariances or change in said, (name, change)


def test_the_null_value_of_isoscore_is_on_its_page(site):
    value = clip_geometry.geometry.null_value("isoscore", 300, 512)
    assert f"{value:.3g} for 300 × 512" in words(site / "measures" / "isoscore.html")


def test_no_page_asks_a_network(site):
    for path in site.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*rel="stylesheet"[^>]*', page)
        assert not [each for each in loaded if each.startswith(("http", "//"))], path


@pytest.mark.parametrize("page", MAIN)
def test_a_main_page_is_readable_on_every_screen(site, browser, page):
    assert faults_at_every_width(browser, site / f"{page}.html", axe_at=WIDTHS[::2]) == []


def test_figures_are_readable_on_a_phone(site, browser):
    pages = [
        path for path in site.rglob("*.html") if 'src="figures/' in (text := path.read_text()) or "../figures/" in text
    ]
    assert len(pages) > 5
    for path in pages:
        with opened(browser, path, width=390) as page:
            for image in page.locator('img[src*="figures/"]').all():
                svg = (path.parent / image.get_attribute("src")).read_text(encoding="utf-8")
                assert letters_of(image, svg) >= SMALLEST_LETTERS, (path.name, image.get_attribute("src"))


@pytest.mark.parametrize("page", ["claims", "papers/tyshchuk2023"])
def test_a_phone_shows_the_verdict_beside_the_claim(site, browser, page):
    with opened(browser, site / f"{page}.html", width=390) as shown:
        verdicts = shown.locator('table:has(th:text-is("claim")) td:has(> strong)').all()
        assert len(verdicts) >= 5
        for cell in verdicts:
            box = cell.locator("strong").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_a_search_finds_a_page_without_a_server(site, browser):
    with opened(browser, site / "index.html") as page:
        page.fill("input.md-search__input", "isoscore null value")
        page.wait_for_selector(".md-search-result__item", timeout=20_000)
        found = page.eval_on_selector_all(".md-search-result__link", "all => all.map(each => each.href)")
        assert any("null_value.html" in each or "isoscore.html" in each for each in found[:5]), found
        assert page.errors == []
