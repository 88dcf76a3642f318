"""Reports in headless Chromium: nothing clipped or too small at any width, light and dark; what a click does."""

from base64 import b64decode
from itertools import pairwise

import pytest

from support.browser import SMALLEST_LETTERS, WIDTHS, faults_of, letters_of, opened, refusing_injections

# one of each paper and one with several trainings
UNLIKE = ["cai2021/contextual", "rudman2024/finetune", "tyshchuk2023/isotropy", "train_scenes_arms"]
OPEN = "document.querySelectorAll('details').forEach((each) => (each.open = true))"
# axe-core takes seconds for thousands of cells, which are alike
FEWER = "document.querySelectorAll('.data tr:nth-child(n+4), .measures [hidden]').forEach((each) => each.remove())"
LEVELS = """[...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((each) => each.checkVisibility())
  .map((each) => Number(each.tagName[1]))"""


@pytest.mark.parametrize("name", ["quickstart", *(pytest.param(name, marks=pytest.mark.slow) for name in UNLIKE)])
def test_nothing_is_wrong_at_any_width_light_and_dark(browser, report_of, name):
    """With all that is folded opened; by axe-core on the widest screen only, light and dark."""
    found = []
    for width in WIDTHS:
        with opened(browser, report_of(name), width=width) as page:
            page.evaluate(OPEN)
            faults = faults_of(page, axe=False)
            if width == WIDTHS[-1]:
                for image in page.locator("figure img").all():
                    svg = b64decode(image.get_attribute("src").partition(",")[2]).decode()
                    assert letters_of(image, svg) >= SMALLEST_LETTERS, image.get_attribute("alt")
            if width == WIDTHS[0]:
                levels = page.evaluate(LEVELS)
                assert levels.count(1) == 1 and all(lower - upper <= 1 for upper, lower in pairwise(levels)), levels
                page.evaluate(FEWER)
                faults += faults_of(page)
                page.emulate_media(color_scheme="dark")
                faults += [f"dark: {fault}" for fault in faults_of(page)]
            found += [f"{width} px: {fault}" for fault in faults]
    assert found == []


def test_the_table_is_sorted_and_filtered(browser, report_of):
    with opened(browser, report_of("quickstart")) as page:
        page.locator("details.numbers > summary").first.click()
        table, count = page.locator("table.measures").first, page.locator(".tools output").first
        shown = "tbody:not([hidden]) tr:not(.group)"
        lines = table.locator(shown).count()
        assert count.inner_text() == f"{lines} lines"

        def values():
            texts = table.locator(f"{shown} td.value").all_inner_texts()
            return [float(text.split()[0].replace("−", "-")) for text in texts]

        given = values()
        head = table.locator("thead th", has_text="Value").first
        for way, order in (("ascending", sorted), ("descending", lambda each: sorted(each, reverse=True))):
            head.get_by_role("button").click()
            assert head.get_attribute("aria-sort") == way
            assert values() == order(given)
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") is None and values() == given
        page.get_by_label("Filter").first.fill("isoscore text")
        kept = table.locator(shown)
        assert 0 < kept.count() < lines and count.inner_text() == f"{kept.count()} of {lines} lines"
        assert all("isoscore" in text and "text" in text for text in kept.all_inner_texts())
        page.get_by_label("Filter").first.fill("")
        assert values() == given and page.errors == []


def test_a_figure_enlarges_by_click_and_by_key_and_closes(browser, report_of):
    with opened(browser, report_of("quickstart"), width=390) as page:
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


def test_without_its_script_the_page_has_everything(browser, report_of):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(report_of("quickstart").resolve().as_uri())
    assert page.locator(".tools").count() == page.locator("#zoom").count() == 0
    for folded in ("#reading", "details.numbers"):
        page.locator(f"{folded} > summary").first.click()
    assert page.locator("#measure-isoscore").is_visible()
    assert page.locator("table.measures").first.is_visible() and page.locator(".card img").first.is_visible()
    context.close()


def test_nothing_else_runs_applies_or_loads(browser, report_of, tmp_path):
    with refusing_injections(browser, report_of("quickstart"), tmp_path) as shown:
        assert shown.locator("#zoom").count() == 1  # the page's own script did
