"""What can be told from the published numbers alone; and the evidence of every finding exists."""

import json
import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

from clip_geometry.data import load_dataset, resolve_dataset
from clip_geometry.display.numbers import plus_minus
from clip_geometry.embedding.loop import embed
from clip_geometry.embedding.store import read_store
from clip_geometry.encoders import resolve_encoder
from clip_geometry.progress import quiet
from clip_geometry_experiments.published.comparing import flat
from clip_geometry_experiments.published.ledger import entries, ledger, papers
from clip_geometry_experiments.published.pages import paper_pages
from clip_geometry_experiments.published.recorded import read_recorded

ROOT = Path(__file__).parents[3]
MAPS = ("Procrustes", "LSTSQ")


@pytest.fixture(scope="module")
def number():
    return {each.path: each.value for each in entries("tyshchuk2023")}.__getitem__


def test_the_halves_of_table_4_make_the_accuracy_of_table_3(number):
    halves = [number(f"table4_generalization.CLIP.{half}") for half in ("known", "new")]
    assert sum(halves) / 2 == pytest.approx(number("table3_zero_shot_cifar100.CLIP"), abs=1e-9)


def test_zero_bias_rows_are_below_the_bound_of_unit_rows(number):
    for modality in ("text", "image"):
        assert number(f"table1_isotropy.zero_bias_random_weights.i1_{modality}") < math.exp(-2)
        assert number(f"table1_isotropy.CLIP.i1_{modality}") > math.exp(-2)


def test_captions_of_figures_2_to_4_are_the_text_column(number):
    rows = {"raw": "CLIP", "centred": "centering", "whitened_128": "whitening-128"}
    captions = [[number(f"figures2_4_captions_image.{row}.{place}") for place in ("i1", "i2")] for row in rows]
    columns = {
        modality: [[number(f"table1_isotropy.{row}.i{k}_{modality}") for k in (1, 2)] for row in rows.values()]
        for modality in ("text", "image")
    }
    assert captions == columns["text"] != columns["image"]


def test_one_accuracy_is_printed_twice_in_table_5(number):
    twice = [number(f"table5_linear_probe.Whitening-{k} on COCO") for k in (256, 128, 64)]
    assert twice[0] == twice[2] != twice[1]


@pytest.mark.parametrize("pair", ["fr-en", "ru-en", "de-en"])
def test_the_ratios_of_table_6_are_those_of_its_distances(number, pair):
    near, far, ratio = (
        number(f"table6_language_distance.{pair}.{name}")
        for name in ("mean_pairwise_distance", "mean_global_distance", "ratio")
    )
    assert near / far == pytest.approx(ratio, abs=0.005)


def test_of_rn101_least_squares_costs_less_than_procrustes(number):
    """As the authors' notebooks print it; the map's loss on held-out pairs, which no map lowers."""
    rn101 = {row: number(f"notebook_rn101_loss.{row}.test") for row in ("CLIP", "centering", "whitening-128", *MAPS)}
    vit = {row: number(f"table2_clip_loss.{row}.test") for row in rn101}
    for losses in (rn101, vit):
        assert min(losses, key=losses.get) == "CLIP"
    assert rn101["LSTSQ"] < rn101["Procrustes"] and vit["Procrustes"] < vit["LSTSQ"]
    for losses in (rn101, vit):
        said = f"after least squares ({losses['LSTSQ']:.4f}) than after Procrustes ({losses['Procrustes']:.4f})"
        assert said in text_of("In the authors' notebook for RN101")


def test_what_is_said_of_pca_is_what_the_notebook_prints(number):
    text = text_of("In the authors' notebook, PCA")
    values = {each.path: each.text for each in entries("tyshchuk2023") if each.section == "notebook_pca"}
    images = [f"training.PCA-400 on CIFAR train{logits}" for logits in ("", ", cosine", ", negated distance")]
    for said, names in (
        ("In the notebook, {} is the accuracy for 400 components", images[:1]),
        ("the notebook prints {} for it, and with negated distances {}", images[1:]),
        ("The {} of 90 components", ["training.PCA-90 on text prompts"]),
        (
            "the notebook prints {} on training images and {} on test images",
            ["COCO.PCA-450.train", "COCO.PCA-450.test"],
        ),
        ("two cells of the notebook print {} and {}", ["COCO.PCA-400.train", "again.PCA-400"]),
    ):
        assert said.format(*(values[f"notebook_pca.{name}"] for name in names)) in text
    assert number("table3_zero_shot_cifar100.PCA-450 on COCO") == 64.1


