"""The contract of every experiment, on the small run of every config: records, figures, sentences, resumption."""

import re
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clip_geometry.geometry import measures
from clip_geometry.results import Results
from clip_geometry_experiments.kit.base import RunFolder
from clip_geometry_experiments.run.runner import plan, resolve

CONFIGS = Path(__file__).parents[3] / "configs"
EVERY = [str(path.relative_to(CONFIGS).with_suffix("")) for path in sorted(CONFIGS.rglob("*.yaml"))]
QUICK = {"quickstart", "rudman2024/stability"}


@pytest.fixture(
    params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EVERY],
    ids=lambda name: name.replace("/", "-"),
)
def name(request):
    return request.param


@pytest.fixture
def planned(name, report_of):
    """The experiments of the run, as they are planned again in its folder."""
    folder = RunFolder(report_of(name).parent, "cpu")
    return [kind(config, folder) for kind, config in plan(resolve(name, {}, smoke=True), name)]


def test_every_number_is_explained_and_says_where_it_comes_from(planned, report_of, name):
    rows = Results(report_of(name).parent / "results.jsonl").read()
    explained = {*measures, *chain(*(each.explanations for each in planned))}
    bare = {name.partition("[")[0] for name in explained}  # of a variant that has no entry of its own
    assert rows and all({row["measure"], row["measure"].partition("[")[0]} & (explained | bare) for row in rows)
    for row in rows:
        assert row["value"] is not None or row["note"], row
        assert isinstance(row["at"], dict) and row["versions"]["clip-geometry"], row
        assert row.get("n") is None or row["n"] > 0, row


def test_a_finished_run_has_nothing_left_and_listing_its_cells_embeds_nothing(planned, monkeypatch):
    monkeypatch.setattr(RunFolder, "embeddings", lambda *_, **__: pytest.fail("embedded"))
    keys = [cell.key for each in planned for cell in each.cells()]
    assert keys and set(keys) <= Results(planned[0].workspace.folder / "results.jsonl").finished()


def test_every_figure_is_drawn_and_on_the_page(name, report_of):
    report = report_of(name)
    page = report.read_text(encoding="utf-8")
    figures = list((report.parent / "figures").rglob("*.svg"))
    for path in figures:
        assert len(list(ElementTree.parse(path).iter())) > 50 and path.with_suffix(".png").stat().st_size > 1000
        assert f'href="{path.relative_to(report.parent)}"' in page
    assert page.count("<figure") == len(figures) + page.count("Not drawn: ")
    assert all(len(words) > 40 for words in re.findall(r"<figcaption>(.*?)</figcaption>", page, re.DOTALL))


def test_every_section_begins_with_one_to_three_sentences(name, report_of):
    source = report_of(name).read_text(encoding="utf-8")
    briefs = re.findall(r'<ul class="findings">(.*?)</ul>', source, re.DOTALL)
    assert len(briefs) == source.count('<div class="part"')
    for brief in briefs:
        sentences = re.findall(r"<li>(.*?)</li>", brief, re.DOTALL)
        assert 1 <= len(sentences) <= 3
        for sentence in sentences:
            assert sentence.endswith(".") and not re.search(r"None|nan|\{|\s[,.;]", sentence), sentence
