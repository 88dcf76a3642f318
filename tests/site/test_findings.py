"""The articles: their pages say what the records say, their figures show it, and what they name exists."""

import os
import re
from pathlib import Path

import pytest

from clip_geometry.search.repairs import repairs
from clip_geometry_experiments.published.ledger import ledger, papers
from clip_geometry_experiments.published.recorded import read_recorded
from support.generated import generated, site_module

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = site_module("findings")
ARTICLES, numbers_of = SITE.ARTICLES, SITE.numbers_of
SOURCES = site_module("generated").SOURCES
NAMES = [f"{name}.md" for name in (*ARTICLES, "index")]


@pytest.fixture(scope="module")
def pages():
    """Name of a page → its Markdown."""
    return {path.removeprefix("findings/"): text for path, text in generated("findings/").items()}


def test_every_article_has_a_page_and_there_is_no_other(pages):
    assert len(ARTICLES) == len(NAMES) - 1 >= 10
    assert set(pages) == set(NAMES)
    assert {path.name for path in SITE.TEMPLATES.iterdir()} == {f"{page}.j2" for page in NAMES}


@pytest.mark.parametrize("name", ARTICLES)
def test_an_article_has_a_claim_a_figure_what_follows_and_its_limits(pages, name):
    page = pages[f"{name}.md"]
    title, claim, figure, *_ = page.split("\n\n")
    assert title.startswith("# ") and re.search(r"\d", claim) and claim.endswith(".") and len(claim.split()) < 60
    # one sentence: a full stop within it belongs to a number
    assert not re.search(r"(?<!et al)\.\s", claim)
    assert re.fullmatch(rf"!\[[A-Z][^\]]{{30,}}\]\(\.\./figures/findings/{name}\.svg\)", figure)
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["What follows", "Limits", "Run it"]
    assert 200 <= sum(len(line.split()) for line in page.splitlines() if not line.startswith("|")) <= 400
    assert all(len(line) <= 120 for line in page.splitlines() if not line.startswith(("!", "#")))


SETTINGS = {  # decimals and percentages of a template that are chosen, not measured, or a round name of a value
    "centering-and-neighbors": {"95"},  # the level of a limit
    "clusters-of-random-labels": {"0.9"},  # "near −0.9"
    "isoscore-of-few-rows": {"0.2"},  # ζ of the authors' script
    "procrustes-and-new-classes": {"10"},  # chance with ten classes
    "repair-table": {"5", "95"},  # a level and an interval
}


@pytest.mark.parametrize("name", ARTICLES)
def test_no_result_is_typed_into_a_template(name):
    """What was measured comes from a record, in {{ }}: a number typed beside it outlives the next run."""
    template = (SITE.TEMPLATES / f"{name}.md.j2").read_text(encoding="utf-8")
    prose = re.sub(r"{{.*?}}|{%.*?%}|{#.*?#}|`[^`]*`", "", template, flags=re.DOTALL)
    assert set(re.findall(r"\d+\.\d+|\d+(?=%)", prose)) <= SETTINGS.get(name, set())


@pytest.mark.parametrize("page", NAMES)
def test_links_configs_and_scripts_exist(pages, page):
    text = pages[page]
    for target in re.findall(r"(?<!\!)\[[^\]]*\]\(([^)#]+)", text):
        path = os.path.normpath(f"findings/{target}")
        assert path.removeprefix("findings/") in pages or path in SOURCES or (DOCS / path).exists(), target
    for path in re.findall(r"\b(?:configs|scripts)/[\w/]+\.(?:yaml|py)", text):
        assert (ROOT / path).exists(), path


def test_the_index_has_the_claim_of_each_and_findings_of_the_papers_refer_to_articles(pages):
    index = " ".join(pages["index.md"].split())
    for name in ARTICLES:
        title, claim, *_ = pages[f"{name}.md"].split("\n\n")
        assert f"[{title.removeprefix('# ')}]({name}.md). {' '.join(claim.split())}" in index
    linked = {finding.article for paper in papers() for finding in ledger(paper).findings} - {""}
    assert linked <= set(ARTICLES) and len(linked) >= 6


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
    assert all(cells["none"][0] > cells[name][0] for name in ("zscore[centered]", "rrf"))  # precision on CIFAR-10
    assert "precision" not in cells["posterior"][-1]
    assert all("precision" in cells[name][-1] for name in ("zscore[centered]", "rrf"))
    gaps = numbers_of("gap-and-temperature").gaps
    assert gaps["siglip"].value > 2 * gaps["clip"].value > 8 * gaps["fixed_temperature"].value


def paired():
    """Modality → the average cosines of fresh embeddings by seed, with the initial biases and with none."""
    rows = [row for run in read_recorded(DOCS / "findings" / "records").values() for row in run
            if row.get("measure") == "average_cosine" and row["at"].get("operation") == "projection"]  # fmt: skip

    def values(side, zero):
        chosen = [row for row in rows if row["at"]["modality"] == side and row["model_options"]["zero_bias"] is zero]
        return [row["value"] for row in sorted(chosen, key=lambda row: row["model_options"]["seed"])]

    return {side: (values(side, False), values(side, True)) for side in ("image", "text")}


