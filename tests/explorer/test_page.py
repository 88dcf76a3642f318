"""The page in headless Chromium: it draws, the slider moves points, a click shows neighbors, nothing is requested."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from importlib import util

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.explorer.page import plotly_script
from support.browser import faults_at_every_width, faults_of, opened, refusing_injections


@pytest.fixture(scope="module")
def file(exploration, tmp_path_factory):
    """With a plane in the place of UMAP's, whose code takes long to compile."""
    circle = 2 * np.pi * np.arange(120) / 120
    plane = np.column_stack([np.cos(circle), np.sin(circle)])
    states = [replace(exploration.states[0], umap=plane), *exploration.states[1:]]
    return replace(exploration, states=states).save(tmp_path_factory.mktemp("page") / "explore.html")


@pytest.fixture(scope="module")
def tab(browser, file):
    """Has compiled the scripts of the page."""
    with opened(browser, file) as opened_page:
        yield opened_page


@pytest.fixture
def page(tab, file):
    """The page, loaded again."""
    tab.errors.clear()
    tab.mouse.move(0, 0)
    tab.goto(file.resolve().as_uri())
    tab.wait_for_selector("html[data-drawn]")
    yield tab
    assert tab.errors == []


def place_of(page, point):
    """Where a point is on the screen."""
    return page.evaluate(
        """(p) => {
          const plot = document.getElementById("plot"), {xaxis, yaxis} = plot._fullLayout;
          const {left, top} = plot.getBoundingClientRect();
          const {modalities} = JSON.parse(document.getElementById("meta").textContent);
          const m = modalities.findIndex(({start, size}) => p < start + size), k = p - modalities[m].start;
          const {x, y} = plot.data[m];
          return [left + xaxis._offset + xaxis.l2p(x[k]), top + yaxis._offset + yaxis.l2p(y[k])];
        }""",
        point,
    )


def drawn(page):
    return np.array(page.evaluate("[0, 1].flatMap((m) => Array.from(document.getElementById('plot').data[m].x))"))


def move(page, state):
    page.locator("#slider").evaluate(
        "(e, value) => { e.value = value; e.dispatchEvent(new Event('input', {bubbles: true})); }", state
    )
    page.wait_for_function(f"document.querySelectorAll('.ticks span')[{state}].className === 'now'")
    page.wait_for_timeout(300)


def listed(page, state):
    return page.locator(f'section[data-state="{state}"] li button').evaluate_all("(all) => all.map((e) => e.title)")


def ids_of(exploration):
    return [item for each in exploration.points.sets.values() for item in each.item_id]


@pytest.mark.slow
def test_it_has_no_faults_on_any_screen(browser, file):
    assert faults_at_every_width(browser, file, axe_at=(1400, 390)) == []


def test_nor_with_a_point_selected_and_another_color(browser, file):
    with opened(browser, file, width=390, dark=True) as page:
        page.wait_for_selector("html[data-drawn]")
        page.evaluate("explorer.select(3)")
        move(page, 3)
        page.select_option("#color", "label")
        page.wait_for_selector(".chosen")
        assert faults_of(page) == []


def test_the_points_are_those_of_the_planes(page, exploration):
    assert drawn(page) == pytest.approx(exploration.states[0].pca.points[:, 0], abs=1e-4)
    move(page, 1)
    assert page.locator("#name").inner_text() == "center"
    assert drawn(page) == pytest.approx(exploration.states[1].pca.points[:, 0], abs=1e-4)
    move(page, 3)  # the posterior changes scores only
    assert drawn(page) == pytest.approx(exploration.states[0].pca.points[:, 0], abs=1e-4)


def test_it_says_why_the_points_stay(page, exploration):
    reason = page.locator(".stops #still")
    assert not reason.is_visible()
    move(page, 3)
    assert reason.inner_text().startswith("The points do not move: posterior changes how pairs of rows are scored")
    move(page, 1)
    assert not reason.is_visible()
    assert "The points do not move at posterior: the scores of pairs of rows change" in " ".join(exploration.notes)


def test_the_other_plane(page):
    page.get_by_label("UMAP").check()
    page.wait_for_timeout(300)
    assert drawn(page) == pytest.approx(np.cos(2 * np.pi * np.arange(120) / 120), abs=1e-3)
    assert "UMAP keeps neighbors, not distances" in page.locator("#reading").inner_text()


def test_a_click_shows_neighbors_before_and_after(page, exploration):
    ids = ids_of(exploration)
    move(page, 3)
    x = exploration.states[0].pca.points
    far = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)[:, 1]
    point = int(far.argmax())  # no other is near
    page.mouse.click(*place_of(page, point))
    page.wait_for_selector('section[data-state="posterior"] li')
    assert page.evaluate("explorer.now.point") == point
    row = exploration.queries.tolist().index(point)
    for state, k in (("none", 0), ("posterior", 3)):
        assert listed(page, state) == [ids[q] for q in exploration.states[k].neighbors.numbers[row, :10]]
    partner = (point + 60) % 120
    assert page.locator('section[data-state="posterior"] .pair button').get_attribute("title") == ids[partner]


