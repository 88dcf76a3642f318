"""The page of the claims says what the recorded trainings say."""

import re
from pathlib import Path

import pytest

from clip_geometry_experiments.studies.train_clip.interventions import claims
from support.generated import generated_page, site_module

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site():
    return site_module("claims")


@pytest.fixture(scope="module")
def page():
    return generated_page("claims.md")


def test_every_claim_has_a_row_with_its_verdict(page):
    rows = [row for line in page.splitlines() if len(row := line.split(" | ")) == 6 and "**" in row[1]]
    assert len(rows) == len(claims())
    assert {re.sub(r"[*\\]", "", row[1]) for row in rows} == {"holds", "does not hold", "tie"}
    for path in re.findall(r"\b(?:configs|scripts|src|docs)/[\w/.]+\.(?:yaml|py|jsonl)", page):
        assert (ROOT / path).exists(), path


def test_claims_of_papers_and_of_this_project_are_counted_apart(site, page):
    page = " ".join(page.split())
    sources = re.findall(r"\| (?:[^|]*(?:arXiv|JMLR|this project)[^|]*) \|", page)
    own = sum("this project" in each for each in sources)
    assert (len(sources), own) == (len(claims()), 1)
    verdicts = [each.verdict for each in site.judged() if each.claim.published]
    holds, fails, ties = (verdicts.count(verdict) for verdict in ("holds", "does not hold", "tie"))
    assert page.startswith(f"# Published claims, tested on small CLIPs {len(sources) - own} published claims about ")
    assert f"{holds} hold and {fails} do not hold here" in page and f"{ties} stay open" in page
    assert "One claim of this project, counted apart, does not hold." in page


def test_holm_is_shown_for_both_verdicts(site, page):
    """Each verdict in steps over all claims, from the p values that test_interventions.py compares with SciPy's."""
    kept = {}
    for verdict in ("holds", "does not hold"):
        tests = sorted((each.p[verdict], each.verdict == verdict) for each in site.judged())
        first = [p <= 0.05 / (len(claims()) - k) for k, (p, _) in enumerate(tests)].index(False)
        kept[verdict] = sum(decided for _, decided in tests[:first])
        assert page.count(f"**{verdict}**\\*") == kept[verdict]
    assert kept == {"holds": 4, "does not hold": 2}
    joined = " ".join(page.split())
    corrected = "4 hold and 2 do not; in one family with two-sided p, 3 and 2."
    assert corrected in joined and "4 of the 9 that hold, 2 of the 6 that do not." in joined
    assert "1 of these would not stay (zero-shot, centered − as it is)" in joined  # both verdicts in one family
    config = " ".join((ROOT / "configs" / "train_claims.yaml").read_text(encoding="utf-8").replace("#", "").split())
    assert corrected in config


def test_what_the_page_says_about_seeds_and_scenes(site, page):
    """Sentences of the template that no number carries."""
    judged = {each.claim.name: each for each in site.judged()}
    together = site.holm(site.judged())
    assert min(judged["mismatched-pairs"].effects.values()) > 0 and "mismatched-pairs" in together
    assert {"closing-and-accuracy", "closing-and-retrieval"} & together == {"closing-and-accuracy"}
    page = " ".join(page.split())
    assert "no interval on this page includes what other scenes would change" in page
    assert "neither other settings nor other scenes" in page
    assert site.data().error == f"{(0.1824 * 0.8176 / 1000) ** 0.5:.3f}"
    assert "only the change of accuracy is shown to be that small" in page
    assert (
        "10,000 training scenes, 512 scenes on which geometry is measured and 1,000 on which tasks are scored" in page
    )
    assert "Accuracy among 80 classes, 16 of them never seen in training" in page
    # 21 tests of a direction or level, two of equality: 21 · 0.025
    assert "each of the 21 tests" in page and "0.5 in all; the 2 tests of equality" in page