def test_table_6_has_german_and_russian_the_other_way_round_than_the_notebook(number):
    for file, pair in (("fr_en", "fr-en"), ("de_en", "ru-en"), ("ru_en", "de-en")):
        for name in ("mean_pairwise_distance", "mean_global_distance", "ratio"):
            printed = number(f"table6_language_distance.{pair}.{name}")
            # 39.435593 is printed as 39.43: cut off, not rounded
            assert abs(number(f"notebook_languages.{file}.{name}") - printed) < 0.01


def recorded(run, **where):
    """The values of the rows of a run with these fields, `at.…` flat, by measure."""
    rows = [flat(row) for row in read_recorded(ROOT / "docs/reproduction")[run]]
    return [row for row in rows if all(row.get(key) == value for key, value in where.items())]


def text_of(title, paper="tyshchuk2023"):
    (found,) = (each.text for each in ledger(paper).findings if each.title.startswith(title))
    return " ".join(found.split())


def claim_of(start, paper="tyshchuk2023"):
    (found,) = (each.text for each in ledger(paper).claims if each.text.startswith(start))
    return " ".join(found.split())


def test_cosines_of_held_out_pairs_are_those_recorded():
    text = text_of("On the pairs of the fit")
    run = "tyshchuk2023-joint_distribution_coco500"

    def row(measure, step, part):
        (found,) = recorded(
            run,
            measure=measure,
            pipeline=f"normalize,{step}[text-to-image]",
            split=f"{part} of a random 0.8 split, seed 0",
        )
        return found

    held_out = [row(measure, "procrustes", "last part") for measure in ("matching_cosine", "random_cosine")]
    least_squares = row("matching_cosine", "least_squares", "last part")
    for each in (*held_out, least_squares):
        assert f"{each['value']:.3f} ± {each['standard_error']:.3f}" in text
        assert each["n"] == 100 and each["d"] == 512
    fitted = row("matching_cosine", "procrustes", "first part")
    assert f"The pairs on which we fitted the map have {fitted['value']:.3f}" in text
    assert f"the map of isotropic noise of the same size gives {fitted['null_value']:.3f}" in text
    assert fitted["n"] == 400 and row("matching_cosine", "least_squares", "first part")["value"] == pytest.approx(1)
    assert f"{fitted['null_value']:.2f}" == "0.81"
    for section in ("table2_clip_loss", "notebook_similarity"):
        note = " ".join(ledger("tyshchuk2023").sections[section].note.split())
        assert "Procrustes gives even isotropic noise a cosine of 0.81" in note


def test_whitened_accuracies_are_those_recorded():
    text = text_of("Whitening to more directions")
    for run, rows in (
        ("tyshchuk2023-cifar10", ["CLIP", *(f"Whitening-{k} on CIFAR train" for k in (32, 64, 128))]),
        ("tyshchuk2023-trained", ["CLIP", *(f"Whitening-{k} on COCO" for k in (32, 64, 128))]),
    ):
        found = [recorded(run, measure="zero_shot.top_1", **{"at.row": name})[0] for name in rows]
        values = [plus_minus(100 * each["value"], 100 * each["standard_error"]) for each in found]
        if run.endswith("cifar10"):
            said = "{}% without a map. With whitening fitted on 250 images, it is {}% for 32 directions, "
            said = (said + "{}% for 64 and {}% for 128").format(*values)
        else:
            said = "{}% without a map. With whitening fitted on images and captions together, it is {}% for 32 "
            said = (said + "directions, {}% for 64 and {}% for 128").format(*values)
            alone = [f"Whitening-{k} on CIFAR train" for k in (32, 64, 128)]
            alone = [recorded(run, measure="zero_shot.top_1", **{"at.row": name})[0] for name in alone]
            shown = [plus_minus(100 * each["value"], 100 * each["standard_error"]) for each in alone]
            said_alone = "fitted on images alone, it is {}% for 32 directions, {}% for 64 and {}% for 128"
            assert said_alone.format(*shown) in text
            assert all(each["value"] - 1 / 80 > 2 * each["standard_error"] for each in alone[1:])
            assert abs(alone[1]["value"] - alone[2]["value"]) < 2 * alone[2]["standard_error"]
            assert "do not differ from chance (1.25%) or from each other by more than" in text
            assert abs(found[2]["value"] - found[3]["value"]) < 2 * found[2]["standard_error"]
            assert all(abs(each["value"] - 1 / 80) < 2 * each["standard_error"] for each in found[2:])  # chance
        assert said in text
    probes = recorded("tyshchuk2023-trained", measure="linear_probe.top_1")
    assert len(probes) == 4 and all(probe["value"] > 0.98 for probe in probes)


