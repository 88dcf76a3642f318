import re
from pathlib import Path

import pytest

from clip_geometry.registry import InputError
from clip_geometry_experiments.published.claims import VERDICTS
from clip_geometry_experiments.published.ledger import entries, ledger, papers, published
from clip_geometry_experiments.published.pages import _recorded_text, all_lines, anchor, paper_pages
from clip_geometry_experiments.published.recorded import read_recorded

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
    assert 'keep the underscores of the class names ("aquarium_fish")' in joined(page)
    assert "1 beside ours with another model or other data" in joined(page)


def test_rows_of_untrained_models_come_last():
    """They are at or near chance; the accuracies of CIFAR-100 by an untrained model came first."""
    mixed = 0
    for paper in papers():
        for line in all_lines(paper, RECORDED):
            fresh = ["/fresh" in str(ours.row.get("model")) for ours in line.ours]
            assert fresh == sorted(fresh), line.entry.published.path
            mixed += len(set(fresh)) == 2
    assert mixed > 20  # Tables 3 to 5
    section = PAGES["tyshchuk2023.md"].partition("### Table 3")[2].partition("### Table 4")[0]
    numbers = re.split(r"^\| (?=[^| ])", section, flags=re.MULTILINE)
    (clip,) = (each for each in numbers if each.startswith("CLIP | 63.09"))
    last = clip.strip().splitlines()
    assert "a small untrained CLIP" in next(each for each in reversed(last) if each.count("|") > 4)


def test_what_nobody_ran_says_what_it_needs():
    page = joined(paper_pages({})["tyshchuk2023.md"])
    assert "Not run here: ruCLIP 53.14; Procrustes on CIFAR's training images 59.35;" in page
    assert "It needs OpenAI's ViT-B/32" in page and "### Setups" not in page
    assert "`clip-geometry run configs/tyshchuk2023/zero_shot.yaml model=open_clip:ViT-B-32-quickgelu/openai" in page
    assert "Nothing of ours: perplexity of t-SNE, images 5; perplexity of t-SNE, texts 50. A setting, not a" in page


@pytest.mark.parametrize("recorded", [{}, RECORDED], ids=["nothing", "recorded"])
def test_every_number_of_a_paper_with_a_ledger_is_on_its_page(recorded):
    pages = paper_pages(recorded, recorded and ARTICLES)
    for paper in papers():
        page = joined(pages[f"{paper}.md"])
        for entry in entries(paper):
            number = entry.published.shown.replace("IsoScore*", r"IsoScore\*")
            in_table = f"| {entry.label} | {number} |"
            in_list = f"{entry.label} {number}" if entry.published.keys else number
            assert in_table in page or in_list in page, entry.published.path
        assert f"{len(published(paper))} published numbers" in page


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
        assert heads == ["Claims", "What its numbers turn out to be", "All numbers"]
        rows = re.findall(r"^\| .* \| \*\*([a-z ]+)\*\* \| .* \|$", page, re.MULTILINE)
        assert len(rows) == len(ledger(paper).claims)
        assert all(f"- **{verdict}**: {VERDICTS[verdict]}"[:100] in joined(page) for verdict in rows)
        assert all(f"### {finding.title}\n" in page.replace("\\*", "*") for finding in ledger(paper).findings)


def test_options_of_a_claim_are_where_its_link_leads():
    for paper in papers():
        page = PAGES[f"{paper}.md"]
        anchors = {anchor(title) for title in re.findall(r"^#+ (.*)$", page, re.MULTILINE)}
        assert set(re.findall(r"\(#([^)]*)\)", page)) <= anchors
        for line in [line for line in page.splitlines() if "[options](#" in line]:
            config, place = re.findall(r"`(\w+)` \(\[options\]\(#([^)]*)\)\)", line)[0]
            below = next(
                part for part in re.split(r"^### ", page, flags=re.MULTILINE) if anchor(part.split("\n")[0]) == place
            )
            assert f"configs/{paper}/{config}.yaml" in joined(below), line


def test_the_config_or_the_test_of_a_claim_exists():
    for paper in papers():
        for name in re.findall(r"\*\* \| `(.*?)`", PAGES[f"{paper}.md"]):
            path = name.removeprefix("pytest ") if name.startswith("pytest ") else f"configs/{paper}/{name}.yaml"
            assert (ROOT / path).exists(), name


def test_anchors_are_those_of_github_and_python_markdown():
    assert anchor("Table 2: CLIP's loss, after (some) maps") == "table-2-clips-loss-after-some-maps"


def test_the_verdicts_that_we_know():
    known = {
        "CLIP's texts and images have an I1 above 0.8": "differs elsewhere",
        "Neither centering nor whitening to 128 directions lowers CLIP's loss": "same order",
        "Neither Procrustes nor least squares lowers it": "undecided",
        "The gap between matching and random held-out pairs grows": "undecided",
        "Its images have an I2 of 16.61": "undecided",
        "Procrustes, completed by LAPACK": "same order",
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


def test_the_index_counts_the_numbers_with_ours():
    lines = [line for paper in papers() for line in all_lines(paper, RECORDED)]
    counted = f"({sum(bool(line.ours) for line in lines)} of {len(lines)})"
    assert f"every published number, next to ours where we have one {counted}" in joined(PAGES["index.md"])


def test_the_index_counts_verdicts():
    index = joined(PAGES["index.md"])
    for paper in papers():
        verdicts = re.findall(r"\| \*\*([a-z ]+)\*\* \|", PAGES[f"{paper}.md"])
        (counts,) = re.findall(rf"\[{len(verdicts)} claims\]\({paper}\.md\): (.*?)\.", index)
        assert dict(part.rsplit(" ", 1) for part in counts.split(", ")) == {
            verdict: str(verdicts.count(verdict)) for verdict in verdicts
        }


def test_stars_are_no_emphasis_and_what_is_no_command_is_no_code():
    assert "*" not in re.sub(r"\\\*|\*\*[a-z ]+\*\*|(?<=\| )\*[^*]+\*", "", "\n".join(
        line for line in PAGES["rudman2024.md"].splitlines() if line.startswith("|")
    ))  # fmt: skip
    assert "the authors' code, analysis.py: lid, lids" in joined(PAGES["cai2021.md"]).replace("`", " ` ")
    assert "`clip-geometry run configs/mickus2024/supersense.yaml`" in joined(PAGES["mickus2024.md"])


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
    with pytest.raises(InputError, match="a finding names 3 recorded rows by"):
        _recorded_text(rows, "value", {"split": "test"})


def test_a_bar_does_not_break_the_table():
    page = paper_pages({ZERO_SHOT: [accuracy(0.01, fitted_on="a|b")]})["tyshchuk2023.md"]
    assert r"fitted on a\|b" in page