def test_swapped_captions_widen_the_gap_in_most_settings(site, page):
    """By hand: setting by setting, where the page said "in every seed" of the mean over settings."""
    gaps = {(*each.setting, each.seed): each.values["modality_gap both last"] for each in site.recorded()}
    rising = {}
    for (objective, dimension, noise, captions, seed), gap in gaps.items():
        if noise == 0.3:
            clean = gaps[objective, dimension, 0.0, captions, seed]
            rising.setdefault((objective, dimension), []).append(gap > clean)
    assert sorted(map(sum, rising.values())) == [2, 4, 4, 4, 4, 4, 4, 4]
    assert sum(rising["ClipLoss at 0.02", 16]) == 2
    page = " ".join(page.split())
    assert "It rises in every seed in 7 of 8 settings; under ClipLoss at 0.02, 16 columns, it falls in 2 of 4" in page
    assert "a tie without seed 0, 1 or 3" in page


def test_earlier_trainings_are_named(page):
    """Whoever chose the bounds could have read these: they are recorded with what the claims are about."""
    page = " ".join(page.split())
    assert "repetitions, not blind tests" in page and "docs/training/train_scenes_arms.jsonl" in page
    rows = (ROOT / "docs" / "training" / "train_scenes_arms.jsonl").read_text(encoding="utf-8")
    assert all(f'"{name}"' in rows for name in ("average_cosine", "modality_gap", "train_clip.temperature"))


def test_verdicts_over_draws_of_settings_are_on_the_page(site, page):
    """By the rule for a claim of a direction, from the printed intervals."""
    over = {name: more.settings for name, more in site.sensitivity().items() if more.settings}
    changed = {name for name, each in over.items() if each.verdict != site.verdict(
        each.claim, *site.interval(list(each.effects.values())))}  # fmt: skip
    assert changed == {"distribution-gap", "alignment-and-accuracy", "collapse-and-gap"}
    assert over["alignment-and-accuracy"].high > 0 and over["distribution-gap"].high > 0.1
    assert -0.1 < over["collapse-and-gap"].low < 0 and -0.08 < over["isotropy-and-classification"].low < -0.02


def test_the_grid_is_crossed_with_seeds(site):
    grid = {(*each.setting, each.seed) for each in site.recorded()}
    settings = {each[:-1] for each in grid}
    assert len(grid) == len(site.recorded()) == 80 and len(settings) == 20
    assert grid == {(*setting, seed) for setting in settings for seed in range(4)}


def test_what_was_added_by_hand(site):
    """Within dimension and noise, centering by setting, SigLIP with clean captions; the registered verdicts stay."""
    more, registered = site.sensitivity(), {each.claim.name: each for each in site.judged()}
    assert registered["distribution-gap"].verdict == "does not hold" == registered["siglip"].verdict
    within = more["distribution-gap"].within
    assert within.verdict == "tie" and within.low < 0 < within.mean < within.high
    for name in ("siglip", "uniformity-and-accuracy"):
        assert (more[name].within is None) == (more[name].settings is None) == (name == "siglip")
    assert more["mismatched-pairs"].clean is None
    gaps = {(*each.setting, each.seed): each.values["modality_gap both last"] for each in site.recorded()}
    clean = [
        gaps["SigLIP", *key[1:]] - gap for key, gap in gaps.items() if key[0] == "ClipLoss" and key[2:4] == (0, 0.75)
    ]
    assert len(clean) == 8 and more["siglip"].clean.mean == pytest.approx(sum(clean) / 8)
    assert more["siglip"].clean.verdict == "tie"
    zero_shot, pairs, mixed = site.centering()
    assert zero_shot.clear[0] == "−0.036 [−0.069, −0.003] from 0.235 (ClipLoss at 0.02, 128 columns, clean)"
    assert len(pairs.clear) == 3 and mixed.floor == 10 and mixed.before == pytest.approx(0.0268, abs=1e-4)