def test_new_classes_by_completion_are_those_recorded():
    text = text_of("On CIFAR-10, what Procrustes does to new classes")

    def new(run, row):
        of_mean = [
            each
            for each in recorded(run, measure="class_generalization.new", **{"at.row": row})
            if "at.draw" not in each
        ]
        (found,) = of_mean
        return found["value"], found["standard_error"]

    run = "tyshchuk2023-cifar10"
    value, error = new(run, "Procrustes")
    assert new(run, "Procrustes, LAPACK")[0] == 0
    of_new = recorded(run, measure="class_generalization.new", **{"at.row": "Procrustes, LAPACK"})
    assert sorted(each["n"] for each in of_new) == [126, 140] and "(126 images on average)" in text
    assert "0 of 140 images of the other five are correctly classified" in claim_of("Procrustes, fitted on half")
    assert f"our default, it is {100 * value:.0f} ± {100 * error:.0f}%" in text
    value, error = new(run, "CLIP")
    assert f"Without a map, it is {100 * value:.0f} ± {100 * error:.0f}%" in text
    scenes = "tyshchuk2023-trained"
    assert new(scenes, "Procrustes") == new(scenes, "Procrustes, LAPACK")
    lost = new(scenes, "CLIP")[0] - new(scenes, "Procrustes, LAPACK")[0]
    assert abs(lost) < new(scenes, "CLIP")[1]
    assert "on the drawn scenes, the loss is within the error" in claim_of("Procrustes, fitted on half")


def test_the_gap_of_matching_and_random_pairs_is_that_recorded(number):
    text, run = text_of("On the pairs of the fit"), "tyshchuk2023-joint_distribution_coco500"
    gaps, printed, errors = [], [], []
    maps = {"raw": "", "Procrustes": ",procrustes[text-to-image]", "LSTSQ": ",least_squares[text-to-image]"}
    for row, step in maps.items():
        place = {"pipeline": f"normalize{step}", "split": "last part of a random 0.8 split, seed 0"}
        (matching,), (random,) = (recorded(run, measure=f"{name}_cosine", **place) for name in ("matching", "random"))
        gaps.append(f"{matching['value'] - random['value']:.3f}")
        errors.append(math.hypot(matching["standard_error"], random["standard_error"]))
        printed.append(
            f"{number(f'notebook_similarity.{row}.matching') - number(f'notebook_similarity.{row}.random'):.2f}"
        )
    assert "{} without a map, {} after Procrustes and {} after least squares".format(*gaps) in text
    assert "The notebook has {}, {} and {}.".format(*printed) in text
    assert "Our standard errors are {:.3f}, {:.3f} and {:.3f}".format(*errors) in text
    moved = [
        (float(gap) - float(gaps[0])) / math.hypot(error, errors[0]) for gap, error in zip(gaps, errors, strict=True)
    ]
    assert abs(moved[1]) < 2 and moved[2] < -2  # "undecided", "smaller"
    inner = f"The notebook's {number('notebook_similarity.LSTSQ.matching'):.2f} and its gap of {printed[-1]}"
    assert f"{inner} cannot be compared with our numbers, because they are inner products" in text


