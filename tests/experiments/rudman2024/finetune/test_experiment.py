"""The experiment: its config, its rows, and a run that is stopped in the middle of a cell."""

import json

import numpy as np
import pytest
from scipy import stats

from clip_geometry.config import validate
from clip_geometry.geometry import average_cosine, isoscore, two_nn
from clip_geometry.registry import InputError
from clip_geometry.results import Results
from clip_geometry_experiments.rudman2024.finetune import Finetune, FinetuneConfig
from clip_geometry_experiments.rudman2024.finetune.measuring import Evaluation, correlation_rows, metrics
from clip_geometry_experiments.rudman2024.finetune.training import Examples, FineTuningTrainer
from clip_geometry_experiments.run.runner import RunFolder, run

TINY = {
    "name": "tiny",
    "experiment": "finetune",
    "model": "bert/fresh",
    "task": {"name": "scenes", "size": 48},
    "methods": ["none", "i_star(-1)", "i_star(3)", "cosreg(1)", "all_but_the_top(2)"],
    "seeds": [0, 1],
    "epochs": 1,
    "batch_size": 16,
    "lr": 0.001,
}


def configured(**changes):
    values = {key: value for key, value in (TINY | changes).items() if value is not None}
    return validate(FinetuneConfig, values, "test")


def ran(folder, **changes):
    """(the report, rows) of a run."""
    config = folder / "tiny.yaml"
    config.write_text(json.dumps({key: value for key, value in (TINY | changes).items() if value is not None}))
    report = run(config, {}, runs=folder / "runs", device="cpu")
    return report, Results(report.parent / "results.jsonl").read()


def only(found, measure, **at):
    at = {"training.seed" if key == "seed" else "lambda" if key == "value" else key: value for key, value in at.items()}
    (row,) = (r for r in found if r["measure"] == measure and at.items() <= r["at"].items())
    return row


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("whole"))


# --- rows


def test_the_measures_are_those_of_the_trained_model(whole):
    """Recomputed from the training itself, for one cell."""
    report, rows = whole
    planned = Finetune(configured(), RunFolder(report.parent, "cpu"))
    training = planned.trained(planned.config.each_method[1], 0)
    import torch

    inputs = planned.inputs[1]
    with torch.no_grad():
        given, _ = inputs.batch(np.arange(48), training.device)
        output = training.model.eval()(given)
    kept = given["attention_mask"].bool()
    at = {"method": "i_star", "value": -1.0, "seed": 0}
    tokens = torch.cat([layer[kept] for layer in output.hidden])
    # float32 sums in batches of another length
    assert only(rows, "isoscore", rows="tokens", **at)["value"] == pytest.approx(float(isoscore(tokens)), rel=1e-4)
    last = float(average_cosine(output.hidden[-1][kept]))
    assert only(rows, "average_cosine", rows="tokens", **at)["value"] == pytest.approx(last, rel=1e-4)
    assert only(rows, "two_nn", **at)["value"] == pytest.approx(float(two_nn(output.sentences)), rel=1e-2)
    mean = output.sentences.double().mean(0)
    row = only(rows, "finetune.largest_coordinate", **at)
    assert row["coordinates"] == pytest.approx(mean.tolist(), abs=1e-4)
    assert row["value"] == pytest.approx(float(mean.abs().max() / mean.norm()), rel=1e-4)
    right = (output.scores.argmax(1).numpy() == planned.examples[1].targets).mean()
    assert only(rows, "finetune.accuracy", **at)["value"] == pytest.approx(right)


def test_penalties_move_what_they_are_meant_to_move(whole):
    _, rows = whole
    for seed in (0, 1):
        iso = {
            value: only(rows, "isoscore", method=name, value=value, seed=seed, rows="tokens")["value"]
            for name, value in (("i_star", -1.0), ("none", 0.0), ("i_star", 3.0))
        }
        cone = [only(rows, "average_cosine", method=m, seed=seed, rows="tokens")["value"] for m in ("none", "cosreg")]
        assert iso[-1.0] < iso[0.0] < iso[3.0] and cone[1] < cone[0]


