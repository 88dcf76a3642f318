"""The articles: their pages say what the records say, their figures show it, and what they name exists."""

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from clip_geometry.ledger import findings, papers
from clip_geometry.repairs import repairs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = runpy.run_path(str(ROOT / "scripts" / "site" / "findings.py"))
ARTICLES, numbers_of = SITE["ARTICLES"], SITE["numbers_of"]
NAMES = [f"{name}.md" for name in (*ARTICLES, "index")]


@pytest.fixture(scope="module")
def pages():
    return SITE["pages"]()


@pytest.mark.parametrize("page", NAMES)
def test_the_page_in_docs_is_what_the_records_say(pages, page):
    """After changing a template or a record: python scripts/build_docs.py."""
    assert (DOCS / "findings" / page).read_text(encoding="utf-8") == pages[page]


def test_every_article_has_a_page_and_there_is_no_other(pages):
    assert len(ARTICLES) == len(NAMES) - 1 >= 10
    assert {path.name for path in (DOCS / "findings").glob("*.md")} == set(pages) == set(NAMES)
    assert {path.name for path in SITE["TEMPLATES"].iterdir()} == {f"{page}.j2" for page in NAMES}


@pytest.mark.parametrize("name", ARTICLES)
def test_an_article_has_a_claim_a_figure_what_follows_and_its_limits(pages, name):
    page = pages[f"{name}.md"]
    title, claim, figure, *_ = page.split("\n\n")
    assert title.startswith("# ") and re.search(r"\d", claim) and claim.endswith(".") and len(claim.split()) < 60
    # one sentence: a full stop within it belongs to a number
    assert not re.search(r"(?<!et al)\.\s", claim)
    assert re.fullmatch(rf"!\[[A-Z][^\]]{{30,}}\]\(\.\./figures/findings/{name}\.svg\)", figure)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["What follows", "Limits", "Run it"]
    assert 200 <= len(page.split()) <= 400
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("!", "#")))


@pytest.mark.parametrize("page", NAMES)
def test_links_configs_and_scripts_exist(pages, page):
    text = pages[page]
    for target in re.findall(r"(?<!\!)\[[^\]]*\]\(([^)#]+)", text):
        assert (DOCS / "findings" / target).exists(), target
    for path in re.findall(r"\b(?:configs|scripts)/[\w/]+\.(?:yaml|py)", text):
        assert (ROOT / path).exists(), path


def test_the_index_has_the_claim_of_each_and_findings_of_the_papers_refer_to_articles(pages):
    index = " ".join(pages["index.md"].split())
    for name in ARTICLES:
        title, claim, *_ = pages[f"{name}.md"].split("\n\n")
        assert f"[{title.removeprefix('# ')}]({name}.md). {' '.join(claim.split())}" in index
    linked = {finding.article for paper in papers() for finding in findings(paper)} - {""}
    assert linked <= set(ARTICLES) and len(linked) >= 6


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    SITE["draw_all"](folder)
    return folder


@pytest.mark.parametrize("name", ARTICLES)
def test_every_figure_is_drawn_as_svg(drawn, name):
    root = ET.parse(drawn / f"{name}.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 100
    most = 300_000 if name == "repair-table" else 200_000  # a page of names
    assert (drawn / f"{name}.svg").stat().st_size < most


@pytest.mark.parametrize("name", ARTICLES)
def test_nothing_is_cut_off_and_every_panel_says_what_it_shows(name):
    figure = ARTICLES[name].draw(numbers_of(name))
    figure.draw_without_rendering()
    box, width, height = figure.get_tightbbox(), *figure.get_size_inches()
    assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert (
            axes.get_ylabel() or any(label.get_text() for label in axes.get_yticklabels()) or axes is not figure.axes[0]
        )
    sizes = [text.get_fontsize() for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.yaxis.label)]
    assert min(sizes) >= 7


def shown(name):
    """All points of a figure."""
    figure = ARTICLES[name].draw(numbers_of(name))
    return {(round(float(x), 6), round(float(y), 6)) for axes in figure.axes for line in axes.lines
            for x, y in line.get_xydata()}  # fmt: skip