def test_unit_rows_of_the_untrained_model_without_biases():
    rows = recorded("tyshchuk2023-initialization", measure="isotropy_i1[rows]", pipeline="normalize")
    rows = [row for row in rows if row["model"] == "open_clip:ViT-B-32/fresh" and row["model_options.zero_bias"]]
    for modality in ("text", "image"):
        values = [row["value"] for row in rows if row["at.modality"] == modality]
        assert len(values) == 5 and np.mean(values) == pytest.approx(0.80, abs=0.005)
    assert "unit rows have 0.80" in claim_of("An untrained CLIP without biases")
    rows = recorded("tyshchuk2023-initialization", measure="isotropy_i2", pipeline="", **{"at.modality": "image"})
    i2 = [row["value"] for row in rows if row["model"] == "open_clip:ViT-B-32/fresh" and row["model_options.zero_bias"]]
    assert len(i2) == 5 and np.mean(i2) == pytest.approx(31.9, abs=0.05)
    assert "by definition they have 31.9" in claim_of("The images of an untrained CLIP")
    assert math.sinh(1) < 1.18  # half of e − 1/e: the most that I2 of unit rows can be


def mickus2024(start):
    numbers = [each for each in entries("mickus2024") if each.value is not None]
    return [each.value for each in numbers if each.path == start or each.path.startswith(f"{start}.")]


def test_only_four_tags_fit_the_parameters_of_pos():
    (items,), (count,) = mickus2024("table1_sizes.pos.items"), mickus2024("table1_sizes.pos.parameters")
    fits = [
        (tags, bias, words)
        for tags in range(1, 100)
        for bias in (0, 1)
        for words, rest in [divmod(count - tags * (300 + bias), 300)]
        if rest == 0
    ]
    assert fits == [(4, 1, 14466)] and items == 11462


def test_the_bounds_on_glue_are_those_of_table_3():
    """Rounded to three digits towards 0: −.8386 and −.9665 of the largest."""
    rows = [each for each in entries("mickus2024") if each.section == "table3_glue_correlations"]
    for name, kind in (("r", "pearson"), ("rho", "spearman")):
        largest = max(each.value for each in rows if each.keys[-1] == name)
        (bound,) = mickus2024(f"correlations.glue_always_below.{kind}")
        assert bound - 0.001 < largest < bound


def test_which_lambdas_differ_in_dimension_after_holms_correction():
    """Welch's test of means over three seeds, whose standard errors are of seeds only: of all pairs on both tasks."""
    rows = recorded(
        "rudman2024-finetune_small", measure="two_nn", **{"at.rows": "sentences", "at.training.seed": "all"}
    )
    assert {row["at.seeds"] for row in rows} == {3}
    found = {
        (row["dataset"], row["at.lambda"]): (row["value"], row["standard_error"] * 3**0.5, 3)
        for row in rows
        if row["at.method"] in ("i_star", "none")
    }
    pairs = [(one, other) for one, other in combinations(sorted(found), 2) if one[0] == other[0]]
    p = np.array([ttest_ind_from_stats(*found[one], *found[other], equal_var=False)[1] for one, other in pairs])
    assert len(pairs) == 20
    steps = np.minimum(1, np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)))
    holm = {pairs[k]: step for k, step in zip(np.argsort(p), steps, strict=True)}
    sure = {(one[1], other[1]) for (one, other), each in holm.items() if each < 0.05}
    assert sure == {(-3, 1), (-3, 3), (-1, 1)} and all(found["sst2", low] < found["sst2", high] for low, high in sure)

    def of(one, other):
        return holm[("sst2", one), ("sst2", other)]

    text = text_of("On a part of SST-2", "rudman2024")
    assert (of(-3, 1), of(-3, 3), of(-1, 1)) == pytest.approx((0.008, 0.024, 0.002), abs=0.0005)
    assert (of(-3, 0), of(-1, 0)) == pytest.approx((0.08, 0.22), abs=0.005)
    raw = dict(zip(pairs, p, strict=True))
    none = [raw[("sst2", low), ("sst2", 0)] for low in (-3, -1)]
    assert f"than with λ = 1 (p = {of(-3, 1):.3f}) and λ = 3 (p = {of(-3, 3):.3f}), and lower with λ = −1" in text
    assert f"λ = −1 than with λ = 1 (p = {of(-1, 1):.3f})" in text
    assert f"with λ = −3, p is {of(-3, 0):.2f}, and {none[0]:.3f} before the correction" in text
    assert f"with λ = −1, p is {of(-1, 0):.2f}, and {none[1]:.3f} before the correction" in text
    assert none == pytest.approx([0.005, 0.016], abs=0.0005)