def test_what_the_claims_say_holds_beyond_the_errors():
    def apart(one, other):
        return one.value - other.value > 2 * (one.error**2 + other.error**2) ** 0.5

    table = numbers_of("repair-table")
    found = table.found
    for each, maps in ((found.registered, 26), (table.as_listed, 15)):
        assert each.maps - 1 == maps and not each.sure and each.low < 0 < each.high
    assert {"zscore", "quantile", "posterior", "rrf"} <= set(found.free) <= set(repairs)  # none is a pipeline
    assert set(found.free) - set(found.strict) == {"zscore", "quantile"}
    assert all(each.value + 2 * each.error < 0 for each in table.costs.values())
    mixed, merged = (table.relation(among, "gap", "r_at_1") for among in (found.related, found.ideas))
    assert mixed.sure and mixed.low > 0 and not merged.sure and 0 < merged.rho < mixed.rho
    assert {each.measure for each in found.ideas if each.sure} == {"ilisi"}
    few, new = numbers_of("few-pairs"), numbers_of("procrustes-and-new-classes").ours
    assert all(apart(few.raw[fit], few.procrustes[fit]) and apart(few.raw[fit], few.lapack[fit]) for fit in few.fits)
    lapack = [few.lapack[fit].value for fit in few.fits]  # with few pairs far worse than the other completion
    assert lapack == sorted(lapack) and 0.07 < lapack[0] < 0.10 and 0.32 < lapack[-1] < 0.36
    assert apart(few.procrustes[few.fits[0]], few.lapack[few.fits[0]])
    assert max(few.fits) < 512 and (few.best, few.worst) == (25, 200)  # not monotone: more pairs are not always worse
    falls = [100 * (few.raw[fit].value - few.center[fit].value) for fit in few.fits]
    assert few.lower == pytest.approx((min(falls), max(falls))) and few.lower[0] > 0  # at every size
    # of text in the limits: more than 50 pairs are on record, but none without a fall
    assert few.scenes_raw[50].value > few.scenes[50].value
    scenes = numbers_of("centering-and-neighbors").scenes  # calibration does not do more than centering everywhere
    assert apart(scenes["image"]["center"]["r_at_1"], scenes["image"]["posterior"]["r_at_1"])
    trained = numbers_of("gap-and-temperature")
    assert all(apart(trained.accuracies["clip"][k], trained.accuracies["siglip"][k]) for k in ("seen", "held out"))
    assert trained.rates.siglip < trained.rates.others
    warmth, gaps = trained.temperatures, trained.gaps  # with one learning rate, warmer is nearer, but for I-STAR
    assert warmth["istar"].value - warmth["clip"].value < min(warmth["istar"].error, warmth["clip"].error)
    assert gaps["istar"].value > gaps["clip"].value
    for less in ("clip", "istar"):
        assert gaps[less].value > gaps["cosreg"].value > gaps["fixed_temperature"].value
        assert warmth[less].value < warmth["cosreg"].value < warmth["fixed_temperature"].value
    scores = numbers_of("published-isotropy")
    # the sign convention doubles I1; the basis moves I2 by less where rows have a mean
    isotropy, centered = scores.ours, scores.centered
    for side in ("image", "text"):
        assert apart(isotropy["i1"]["signs"][side], isotropy["i1"]["definition"][side])
        assert isotropy["i1"]["definition"][side].value < 0.5 * isotropy["i1"]["rows"][side].value
        assert 1 < isotropy["i2"]["definition"][side].value / isotropy["i2"]["rows"][side].value < 1.5
        # of centered rows it is I2 that the basis moves
        i1, i2 = ({k: centered[m][k][side].value for k in ("definition", "rows")} for m in ("i1", "i2"))
        assert i2["definition"] > 3 * i2["rows"] and 0.9 * i1["rows"] < i1["definition"] < i1["rows"]
    assert new["lapack"]["new"].value < 0.1  # below chance, also at the limit: none of 126 has a chance of 5% there
    assert numbers_of("procrustes-and-new-classes").limit == f"95% limit {100 * (1 - 0.05 ** (1 / 126)):.1f}%"
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
    dimension = numbers_of("intrinsic-dimension")  # half of each row is more than half of the average
    ratios = [each["published"].over(each["standard"])
              for each in (dimension.static, dimension.words, dimension.windows)]  # fmt: skip
    assert all(ratio.value - 2 * ratio.error > 0.55 for ratio in ratios)
    # words of sentences are not sub-words in windows: the two runs differ beyond their errors
    assert apart(dimension.windows["standard"], dimension.words["standard"]) and apart(ratios[1], ratios[2])
    score = numbers_of("isoscore-of-few-rows")
    assert score.left[16][16].value > 2 * score.left[16][16].error  # Gaussian, n = d: not unbiased
    assert all(abs(score.left[128][n].value) <= 2 * score.left[128][n].error for n in (64, 128, 256))
    moved = {side: max(abs(a - b) for a, b in zip(*pairs, strict=True)) for side, pairs in paired().items()}
    assert cone.moved == pytest.approx(moved) and moved["image"] < 0.001 and moved["text"] < 0.011
    assert numbers_of("intrinsic-dimension").low == [4, 8, 16]
    gap = numbers_of("centering-and-neighbors").gap  # of other pairs than those centered on: not 0
    assert 10 * gap.after.error < gap.after.value < gap.before.value / 5
    hubs = table.relation(found.related, "robin_hood", "neighbors")
    assert hubs.sure and hubs.rho < 0 and sum(each.sure for each in found.related) == 6
    null = numbers_of("clusters-of-random-labels")
    assert not any(value.error for value in null.own.values())  # pooled: the error on record is that of another mean
    off = [null.own[task].value - value for task, value in null.pooled.items()]
    assert len(null.nulls) + len(off) == 4 and 0.02 < max(map(abs, [*off, null.apart["wnli"].value])) <= null.within
    assert null.apart["wnli"].value > 20 * null.apart["wnli"].error
    assert set(null.nulls) >= {"wnli"} and all(value.value < -0.999 for value in null.null_ranks.values())
    found = numbers_of("least-squares-and-prompts").found
    assert len({value for name, value in found.items() if name != "zero-shot"}) == 1