def test_figures_show_the_numbers_of_the_page():
    few, gap, iso = (numbers_of(name) for name in ("few-pairs", "gap-and-temperature", "isoscore-of-few-rows"))
    points = shown("few-pairs")
    assert all((fit, round(100 * few.procrustes[fit].value, 6)) in points for fit in few.fits)
    points = shown("gap-and-temperature")
    assert all((round(x, 6), round(y, 6)) in points for each in gap.points.values() for x, y in each)
    assert (64, round(iso.unbiased["heavy-tailed"][64].value, 6)) in shown("isoscore-of-few-rows")


def test_numbers_agree_with_what_other_pages_say():
    index = numbers_of("centering-and-neighbors").coco
    page = (DOCS / "mixed_index.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| center \| (.*) \|$", page.split("## Scenes")[0], re.MULTILINE)
    for cell, name in zip(row.split(" | "), ("r_at_1", None, "own_share", "cross_r_at_1", "neighbors"), strict=False):
        if name:
            assert cell == " / ".join(f"{index[side]['center'][name].value:.3f}" for side in ("image", "text"))
    cells = {name: row.split(" | ") for name, row in re.findall(r"^\| (\S+) \| (0\.\d+ \| .*) \|$", page, re.MULTILINE)}
    article = (DOCS / "findings" / "repair-table.md").read_text(encoding="utf-8")
    assert all(cells[name][0] in article for name in ("none", "zscore[centered]", "rrf"))  # precision on CIFAR-10
    assert "precision" not in cells["posterior"][-1]
    assert all("precision" in cells[name][-1] for name in ("zscore[centered]", "rrf"))
    gaps = numbers_of("gap-and-temperature").gaps
    assert gaps["siglip"].value > 2 * gaps["clip"].value > 8 * gaps["fixed_temperature"].value


def test_what_the_claims_say_holds_beyond_the_errors():
    def apart(one, other):
        return one.value - other.value > 2 * ((one.error or 0) ** 2 + (other.error or 0) ** 2) ** 0.5

    table = numbers_of("repair-table")
    found, related = table.found, {(each.measure, each.target): each for each in table.found.related}
    assert {"posterior", "rrf"} <= set(found.free) <= set(repairs)  # none is a pipeline
    assert not {"zscore", "quantile"} & set(found.free) and {"posterior", "rrf"} <= set(found.kept)
    assert all(each.value + 2 * each.error < 0 for each in table.costs.values())
    mixed, across = related["gap", "r_at_1"], related["gap", "cross_r_at_1"]
    assert mixed.sure and mixed.low > 0 and not across.sure and across.low < 0 < across.high
    assert related["robin_hood", "neighbors"].rho < 0 and related["average_cosine", "neighbors"].rho < 0
    few, new = numbers_of("few-pairs"), numbers_of("procrustes-and-new-classes").ours
    assert all(apart(few.raw[fit], few.procrustes[fit]) for fit in few.fits)
    assert not any(apart(few.raw[fit], few.center[fit]) for fit in few.fits)
    assert apart(new["identity"]["new"], new["lapack"]["new"]) and apart(new["raw"]["new"], new["identity"]["new"])
    assert not apart(new["lapack"]["known"], new["identity"]["known"])
    cone = numbers_of("cone-before-training")
    assert all(not apart(cone.ends["initial"][side], cone.ends["zero"][side]) for side in ("image", "text"))
    assert all(apart(cone.before[side], cone.after[side]) for side in ("image", "text"))
    image = [each.value for each in cone.stream["image"]]
    text = [each.value for each in cone.stream["text"]]
    assert image == sorted(image, reverse=True) and text[1:] == sorted(text[1:]) and text[0] > text[1]
    for k, each in numbers_of("intrinsic-dimension").known.items():
        assert each["published"].value == pytest.approx(each["standard"].value / 2, rel=0.05), k
    found = numbers_of("least-squares-and-prompts").found
    assert len({value for name, value in found.items() if name != "zero-shot"}) == 1