def test_lists_of_one_modality(page, exploration):
    ids, lists = ids_of(exploration), exploration.states[0].neighbors.numbers
    page.evaluate("explorer.select(5)")
    page.wait_for_selector(".chosen")
    for label, other in (("its modality", False), ("the others", True)):
        page.get_by_label(label).check()
        page.wait_for_timeout(200)
        assert listed(page, "none") == [ids[q] for q in lists[5] if (q >= 60) == other]


def test_thumbnails_and_captions(page, scenes):
    page.evaluate("explorer.select(7)")
    page.wait_for_selector(".chosen img")
    size = page.evaluate(
        "(() => { const e = document.querySelector('.chosen img'); return [e.naturalWidth, e.naturalHeight]; })()"
    )
    assert size == list(scenes.image.load(7).size)
    page.evaluate("explorer.select(67)")
    page.wait_for_function("!document.querySelector('.chosen img')")
    assert scenes.text.load(7) in page.locator(".chosen .what").inner_text()
    page.mouse.move(*place_of(page, 7))
    page.wait_for_selector("#tip:not([hidden]) img")


def test_search_by_caption(page, scenes):
    words = scenes.text.load(11)
    page.fill("#search", words[:40])
    page.locator("#results button").first.click()
    page.wait_for_selector(".chosen")
    assert words in page.locator(".chosen .what").inner_text()


def test_colors(page, exploration):
    page.select_option("#color", "label")
    page.wait_for_timeout(200)
    entries = page.locator("#legend li")
    assert entries.count() >= 12  # two modalities and the ten largest labels
    colors = page.evaluate("[0, 1].flatMap((m) => Array.from(document.getElementById('plot').data[m].marker.color))")
    name, _, size = entries.nth(2).inner_text().strip().rpartition(" ")
    assert colors.count(1) == int(size.strip("()")) and name
    page.locator("#legend button").nth(0).click()
    assert page.evaluate("document.getElementById('plot').data[0].visible") is False


def test_the_slider_and_the_neighbors_are_reached_by_keyboard(page, exploration):
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.getElementById('name').textContent === 'center'")
    page.focus("#any")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chosen")
    name = page.locator(".lists button").first.get_attribute("title")
    before = page.evaluate("explorer.now.point")
    page.focus(".lists button")
    page.keyboard.press("Enter")
    page.wait_for_function(f"explorer.now.point !== {before} && document.activeElement.id === 'panel'")
    assert ids_of(exploration)[page.evaluate("explorer.now.point")] == name


class Scripts(HTMLParser):
    """The content of each script of a page by its id."""

    def __init__(self, page):
        super().__init__()
        self.found, self.now = {}, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "script":
            self.now = dict(attrs).get("id", f"unnamed {len(self.found)}")
            self.found[self.now] = ""

    def handle_data(self, data):
        if self.now is not None:
            self.found[self.now] += data

    def handle_endtag(self, tag):
        self.now = None


def test_a_label_ends_no_script():
    """Labels stand as text in the JSON of the page. No HTML parser may find the end or the start of a script in it."""
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    names = ["</script><script>document.title='owned'</script>", "<!--<script>", "]]><b>", "a & b"]
    rows = {"image": x, "text": x + 1}
    pages = []
    for each in ([*names, ""], [*"abcd", ""]):  # the last rows have no label
        labels = [each[k % 5] for k in range(30)]
        sets = {name: cg.Embeddings(rows[name], name, labels=labels) for name in rows}
        pages.append(cg.explore(sets, repairs=[], umap=False, title="</title><i>").to_html())
    assert "<title>&lt;/title&gt;&lt;i&gt;</title>" in pages[0]
    scripts, plain = (Scripts(page).found for page in pages)
    assert scripts.keys() == plain.keys() and "meta" in scripts
    assert json.loads(scripts["meta"])["label"]["names"] == names
    assert "<" not in scripts["meta"]


def test_plotly_is_needed(monkeypatch):
    monkeypatch.setattr("clip_geometry.explorer.page.find_spec", lambda name: None)
    with pytest.raises(cg.InputError, match="pip install plotly"):
        plotly_script()
    assert util.find_spec("plotly") is not None


def test_points_without_a_list_give_the_nearest_that_has_one(browser, exploration, tmp_path):
    few = np.arange(0, 120, 4)
    states = []
    for each in exploration.states:
        near = each.neighbors
        states.append(replace(each, neighbors=replace(near, numbers=near.numbers[few], scores=near.scores[few])))
    with opened(browser, replace(exploration, states=states, queries=few).save(tmp_path / "few.html")) as page:
        page.wait_for_selector("html[data-drawn]")
        page.evaluate("explorer.select(5)")
        page.wait_for_selector(".chosen")
        plane = exploration.states[0].pca.points
        images = few[few < 60]
        assert page.evaluate("explorer.now.point") == images[np.linalg.norm(plane[images] - plane[5], axis=1).argmin()]
        assert "This is the nearest point on the plane" in page.locator(".chosen").inner_text()


def test_nothing_else_runs_applies_or_loads(browser, file, tmp_path):
    with refusing_injections(browser, file, tmp_path, ready="html[data-drawn]"):
        pass
