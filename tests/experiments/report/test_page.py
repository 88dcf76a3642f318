"""The page: complete, escaped, self-contained; and Chromium draws it."""

import html
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.display.explained import facts
from clip_geometry.geometry import measures
from clip_geometry_experiments.report.figures import FigureEntry, draw_figures, save_drawings
from clip_geometry_experiments.report.page import SCRIPT, Section, render_report, write_report


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
    return save_drawings(draw_figures(image, text, (np.arange(40), np.arange(40)), about), folder)


PAGE = ("title", "intro", "explanations", "command", "config", "versions", "smoke")


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
        "smoke": False,
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
    for label, value in (("A", "0.5000"), ("B", "0.6250")):
        assert f"both {label} {value}" in page.text


def core(seed):
    """The records of the core measures, of a run with its own seed."""
    image = np.random.default_rng(seed).normal(size=(60, 8)) + 1
    measured = cg.measure({"image": image, "text": image[::-1] - 2}, seed=seed)
    return [dict(record) for record in measured.records]


def test_what_core_measures_say_is_the_verdict_of_measure():
    one, other = core(1), core(2)
    (brief,) = re.findall(r'<ul class="findings">.*?</ul>', render_report(**content([], rows=one)), re.DOTALL)
    said = html.unescape(" ".join(re.sub(r"<[^>]*>", " ", brief).split()))
    assert said == cg.Measurement(one).verdict != ""
    text = Parsed(render_report(**content([], rows=[*one, *other]))).text
    for seed, rows in ((1, one), (2, other)):
        assert f"seed {seed}: {cg.Measurement(rows).verdict}" in text


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
    assert "Figure 3. The two main directions." in text  # counted through
    ids = [attributes["id"] for _, attributes in Parsed(source).tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for tag, a in Parsed(source).tags if tag == "a" and a["href"][0] == "#"}
    assert {"part-1", "part-2"} <= targets <= set(ids)


def test_write_report_makes_the_folder_and_repeats_itself(tmp_path, figures):
    first = write_report(tmp_path / "new/report.html", **content(figures))
    second = write_report(tmp_path / "again.html", **content(figures))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_text(encoding="utf-8") == render_report(**content(figures))
