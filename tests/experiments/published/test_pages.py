import re
from pathlib import Path

import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.published.ledger import entries, ledger, papers
from clip_geometry_experiments.published.pages import _recorded_text, paper_pages
from clip_geometry_experiments.published.recorded import read_recorded
from clip_geometry_experiments.published.tables import VERDICTS

ROOT = Path(__file__).parents[3]
RECORDED = read_recorded(ROOT / "docs/reproduction")
ARTICLES = read_recorded(ROOT / "docs/findings/records")
PAGES = paper_pages(RECORDED, ARTICLES)
ZERO_SHOT = "tyshchuk2023-zero_shot"


def accuracy(value, **fields):
    return {
        "measure": "zero_shot.top_1", "value": value, "standard_error": 0.0041, "n": 10000, "d": 512,
        "pipeline": ["normalize"], "model": "scenes-clip/fresh", "model_options": {"seed": 0}, "dataset": "cifar100",
        "data_options": {"prompt": "low-resolution photo of a {_}"}, "split": "test",
        "at": {"row": "CLIP", "split": "test"},
    } | fields  # fmt: skip


def joined(page):
    return " ".join(page.split())


@pytest.mark.parametrize("name", PAGES)
def test_the_page_in_docs_is_what_was_recorded(name):
    """After recording a run or changing the ledger: python scripts/build_docs.py."""
    assert (ROOT / "docs/papers" / name).read_text(encoding="utf-8") == PAGES[name]


def test_no_other_page_is_there():
    assert {path.name for path in (ROOT / "docs/papers").iterdir()} == set(PAGES)
    assert set(PAGES) == {f"{paper}.md" for paper in papers()} | {"index.md"}


def test_a_line_has_published_ours_difference_cause_and_setup():
    recorded = accuracy(0.0123, command="clip-geometry run x.yaml", date="2026-01-02", version="0.1.0")
    page = paper_pages({ZERO_SHOT: [recorded]})["tyshchuk2023.md"]
    line = (
        "| CLIP | 63.09 | 1.23\u00a0±\u00a00.41 | – | *cosine, as published; normalize*: "
        "a small untrained CLIP instead of ViT-B/32 | A, 10000\u00a0×\u00a0512 |"
    )
    assert line in page.splitlines()
    setup = "a small untrained CLIP (seed 0) on CIFAR-100 (prompt low-resolution photo of a {_}), test; "
    assert f"**A**: {setup}`clip-geometry run x.yaml`; 2026-01-02," in joined(page)
    assert 'keep the underscores of class names ("aquarium_fish")' in joined(page)
    assert "and 1 with another model or other data." in joined(page)


@pytest.mark.parametrize("recorded", [{}, RECORDED], ids=["nothing", "recorded"])
def test_every_number_of_a_paper_with_a_ledger_is_on_its_page(recorded):
    pages = paper_pages(recorded, recorded and ARTICLES)
    for paper in papers():
        page = joined(pages[f"{paper}.md"])
        for entry in entries(paper):
            number = entry.shown.replace("IsoScore*", r"IsoScore\*")
            in_table = f"| {entry.label} | {number} |"
            assert in_table in page or f"| {entry.title} | {number} |" in page, entry.path
        assert f"{len(entries(paper))} published numbers" in page


@pytest.mark.parametrize("name", PAGES)
def test_lines_are_short_and_links_lead_somewhere(name):
    page, folder = PAGES[name], ROOT / "docs/papers"
    assert all(len(line) <= 120 or " " not in line for line in page.splitlines() if not line.startswith("|"))
    for target in re.findall(r"\]\(([^)#]+)\)", page):
        article = ROOT / "scripts/site/findings" / f"{Path(target).name}.j2"  # rendered when the site is built
        assert (folder / target).exists() or (target.startswith("../findings/") and article.exists()), target


def test_claims_come_first_with_their_rule_and_findings_have_anchors():
    for paper in papers():
        page = PAGES[f"{paper}.md"]
        heads = re.findall(r"^## (.*)$", page, re.MULTILINE)
        assert heads == ["Claims", "Findings about its numbers", "All numbers"]
        rows = re.findall(r"^\| .* \| \*\*([a-z ]+)\*\* \| .* \|$", page, re.MULTILINE)
        assert len(rows) == len(ledger(paper).claims)
        assert all(f"- **{verdict}**: {VERDICTS[verdict]}"[:100] in joined(page) for verdict in rows)
        assert all(f"### {finding.title}\n" in page.replace("\\*", "*") for finding in ledger(paper).findings)


def test_the_config_or_the_test_of_a_claim_exists():
    for paper in papers():
        for name in re.findall(r"\*\* \| `(.*?)`", PAGES[f"{paper}.md"]):
            path = name.removeprefix("pytest ") if name.startswith("pytest ") else f"configs/{paper}/{name}.yaml"
            assert (ROOT / path).exists(), name


def test_the_verdicts_that_we_know():
    known = {
        "CLIP's texts and images have an I1 above 0.8": "differs elsewhere",
        "Neither centering nor whitening to 128 directions lowers CLIP's loss": "same order",
        "Neither Procrustes nor least squares lowers CLIP's loss": "undecided",
        "The gap between matching and random held-out pairs grows": "undecided",
        "The images of an untrained CLIP without biases have an I2 of 16.61": "undecided",
        "Procrustes, fitted on half of the classes": "same order",
        "On supersenses of nouns, r is negative": "undecided",
        "On WNLI with MiniLM": "undecided",
        "On MRPC, RTE and SST-2 with MiniLM": "undecided",
        "Contextual embeddings have fewer local dimensions": "undecided",
        "After Procrustes and least squares, held-out pairs": "undecided",
        "On polarity, silhouette and IsoScore correlate": "reproduced",
        "On SNLI, r is": "agrees elsewhere",
        "I-STAR with λ = −1 beats no penalty": "undecided",
        "Performance and isotropy correlate negatively": "undecided",
        "At any step, the standard deviation over seeds is below 0.0054": "undecided",
        "BERT has 5.6 local dimensions": "not run here",
        "The same bound holds for the silhouette objective": "does not hold",
    }
    lines = "\n".join(PAGES.values()).splitlines()
    for start, verdict in known.items():
        (line,) = [line for line in lines if line.startswith(f"| {start}")]
        assert f"**{verdict}**" in line


def test_a_number_of_a_finding_is_that_of_one_recorded_row():
    rows = [accuracy(0.5), accuracy(0.25, standard_error=None, null_value=0.2, null_values=[0.1, 0.3], n=7)]
    rows.append(accuracy(0.25, standard_error=0.01, seed_values=[0.2, 0.4], n=8))
    assert _recorded_text(rows, "value", {"n": 8}) == "0.250 ± 0.010"
    rows.append(accuracy(0.25, standard_error=None, seed_values=[0.29, 0.31], n=9))
    assert _recorded_text(rows, "value", {"n": 9}) == "0.250"  # the digits of 0.300 ± 0.010, not the error
    assert _recorded_text(rows, "seed_values", {"n": 8}) == "0.30 ± 0.10"
    assert _recorded_text(rows, "value", {"n": 10000, "at__split": "test"}) == "0.5000 ± 0.0041"
    assert _recorded_text(rows, "null_values", {"n": 7}) == "0.20 ± 0.10"
    assert _recorded_text([], "value", {"n": 7}) == "–"
    with pytest.raises(InputError, match="3 recorded rows match the selectors"):
        _recorded_text(rows, "value", {"split": "test"})
