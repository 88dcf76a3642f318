"""The page: complete, escaped, self-contained; and Chromium draws it."""

import base64
import math
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from clip_geometry.display.explained import facts
from clip_geometry.geometry import measures
from clip_geometry.measuring.table import numbers_table
from clip_geometry_experiments.report.gallery import FigureEntry, draw_figures, save_drawings
from clip_geometry_experiments.report.page import SCRIPT, Section, parts, render_report, track, write_report
from support.browser import chromium, opened


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    group: str = "isotropy"
    summary: str = "It is the ratio of two things."
    reading: str = "High values mean much."
    caveat: str = "Do not trust it blindly."
    formula: str = "Σ a < b"
    range: tuple = (0, 1)
    direction: str = "higher is more isotropic"
    unit: str = ""
    reference: str = "Somebody 2020, doi:10.1234/abc.5 and arXiv:2001.00001"


EXPLANATIONS = {
    "isoscore": Measure("isoscore", "IsoScore"),
    "matching_cosine": Measure("matching_cosine", "Cosine of matching pairs", range=(-1, 1), unit="cosine"),
    "<b>bold": Measure("<b>bold", "Bold & <i>risky</i>"),
}
ROWS = [
    {"measure": "isoscore", "value": 0.0817, "null_value": 0.4934, "n": 40, "d": 6, "at": {"modality": "image"}},
    {
        "measure": "isoscore",
        "value": 0.0797,
        "standard_error": 0.0041,
        "null_value": None,
        "n": 40,
        "d": 6,
        "at": {"modality": "text"},
    },
    {"measure": "matching_cosine", "value": None, "note": "needs pairs", "at": {"modality": "both"}},
    {"measure": "<b>bold", "value": 0.377, "at": {"modality": "image"}},
]