def test_what_is_pooled_is_the_mean_over_seeds_with_its_error(whole):
    report, rows = whole
    one, other = (only(rows, "isoscore", method="cosreg", seed=seed, rows="tokens")["value"] for seed in (0, 1))
    pooled = only(rows, "isoscore", method="cosreg", seed="all", rows="tokens")
    assert pooled["value"] == pytest.approx((one + other) / 2) and pooled["at"]["seeds"] == 2
    assert pooled["standard_error"] == pytest.approx(abs(one - other) / 2)
    trained = [only(rows, "finetune.accuracy", method="cosreg", seed=seed) for seed in (0, 1)]
    spread, shared = np.var([row["value"] for row in trained], ddof=1), [row["standard_error"] ** 2 for row in trained]
    accuracy = only(rows, "finetune.accuracy", method="cosreg", seed="all")
    assert accuracy["standard_error"] == pytest.approx((spread / 2 + np.mean(shared)) ** 0.5) and min(shared) > 0
    planned = Finetune(configured(), RunFolder(report.parent, "cpu"))
    assert planned.tabled(pooled) and not planned.tabled(only(rows, "two_nn", method="cosreg", seed=0))


def test_the_correlation_is_over_the_trainings_with_any_lambda(whole):
    _, rows = whole
    x, y = [], []
    for method, value in (("none", 0.0), ("i_star", -1.0), ("i_star", 3.0)):
        for seed in (0, 1):
            at = {"method": method, "value": value, "seed": seed}
            x.append(only(rows, "isoscore", rows="tokens", **at)["value"])
            y.append(only(rows, "finetune.performance", **at)["value"])
    found = only(rows, "finetune.pearson")
    assert found["n"] == 6
    # after an epoch all may have the same accuracy
    assert found["value"] == pytest.approx(stats.pearsonr(x, y).statistic if np.ptp(y) > 0 else None)
    apart = [0.1, 0.7, 0.3, 0.8, 0.2, 0.5]  # of the six, in the order of x; whatever the others have, it is not counted
    given = iter([*apart, *[9.0] * 4])
    order = {("none", 0.0): 0, ("i_star", -1.0): 1, ("i_star", 3.0): 2}
    trained = [row for row in rows if row["measure"] == "finetune.performance" and row["at"]["training.seed"] != "all"]
    trained.sort(key=lambda row: order.get((row["at"]["method"], row["at"].get("lambda")), 3))
    told = [{**row, "value": next(given)} for row in trained]
    isotropy = [row for row in rows if row["measure"] == "isoscore"]
    assert len(told) == 10
    linear, ranks = correlation_rows([*told, *isotropy])
    assert linear["value"] == pytest.approx(stats.pearsonr(x, apart).statistic) and linear["n"] == 6
    assert ranks["value"] == pytest.approx(stats.spearmanr(x, apart).statistic)
    made = [
        {"measure": m, "value": v, "at": {"method": "none", "lambda": 0.0, "training.seed": k, "rows": "tokens"}}
        for k, (i, p) in enumerate([(0.1, 0.9), (0.2, 0.7), (0.4, 0.6)])
        for m, v in (("isoscore", i), ("finetune.performance", p))
    ]
    pearson, spearman = correlation_rows(made)
    assert pearson["value"] == pytest.approx(stats.pearsonr([0.1, 0.2, 0.4], [0.9, 0.7, 0.6]).statistic)
    assert spearman["value"] == pytest.approx(-1) and "note" not in spearman
    alone, _ = correlation_rows(made[:2])
    assert alone["value"] is None and alone["note"] == "one of them is constant or not defined"


# --- what the task is judged by


def seen(scores):
    import torch

    rows = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    return Evaluation(rows, rows, None, torch.tensor(scores, dtype=torch.float32), [])  # pyright: ignore


def judged(name, predicted, targets, kind="class"):
    scores = [[1.0 - p, float(p)] for p in predicted] if kind == "class" else [[p] for p in predicted]
    texts = tuple((str(k),) for k in range(len(targets)))
    examples = Examples(name, kind, texts, np.array(targets), ("a", "b") if kind == "class" else (), "r", "validation")
    return metrics(examples, None, seen(scores))  # pyright: ignore


