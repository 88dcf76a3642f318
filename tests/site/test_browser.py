"""The check of pages names what is planted, and nothing on a clean page."""

import pytest

from support.browser import faults_of, opened

HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>A page</title><main><h1>A page</h1>'
PLANTED = {
    '<p style="width:2000px">wide</p>': "wider than",
    '<div style="overflow:hidden;width:50px"><p style="width:200px">clipped text</p></div>': "clipped by",
    '<p style="font-size:9px">small</p>': "9.0 px high",
    '<table><tr><td style="max-width:2em;overflow-wrap:anywhere">isotropy_of_images</td></tr></table>': "broken",
    '<p style="color:#aaa;background:#fff">pale</p>': "color-contrast",
    '<img src="https://example.org/a.png" alt="">': "request: https://example.org",
    "<script>nothing.at.all()</script>": "script: ",
}
CLEAN = (
    '<div role="region" tabindex="0" aria-label="numbers" style="overflow-x:auto"><table style="width:3000px">'
    "<tr><th scope=col>a word</th></tr><tr><td>a long cell that wraps between its words</td></tr></table></div>"
)


@pytest.mark.parametrize(("fault", "named"), PLANTED.items(), ids=list(PLANTED.values()))
def test_a_planted_fault_is_named(browser, tmp_path, fault, named):
    page = tmp_path / "page.html"
    page.write_text(f"{HEAD}{fault}</main>", encoding="utf-8")
    with opened(browser, page, width=390) as shown:
        assert any(named in found for found in faults_of(shown, axe=named == "color-contrast"))


@pytest.mark.parametrize("dark", [False, True])
def test_a_clean_page_has_none(browser, tmp_path, dark):
    page = tmp_path / "page.html"
    page.write_text(f"{HEAD}{CLEAN}</main>", encoding="utf-8")
    with opened(browser, page, width=390, dark=dark) as shown:
        assert faults_of(shown) == []