class Parsed(HTMLParser):
    """All tags with their attributes, and the visible text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words, self._hidden = [], [], False
        self.feed(page.replace("<wbr>", ""))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag in ("style", "script")

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> list[FigureEntry]:
    rng = np.random.default_rng(3)
    image, text = rng.standard_normal((2, 40, 6))
    about = {"model": "m", "dataset": "<script>alert(1)</script>", "pipeline": ["normalize"]}
    folder = tmp_path_factory.mktemp("figures")
    return save_drawings(draw_figures(image, text, (np.arange(40), np.arange(40)), **about), folder)


PAGE = ("title", "intro", "explanations", "command", "config", "versions")


def content(figures, **changes):
    """Of a page with one section."""
    given = {
        "title": "A <title> & more",
        "intro": "What was measured.",
        "facts": {"model": "m", "pipeline": ["normalize", "center"], "nothing": None, "<script>": "x"},
        "rows": ROWS,
        "figures": figures,
        "explanations": EXPLANATIONS,
        "command": "clip-geometry run a.yaml",
        "config": "name: a\nitem: <script>",
        "versions": {"torch": "2.6"},
    } | changes
    own = {key: value for key, value in given.items() if key not in PAGE}
    return {key: value for key, value in given.items() if key in PAGE} | {"sections": [Section(**own)]}


def test_every_part_is_there(figures):
    page = Parsed(render_report(**content(figures)))
    for part in (
        "A <title> & more",
        "What was measured.",
        "normalize, center",
        "0.0817",
        "0.4934",
        "0.0797 ± 0.0041",
        "not computed: needs pairs",
        "0.3770",
        "0 … 1",
        "−1 … 1 cosine",
        "higher is more isotropic",
        "It is the ratio of two things. High values mean much.",
        "Σ a < b",
        "clip-geometry run a.yaml",
        "name: a item: <script>",
        "results.jsonl",
        "torch 2.6.",
    ):
        assert part in page.text, part
    assert "nothing" not in page.text
    for number, entry in enumerate(figures, start=1):
        assert f"Figure {number}. {entry.title}." in page.text
        assert entry.caption in page.text
        assert entry.svg_path.name in page.text and entry.png_path.name in page.text


def test_names_are_text_and_never_markup(figures):
    source = render_report(**content(figures))
    page = Parsed(source)
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]
    assert re.findall(r"<script>(.*?)</script>", source, re.DOTALL) == [SCRIPT]
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>" in page.text and "Bold & <i>risky</i>" in page.text


def test_nothing_is_loaded_from_outside(figures):
    source = render_report(**content(figures))
    page = Parsed(source)
    for tag, attributes in page.tags:
        for key in ("src", "srcset", "poster", "data", "action", "xlink:href"):
            assert attributes.get(key, "data:").startswith("data:"), (tag, key)
        if tag == "link":
            assert attributes["href"] == "data:,"
    assert not re.search(r"@import|url\(", source)
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    outside = {link for link in links if not link.startswith("#")}
    assert outside == {"https://doi.org/10.1234/abc.5", "https://arxiv.org/abs/2001.00001", "results.jsonl"}


def test_figures_are_inlined_byte_for_byte(figures):
    page = Parsed(render_report(**content(figures)))
    sources = [attributes["src"] for tag, attributes in page.tags if tag == "img"]
    inlined = [base64.b64decode(source.partition("base64,")[2]) for source in sources]
    assert inlined == [entry.svg_path.read_bytes() for entry in figures]


def test_links_within_the_page_lead_somewhere_and_ids_are_unique(figures):
    page = Parsed(render_report(**content(figures, explanations=measures, rows=all_measures())))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a" and attributes["href"][0] == "#"}
    assert targets and targets <= set(ids)


def all_measures():
    return [{"measure": name, "value": 0.21, "n": 9, "d": 5, "at": {"modality": "image"}} for name in measures]


def test_every_registered_measure_is_explained():
    page = Parsed(render_report(**content([], explanations=measures, rows=all_measures())))
    for name, measure in measures.items():
        assert name in page.text
        assert " ".join(f"{measure.summary} {measure.reading}".split()) in page.text, name
        assert facts(measure) in page.text, name
        # beside the number and in its explanation
        assert page.text.count(" ".join(measure.caveat.split())) >= 2, name


def test_the_trap_opens_beside_the_number_without_a_script():
    (rows,) = re.findall(r"<table class=\"measures\">.*</table>", render_report(**content([])), re.DOTALL)
    assert rows.count("<summary>⚠ caveat</summary>Do not trust it blindly.</details>") == 3
    unknown = render_report(**content([], rows=[{"measure": "nobody knows", "value": 1.0}]))
    assert "⚠ caveat</summary>" not in unknown


def test_a_name_may_break_before_its_bracket_only():
    page = render_report(**content([], rows=[{"measure": "isoscore[un]", "value": 1.0}]))
    assert "<code>isoscore<wbr>[un]</code>" in page


@pytest.mark.parametrize(
    ("limits", "value", "null", "places"),
    [
        ((0, 1), 0.25, 0.9, (30, 108, 0)),
        ((-1, 1), 0.5, 0.0, (90, 60, 60)),
        ((-1, 1), -0.5, None, (30, None, 60)),
        ((1, "d"), 2.5, 4, (60, 120, 0)),
        ((0, "n"), 1, 20, (12, 120, 0)),
        ((0, math.inf), 1, None, None),
        ((0, "no such bound"), 1, None, None),
        ((1, 1), 1, None, None),
        ((0, 1), None, None, None),
    ],
)
def test_places_within_the_range(limits, value, null, places):
    row = {"measure": "isoscore", "value": value, "null_value": null, "n": 10, "d": 4}
    known = replace(EXPLANATIONS["isoscore"], range=limits)
    (cells,) = numbers_table([row], {"isoscore": known}).rows
    result = track(cells)
    assert (result and (result.value, result.null, result.start)) == places
    assert result is None or ("isotropic Gaussian" in result.label) == (null is not None)


def test_what_the_numbers_are_is_told_above_the_table():
    page = render_report(**content([]))
    assert page.index("± is one standard error, by the jackknife") < page.index('<table class="measures">')
    titles = [attributes.get("title", "") for tag, attributes in Parsed(page).tags if tag == "th"]
    assert "Null (Gaussian)" in page and any("isotropic Gaussian sample" in title for title in titles)


def test_what_plus_minus_means_is_told_where_the_summary_has_it():
    told = "± is one standard error, see"
    gap = {"measure": "modality_gap", "value": 0.5, "at": {"modality": "both"}}
    assert told in Parsed(render_report(**content([], rows=[{**gap, "standard_error": 0.01}]))).text
    assert told not in Parsed(render_report(**content([], rows=[gap]))).text


def test_a_map_from_before_is_said_to_be_taken_as_given():
    told = "Some rows had been transformed by a saved map"
    assert told not in render_report(**content([]))
    assert told in render_report(**content([], rows=[*ROWS, {**ROWS[0], "maps": "procrustes fitted on scenes/train"}]))


def test_untrained_models_are_announced(figures):
    banner = "freshly initialized"
    assert banner not in render_report(**content(figures))
    one = Parsed(render_report(**content(figures, fresh_models=["RN50/fresh"]))).text
    assert "RN50/fresh is freshly initialized: its numbers describe random weights" in one
    two = Parsed(render_report(**content(figures, fresh_models=["a", "b"]))).text
    assert "a, b are freshly initialized: their numbers" in two


def gaps(*runs):
    return [
        {"measure": "modality_gap", "value": 0.5 + k / 8, "at": {"modality": "both"}, **run}
        for k, run in enumerate(runs)
    ]


def test_a_sweep_is_read_by_the_letters_of_its_runs():
    fresh = {"model": "fresh", "pipeline": ["normalize"]}
    rows = gaps({**fresh, "model_options": {"seed": 1, "zero_bias": True}}, {**fresh, "model_options": {"seed": 2}})
    page = Parsed(render_report(**content([], rows=rows)))
    headings = [attributes for tag, attributes in page.tags if tag == "th" and attributes.get("scope") == "col"]
    assert len(headings) == 7  # measure, range, direction, set, run, value, Gaussian
    assert "Measures A fresh · seed 1, zero_bias B fresh · seed 2 ± is one" in page.text
    for label, heading, value in (("A", "fresh · seed 1, zero_bias", "0.5000"), ("B", "fresh · seed 2", "0.6250")):
        # below the summary, which has the least and the largest of them
        assert f"{label} {heading} The mean image and the mean text lie {value} apart." in page.text
        assert f"both {label} {value}" in page.text


def test_a_long_sweep_says_what_it_leaves_out_of_the_summary():
    page = Parsed(render_report(**content([], rows=gaps(*({"seed": seed} for seed in range(6))))))
    assert "is 0.5000 (run seed 0) to 1.125 (run seed 5), with errors that are not known." in page.text
    assert page.text.count("lie") == 4 and "2 more runs are in the table below." in page.text


def test_a_summary_has_three_sentences_and_the_others_are_below_it():
    said = ["One. Two of it, 0.5 ± 0.1.", "Three. least_squares is four.", "Five."]
    source = render_report(**content([], sentences=said))
    (brief,), (more,) = (
        re.findall(rf"{start}.*?</ul>", source, re.DOTALL) for start in ('<ul class="findings">', "More from these")
    )
    items = [re.findall(r"<li>(.*?)</li>", part) for part in (brief, more)]
    assert items == [["One.", "Two of it, 0.5 ± 0.1.", "Three."], ["least_squares is four.", "Five."]]
    assert "More from" not in render_report(**content([], sentences=said[:1]))


def test_the_contents_lead_to_every_part(figures):
    for page in (content(figures, sentences=["So it is."]), two_sections(figures)):
        source = render_report(**page)
        contents = re.search(r"<nav.*?</nav>", source, re.DOTALL)[0]
        links = re.findall(r'href="#([\w-]+)">(.+?)</a>', contents)
        assert [title for _, title in links] == (
            ["In brief", "Figures", "All numbers", "How to read each measure", "How to reproduce"]
            if len(page["sections"]) == 1
            else ["In brief", "The first one", "Languages &amp; words", "How to read each measure", "How to reproduce"]
        )
        assert {place for place, _ in links} <= set(re.findall(r' id="([\w-]+)"', source))


def test_one_run_has_no_letters():
    assert "Measures ± is one standard error" in Parsed(render_report(**content([]))).text


def test_a_figure_that_was_not_drawn_leaves_its_reason(figures):
    undrawn = FigureEntry("cosine_distributions", "Who is close", "Not drawn: a zero row.", None, None)
    page = Parsed(render_report(**content([figures[0], undrawn, figures[2]])))
    assert "Who is close. Not drawn: a zero row." in page.text
    assert "Figure 2. Decay" in page.text and "Figure 3." not in page.text
    assert "cosine_distributions.svg" not in page.text
    assert sum(tag == "img" for tag, _ in page.tags) == 2


def test_figures_of_several_runs_get_headings(figures):
    grouped = [
        FigureEntry(entry.name, entry.title, entry.caption, entry.svg_path, entry.png_path, group)
        for group in ("run one", "run two")
        for entry in figures
    ]
    text = Parsed(render_report(**content(grouped))).text
    assert text.count("run one") == text.count("run two") == 1
    assert text.index("Figure 4.") < text.index("run two") < text.index("Figure 5.")


def test_a_page_without_figures_findings_or_config():
    bare = {"rows": [], "facts": {}, "command": "", "config": "", "versions": None}
    source = render_report(**content([], **bare))
    assert 'id="figures"' not in source and 'id="findings"' not in source and "<pre>" not in source


def two_sections(figures):
    """The one of `content`, and one with sentences of its own and no figures."""
    page = content(figures)
    (first,) = page["sections"]
    own = {"title": "Languages & words", "intro": "Of the second.", "sentences": ["It is so.", "And so."]}
    second = Section(facts={"captions": 7}, rows=[{**ROWS[0], "value": 0.21}], figures=figures[:1], **own)
    named = replace(first, title="The first one", intro="Of the first.")
    return {**page, "sections": [named, second]}


def test_several_sections_stand_below_each_other_with_what_is_theirs(figures):
    source = render_report(**two_sections(figures))
    text = Parsed(source).text
    places = [
        text.index(part, text.index("A <title> & more", 20))  # after the contents
        for part in ("What was measured.", "In brief", "1 The first one", "Of the first.", "2 Languages & words",
                     "Of the second.", "And so.", "captions 7", "0.2100", "How to reproduce")
    ]  # fmt: skip
    assert places == sorted(places)
    assert source.count('id="reading"') == source.count('<section id="reproduce">') == 1
    assert "Figure 5. The two main directions." in text  # counted through
    ids = [attributes["id"] for _, attributes in Parsed(source).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for tag, a in Parsed(source).tags if tag == "a" and a["href"][0] == "#"}
    assert {"part-1", "part-2"} <= targets <= set(ids)


def test_the_opening_has_the_first_sentence_of_each_section(figures):
    text = Parsed(render_report(**two_sections(figures))).text
    opening = text[text.rindex("In brief") : text.index("1 The first one")]
    assert "Languages & words It is so." in opening and "And so." not in opening


def test_one_section_is_told_without_its_own_heading(figures):
    page = content(figures)
    named = {**page, "sections": [replace(page["sections"][0], title="Unseen", intro="Unheard.")]}
    assert render_report(**named) == render_report(**page)


def test_sentences_stand_in_the_place_of_those_of_single_runs():
    gap = [{"measure": "modality_gap", "value": 0.5, "at": {"modality": "both"}}]
    text = Parsed(render_report(**content([], rows=gap, sentences=["One and all."]))).text
    assert "In brief One and all." in text and "lie 0.5" not in text


def test_a_wide_figure_takes_both_columns(figures):
    wide = replace(figures[0], wide=True)
    tags = [
        attributes for tag, attributes in Parsed(render_report(**content([wide, figures[1]]))).tags if tag == "figure"
    ]
    assert [attributes.get("class") for attributes in tags] == ["across", None]


def test_write_report_makes_the_folder_and_repeats_itself(tmp_path, figures):
    first = write_report(tmp_path / "new/report.html", **content(figures))
    second = write_report(tmp_path / "again.html", **content(figures))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_text(encoding="utf-8") == render_report(**content(figures))


def test_files_of_figures_are_linked_where_they_lie_beside_the_page(tmp_path, figures):
    files = [path for entry in figures for path in (entry.svg_path, entry.png_path)]
    folder = files[0].parent.parent
    page = write_report(folder / "report.html", **content(figures)).read_text(encoding="utf-8")
    for path in files:
        assert f'<a href="{path.parent.name}/{path.name}">{path.name}</a>' in page
    assert '.svg"' not in render_report(**content(figures))


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


def broken_figures(page):
    return page.evaluate("[...document.images].filter((image) => !image.complete || !image.naturalWidth).length")


@pytest.mark.parametrize("width", [500, 1200])
def test_chromium_draws_every_figure_without_an_error(browser, tmp_path, figures, width):
    page = write_report(tmp_path / "report.html", **content(figures, explanations=measures, rows=all_measures()))
    with opened(browser, page, width=width) as shown:
        assert shown.locator("figure img").count() == len(figures) == 4
        assert broken_figures(shown) == 0 and shown.errors == []
        assert shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_the_chromium_check_notices_a_broken_figure(browser, tmp_path):
    (tmp_path / "broken.html").write_text(
        '<!doctype html><img src="data:image/svg+xml;base64,AAAA"><script>console.error("oh")</script>'
    )
    with opened(browser, tmp_path / "broken.html") as shown:
        assert broken_figures(shown) == 1 and shown.errors == ["console: oh"]


def test_a_smoke_run_says_so(figures):
    assert "Smoke run." in render_report(**content(figures), smoke=True)
    assert "Smoke run." not in render_report(**content(figures))


def test_what_is_told_is_divided_by_place_so_that_no_measure_stands_twice():
    rows = [
        {
            "measure": "isoscore",
            "value": 0.4,
            "model": "m",
            "dataset": "s",
            "seed": seed,
            "at": {"modality": "image", "layer": layer},
        }
        for seed in (0, 1)
        for layer in (3, 12)
    ]
    assert [(part.label, part.heading, len(part.rows)) for part in parts(rows)] == [
        ("A", "run seed 0 · layer 3", 1),
        ("A", "run seed 0 · layer 12", 1),
        ("B", "run seed 1 · layer 3", 1),
        ("B", "run seed 1 · layer 12", 1),
    ]