def test_what_is_said_of_glue_is_what_is_recorded():
    said = claim_of("On MRPC, RTE and SST-2", "mickus2024")
    differences = {}
    for task in ("mrpc", "rte", "sst2"):
        (row,) = recorded("mickus2024-glue", measure="classify.pearson", dataset=task)
        (printed,) = mickus2024(f"table3_glue_correlations.minilm.{task}.r")
        differences[task] = abs(row["value"] - printed)
    assert max(differences["mrpc"], differences["rte"]) < 0.001
    assert differences["sst2"] == pytest.approx(0.0047, abs=5e-5)
    assert "less than 0.001 on MRPC and RTE, and by 0.0047 on SST-2" in said


def test_on_seven_tasks_silhouette_is_closer_to_linear_in_the_logarithm():
    assert text_of("On seven tasks", "mickus2024")
    seven = [("glue", task) for task in ("wnli", "rte", "mrpc", "cola", "sst2")]
    for run, task in (*seven, ("polarity", "polarity"), ("snli", "snli")):
        (r,) = recorded(f"mickus2024-{run}", measure="classify.pearson", dataset=task)
        (log,) = recorded(f"mickus2024-{run}", measure="classify.pearson_log", dataset=task)
        assert log["value"] < r["value"] < 0
        if task == "wnli":
            assert log["null_value"] < log["value"]


@pytest.fixture(scope="module")
def pages():
    return paper_pages(*(read_recorded(ROOT / "docs" / each) for each in ("reproduction", "findings/records")))


def test_pooled_correlations_on_wnli_are_not_those_within_seeds(pages):
    """Their null value is of the correlations within seeds, which stand apart, each with its own error; the records of
    the pooled ones have no error."""
    row = {}
    for measure in ("pearson", "spearman"):
        (row[measure],) = recorded("mickus2024-glue", measure=f"classify.{measure}", dataset="wnli")
    means = {}
    for measure, each in row.items():
        seeds, null = (json.loads(each[f"{name}_values"]) for name in ("seed", "null"))
        error = math.hypot(*(np.std(values, ddof=1) / len(values) ** 0.5 for values in (seeds, null)))
        apart = abs(np.mean(seeds) - np.mean(null)) / error
        assert apart > 20 if measure == "pearson" else apart < 1
        means[measure] = np.mean(seeds), np.std(seeds, ddof=1) / len(seeds) ** 0.5
        assert "standard_error" not in each
    mean, error = means["spearman"]
    assert abs(row["spearman"]["value"] - mean) > 4 * error
    page = " ".join(pages["mickus2024.md"].replace("\xa0", " ").split())
    assert (
        "ρ, averaged over the seeds, is −0.9998969 ± 0.0000053 with the labels of the task, and −0.9999003 ± 0.0000022 "
        "with permuted labels. These two values do not differ by more than their errors. (Over the states of all seeds "
        "together, ρ with the labels of the task is −0.9998740.)"
    ) in page
    assert "within seeds it is −0.89736 ± 0.00024 on average" in page
    tables = [line for line in page.split("## All numbers")[1].split("| ") if line.startswith("−0.999")]
    assert tables and not any("±" in cell for cell in tables)


def test_the_published_r_on_wnli_is_nearest_to_that_of_all_states():
    text = text_of("On WNLI, which states are counted", "mickus2024")
    every, later, tenth = (-float(number) for number in re.findall(r"−(0\.\d{4})", text))
    (printed,) = mickus2024("table3_glue_correlations.minilm.wnli.r")
    assert abs(every - printed) < min(abs(later - printed), abs(tenth - printed))


def test_of_an_untrained_model_and_of_few_images_ours_is_no_test(pages):
    """These depend on the scale of the output, on how many images whitening is fitted on: ours is another one."""
    table = pages["tyshchuk2023.md"].split("## Claims")[1].split("## Findings")[0]
    for start in ("An untrained CLIP", "The images of an untrained CLIP", "Whitening to 128", "Neither Procrustes"):
        (row,) = (line for line in table.splitlines() if line.startswith(f"| {start}"))
        assert "No test: " in row and "**undecided**" in row