def test_tasks_are_judged_by_their_own_number():
    predicted, targets = [1, 1, 0, 0, 1], [1, 0, 0, 1, 1]  # TP 2, FP 1, FN 1, TN 1

    def values(*given):
        return {name: metric() for name, metric in judged(*given).items()}

    assert values("rte", predicted, targets) == {"accuracy": 0.6}
    cola = values("cola", predicted, targets)
    assert cola == {"matthews": pytest.approx((2 * 1 - 1 * 1) / (3 * 3 * 2 * 2) ** 0.5), "accuracy": 0.6}
    assert next(iter(cola)) == "matthews"
    found = values("stsb", [0.5, 2.0, 1.0, 4.0], [1.0, 2.0, 2.0, 5.0], "score")
    assert found["score_pearson"] == pytest.approx(stats.pearsonr([0.5, 2, 1, 4], [1, 2, 2, 5]).statistic, abs=1e-6)


def test_the_error_of_a_metric_is_that_of_the_validation_examples():
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 2, 2000)
    predicted = np.where(rng.random(2000) < 0.8, targets, 1 - targets)
    found = judged("rte", predicted.tolist(), targets.tolist())["accuracy"]
    # of 20 blocks the error has an error of 16 %
    assert found.standard_error == pytest.approx((found() * (1 - found()) / 2000) ** 0.5, rel=0.4)
    assert judged("stsb", [2.0, 2.0, 2.0], [1.0, 2.0, 3.0], "score")["score_pearson"].standard_error is None


# --- going on


def test_a_run_stopped_in_a_cell_goes_on_bit_for_bit(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SECONDS", 0)
    monkeypatch.setattr("clip_geometry_experiments.kit.training.SHARE", float("inf"))
    step, steps = FineTuningTrainer.step, []

    def stopping(self):
        steps.append((str(self.method), self.seed, self.number))
        if len(steps) == 9:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(FineTuningTrainer, "step", stopping)
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path)
    (kept,) = (tmp_path / "runs").glob("tiny-*/checkpoints/*.pt")
    again, rows = ran(tmp_path)
    assert steps[8] == steps[9] == ("i_star(-1)", 0, 2) and len(steps) == len(set(steps)) + 1
    assert not kept.exists()
    expected = whole[0].parent / "results.jsonl"
    assert (again.parent / "results.jsonl").read_bytes() == expected.read_bytes()
    monkeypatch.setattr(FineTuningTrainer, "step", lambda *_: pytest.fail("a finished cell was computed again"))
    assert ran(tmp_path) == (again, rows)


def test_every_setting_makes_its_own_cells(tmp_path):
    changes = (
        {}, {"lr": 0.01}, {"epochs": 2}, {"held_out": 0.2}, {"zeta": 0.1}, {"clip": None}, {"warmup": 0.0},
        {"refresh_sample": 20}, {"max_length": 16}, {"model": {"model": "bert/fresh", "layers": 1}},
        {"precision": "bf16"}, {"seed": 1}, {"task": {"name": "scenes", "size": 40}},
    )  # fmt: skip
    folder = RunFolder(tmp_path / "run", "cpu")
    keys = []
    for change in changes:
        values = TINY | {"seeds": [0], "methods": ["none", "cosreg(1)"]} | change
        keys.append({cell.key for cell in Finetune(validate(FinetuneConfig, values, "test"), folder).cells()})
    assert [len(each) for each in keys] == [3] * 13 and len(set.union(*keys)) == 39
    more = configured(seeds=[0, 2], methods=["none", "cosreg(1)", "cosreg(2)"])
    assert len({cell.key for cell in Finetune(more, folder).cells()} & keys[0]) == 2  # trainings, not what is pooled


# --- what cannot be


def test_a_task_in_a_file_of_its_own_needs_another_to_validate_on(tmp_path):
    path = tmp_path / "rte_train.tsv"
    path.write_text("sentence1\tsentence2\tlabel\na\tb\t0\nc\td\t1\n")
    with pytest.raises(InputError, match="the task rte has only one set of examples here"):
        configured(task={"name": "rte", "path": str(path)})
    cut = configured(task={"name": "rte", "limit": 10}).validation_task()
    assert (cut.split, cut.limit) == ("validation", None)  # a limit is that of what is trained on
    assert configured(task="squad").validation_task().split == "validation"
    assert configured(task={"name": "rte", "path": str(path)}, held_out=0.1).held_out == 0.1