@pytest.mark.parametrize("paper", papers())
def test_a_decimal_of_a_claim_is_printed_or_asserted_here(paper):
    """Numbers of ours come from records, in {{ }}, or are asserted above."""
    values = [each.value for each in entries(paper) if each.value is not None]
    source = " ".join([Path(__file__).read_text(encoding="utf-8"), *(each.text for each in entries(paper))])
    for claim in ledger(paper).claims:
        for number in re.findall(r"\d+\.\d+", re.sub(r"{{.*?}}", "", claim.text, flags=re.DOTALL)):
            decimals = len(number.partition(".")[2])
            printed = {f"{abs(value):.{decimals}f}" for value in (*values, claim.bound)}
            assert number in printed or number in source, (claim.text, number)


def test_roots_of_the_ratios_of_table_6(number):
    roots = [math.sqrt(number(f"table6_language_distance.{pair}.ratio")) for pair in ("fr-en", "ru-en", "de-en")]
    assert [f"{min(roots):.1f}", f"{max(roots):.1f}"] == ["0.5", "0.6"]


SETTINGS = {"rudman2024": {"0.2", "0.8"}}  # ζ


@pytest.mark.parametrize("paper", ["mickus2024", "rudman2024", "cai2021"])
def test_a_decimal_of_a_finding_is_recorded_published_or_asserted(paper):
    """Numbers of ours come from records, in {{ }}; others are in the paper or in the test that is the evidence."""
    printed = " ".join(each.text for each in entries(paper))
    for finding in ledger(paper).findings:
        prose = re.sub(r"{{.*?}}|{%.*?%}", "", f"{finding.title} {finding.text}", flags=re.DOTALL)
        tests = [ROOT / each.partition("::")[0] for each in finding.evidence if each.startswith("tests/")]
        sources = " ".join([printed, *(test.read_text(encoding="utf-8") for test in tests)])
        for number in set(re.findall(r"\d+\.\d+", prose)) - SETTINGS.get(paper, set()):
            assert re.search(rf"(?<!\d)0?{re.escape(number.removeprefix('0'))}\d?(?!\d)", sources), number


@pytest.mark.parametrize("paper", papers())
def test_evidence_exists(paper):
    for finding in ledger(paper).findings:
        for evidence in finding.evidence:
            if evidence.startswith("tests/"):
                file, _, name = evidence.partition("::")
                assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), evidence


def test_whitening_beyond_the_signal_ends_zero_shot_accuracy(tmp_path):
    """The shipped model tells 80 classes apart in few directions; whitening written out from its definition."""

    def embedded(**options):
        encoder, dataset = resolve_encoder("local-dir:shipped/scenes-trained"), resolve_dataset("scenes", **options)
        embed(encoder, load_dataset(dataset), tmp_path / dataset.split, progress=quiet, device="cpu")
        return read_store(tmp_path / dataset.split)

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    fit, test = embedded(split="train", size=1000), embedded(split="test", size=300, prompt="a picture of a {}.")
    pooled = np.concatenate([unit(fit[side].vectors.astype(float)) for side in ("image", "text")])
    images, prompts, labels = unit(test["image"].vectors), unit(test["text"].vectors), np.array(test["image"].labels)
    variances, directions = np.linalg.eigh(np.cov(pooled.T))

    def accuracy(k, whiten):
        matrix = directions[:, -k:] / np.sqrt(variances[-k:]) if whiten else directions[:, -k:]
        rows, texts = (unit((each - pooled.mean(0) * whiten) @ matrix) for each in (images, prompts))
        return np.mean((rows @ texts.T).argmax(1) == labels)

    assert variances[-16:].sum() / variances.sum() > 0.98
    assert np.mean((images @ prompts.T).argmax(1) == labels) > 0.98
    assert accuracy(64, whiten=False) > 0.98  # PCA, uncentered
    assert accuracy(8, whiten=True) > 0.85
    assert accuracy(64, whiten=True) < 0.05  # of 4000 images 0.0155 ± 0.0016; chance 0.0125
