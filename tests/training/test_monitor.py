"""The monitor and the callbacks: when they measure, what they leave as it was, and how they stop a collapse."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from clip_geometry.registry import InputError
from clip_geometry.training import CollapseAlarm, CollapseWarning, EmbeddingGeometry, GeometryMonitor


class Towers(nn.Module):
    """Two towers with dropout and batch norm, whose loss is the distance of pairs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.image = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3))
        self.text = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3))

    def forward(self, x, labels=None):
        return {"loss": (self.image(x) - self.text(x)).square().mean()}


PROBE = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))


def embed(model):
    assert not torch.is_grad_enabled() and not any(module.training for module in model.modules())
    torch.rand(3)  # it may use up random numbers
    return {"image": model.image(PROBE), "text": model.text(PROBE)}


def dying(after):
    """An embed whose rows become one row after some measurements."""
    seen = []

    def embed(model):
        seen.append(None)
        rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(len(seen)))
        return {"image": rows if len(seen) <= after else torch.ones(60, 6), "text": rows}

    return embed


def quick():
    return CollapseAlarm({"effective_rank": 0.65}, settle=3, patience=2)


def trained(monitor):
    """The weights after some steps."""
    model = Towers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(7)
    for step in range(1, 7):
        optimizer.zero_grad()
        model(torch.randn(20, 6))["loss"].backward()
        optimizer.step()
        if monitor is not None:
            monitor.step(step, model)
    assert all(module.training for module in model.modules())
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_a_probe_changes_nothing_of_the_training():
    steps = []
    monitor = GeometryMonitor(lambda scalars, step: steps.append(step), every=2, embed=embed)
    assert torch.equal(trained(monitor), trained(None))
    assert steps == [2, 4, 6]


def test_modes_and_random_generators_are_as_before_also_after_an_error():
    def drawn():
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002 - the global generator

    def seed():
        random.seed(3), np.random.seed(3), torch.manual_seed(3)  # noqa: NPY002

    def wrong(model):
        assert not model.image.training
        return drawn(), 1 / 0

    model = Towers()
    model.text.eval()
    seed()
    expected = drawn()
    seed()
    with pytest.raises(ZeroDivisionError):
        GeometryMonitor(embed=wrong).measure(1, model)
    assert drawn() == expected and torch.is_grad_enabled()
    assert model.image[2].training and not model.text.training and not model.text[1].training


def test_features_of_the_last_batches_before_a_measurement():
    logged = {}
    monitor = GeometryMonitor(
        lambda scalars, step: logged.update({step: dict(scalars)}), every=5, batches=2, alarm=None
    )
    batches = torch.randn(14, 2, 20, 6, generator=torch.Generator().manual_seed(0))
    for step, (image, text) in enumerate(batches, start=4):  # resumed at step 4: one batch is not enough
        monitor.step(step, image=image, text=text)
    assert list(logged) == [5, 10, 15]
    expected = EmbeddingGeometry()
    for number in (14 - 4, 15 - 4):
        expected.update(image=batches[number, 0], text=batches[number, 1])
    values = {f"geometry/{name}": float(value) for name, value in expected.compute().items()}
    assert logged[15] == values


def features(monitor, steps, calls=1):
    """Gives random features at each of the steps, several times."""
    for step in steps:
        for _ in range(calls):
            monitor.step(step, image=torch.randn(9, 3), text=torch.randn(9, 3))


@pytest.mark.parametrize(
    ("steps", "batches", "logged", "given"),
    [
        (range(4, 16), 3, [5, 10, 15], "2 of 3 batches were given before step 5"),  # after a restart
        (range(5, 31, 5), 4, [5, 10, 15, 20, 25, 30], "1 of 4 batches were given before step 5"),
        (range(2, 21, 2), 4, [10, 20], "2 of 4 batches were given before step 10"),
    ],
)
def test_a_window_with_fewer_batches_is_measured_with_one_warning(steps, batches, logged, given):
    found = []
    every = 10 if steps.step == 2 else 5
    monitor = GeometryMonitor(lambda scalars, step: found.append(step), every=every, batches=batches, alarm=None)
    with pytest.warns(UserWarning, match=f"{given}; lower batches= or call step at every step") as caught:
        features(monitor, steps)
    assert found == logged and len(caught) == 1


def test_gradient_accumulation_measures_once_a_step():
    found, seen = [], []
    monitor = GeometryMonitor(lambda scalars, step: found.append(step), every=5, batches=3)
    features(monitor, range(16), calls=2)
    assert found == [5, 10, 15]
    monitor = GeometryMonitor(every=5, embed=lambda model: seen.append(0) or {"text": PROBE})
    for step in (5, 5, 6, 10, 10, 5):
        monitor.step(step)
    assert len(seen) == 3


def test_an_alarm_that_cannot_go_on_warns_once():
    few = EmbeddingGeometry("text", measures=["average_cosine"])
    monitor = GeometryMonitor(embed=lambda model: {"text": PROBE}, metric=few)
    with pytest.warns(UserWarning, match="the alarm watches effective_rank, .*, which the metric does not") as caught:
        monitor.measure(1), monitor.measure(2)
    assert len(caught) == 1


def test_rows_without_a_number_are_counted_and_said_at_once():
    monitor = GeometryMonitor(every=1, batches=1, alarm=quick())
    with (
        pytest.warns(CollapseWarning, match="; 64 rows are NaN, infinite or zero"),
        pytest.warns(UserWarning, match="all 64 items before step 5 have a zero, NaN or infinite row") as caught,
    ):
        for step in range(8):
            rows = torch.full((64, 3), torch.nan) if step > 4 else torch.randn(64, 3)
            monitor.step(step, image=rows, text=torch.randn(64, 3))
    assert len(caught) == 2


class Run:
    """A run of W&B: each call without a step begins the next one, and what is logged at a step before is dropped."""

    def __init__(self):
        self.step, self.defined, self.rows, self.dropped = 0, {}, [], []

    def define_metric(self, name, step_metric):
        self.defined[name] = step_metric

    def log(self, data, step=None):
        if step is not None and step < self.step:
            self.dropped.append(data)
            return
        self.rows.append(data)
        self.step = self.step + 1 if step is None else step


@pytest.mark.parametrize("given", [True, False])
def test_weights_and_biases_drops_nothing_of_several_calls_per_step(given):
    run = Run()
    monitor = GeometryMonitor(run, every=2, embed=lambda model: {"text": PROBE})
    for step in range(1, 5):
        run.log({"loss": 1.0}, step=step if given else None)
        monitor.step(step)
        run.log({"lr": 1.0}, step=step if given else None)
    assert run.defined == {"geometry/*": "geometry/step"} and not run.dropped
    assert [row["geometry/step"] for row in run.rows if "geometry/isoscore/text" in row] == [2, 4]


def test_a_probe_may_come_in_batches():
    def whole(model):
        return {"image": PROBE, "text": PROBE.flip(1)}

    def parts(model):
        for k in range(0, 60, 25):
            yield {"image": PROBE[k : k + 25], "text": PROBE.flip(1)[k : k + 25]}

    one, several = (GeometryMonitor(embed=each).measure(1) for each in (whole, parts))
    assert several == pytest.approx(one, rel=1e-12, abs=1e-12)


def test_the_alarm_warns_once_and_is_logged():
    logged = []
    monitor = GeometryMonitor(
        lambda scalars, step: logged.append(scalars["geometry/collapse"]),
        every=1,
        embed=dying(5),
        alarm=quick(),
    )
    with pytest.warns(CollapseWarning, match="collapse at step 6: .*effective_rank/image is not defined") as caught:
        for step in range(9):
            monitor.step(step)
    assert logged == [0, 0, 0, 0, 0, 0, 1, 1, 1] and monitor.collapsed
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GeometryMonitor("runs"), "log = 'runs'; expected a .jsonl file in a folder that exists"),
        (lambda: GeometryMonitor(every=0), "every = 0; expected a whole number from 1 on"),
        (lambda: GeometryMonitor(alarm="yes"), "alarm = 'yes'; expected a CollapseAlarm, or None for none"),
        (lambda: GeometryMonitor(embed=embed).step("x"), "step = 'x'; expected a whole number from 0 on"),
        (lambda: GeometryMonitor().step(1), "step was given no features"),
        (lambda: GeometryMonitor().measure(1), "there is no probe to measure"),
        (
            lambda: GeometryMonitor(embed=lambda model: [PROBE]).measure(1),
            "embed returned Tensor; expected a mapping",
        ),
        (lambda: GeometryMonitor(embed={"image": PROBE}), "embed = {.*; expected a function of the model"),
        (
            lambda: GeometryMonitor(embed=lambda model: None).measure(1),
            "embed returned NoneType; expected a mapping",
        ),
        (
            lambda: GeometryMonitor(embed=lambda model: iter([])).measure(1),
            "embed returned no rows; expected a",
        ),
    ],
)
def test_wrong_arguments_are_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


# --- transformers


def trainer(folder, **options):
    pytest.importorskip("accelerate", reason="accelerate, which transformers' Trainer needs, is not installed")
    from transformers import Trainer, TrainingArguments

    quiet = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 3}
    data = [{"x": each, "labels": 0} for each in torch.randn(48, 6, generator=torch.Generator().manual_seed(2))]
    arguments = TrainingArguments(str(folder), **{**quiet, "max_steps": 12, "learning_rate": 0.01, **options})
    return Trainer(Towers(), arguments, train_dataset=data, eval_dataset=data)


def weights(model):
    return torch.cat([value.flatten().double() for value in model.state_dict().values()])


def test_the_callback_of_transformers_changes_nothing_and_keeps_the_log_of_the_loss(tmp_path):
    from clip_geometry.training import GeometryCallback

    plain = trainer(tmp_path)  # which sets the seed
    plain.train()
    watched = trainer(tmp_path)
    watched.add_callback(GeometryCallback(watched, embed, every=3))
    watched.train()
    assert torch.equal(weights(plain.model), weights(watched.model))
    history = watched.state.log_history
    assert [row["step"] for row in history if "geometry/alignment" in row] == [3, 6, 9, 12]
    losses = [[row for row in each.state.log_history if "loss" in row] for each in (plain, watched)]
    assert [(row["step"], row["loss"]) for row in losses[0]] == [(row["step"], row["loss"]) for row in losses[1]]


def test_the_callback_of_transformers_measures_at_evaluations_and_the_end(tmp_path):
    from clip_geometry.training import GeometryCallback

    training = trainer(tmp_path, eval_strategy="steps", eval_steps=5)
    training.add_callback(GeometryCallback(training, embed, every=None))
    training.train()
    history = training.state.log_history
    assert [row["step"] for row in history if "geometry/alignment" in row] == [5, 10, 12]


def test_a_collapse_stops_transformers(tmp_path):
    from clip_geometry.training import GeometryCallback

    training = trainer(tmp_path)
    training.add_callback(GeometryCallback(training, dying(4), every=1, stop=True, alarm=quick()))
    with pytest.warns(CollapseWarning):
        training.train()
    assert training.state.global_step == 6


# --- Lightning


def test_a_collapse_stops_lightning_and_the_callback_changes_nothing(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    from clip_geometry.training import LightningGeometry

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.towers = Towers()

        def training_step(self, batch, number):
            return self.towers(batch[0])["loss"]

        def validation_step(self, batch, number):
            pass

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.randn(48, 6, generator=torch.Generator().manual_seed(2)))
    loader = torch.utils.data.DataLoader(data, batch_size=8)

    def fitted(*callbacks):
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*(num_workers|litlogger|LeafSpec|treespec)")
            training = lightning.Trainer(
                max_steps=12, callbacks=list(callbacks), default_root_dir=tmp_path, enable_model_summary=False, **quiet
            )
            module = Module()
            torch.manual_seed(5)
            training.fit(module, loader, loader)
        return training, weights(module)

    callback = LightningGeometry(lambda module: embed(module.towers), every=3)
    training, watched = fitted(callback)
    assert torch.equal(watched, fitted()[1])
    assert set(training.callback_metrics) >= {"geometry/alignment", "geometry/collapse"}
    with pytest.warns(CollapseWarning):
        training, _ = fitted(LightningGeometry(dying(4), every=1, stop=True, alarm=quick()))
    assert training.global_step == 6


# --- sentence-transformers


class Encoder:
    """What the evaluator needs of a model."""

    def encode(self, texts, **options):
        return torch.stack([torch.tensor([len(each), ord(each[0]), ord(each[-1])]) for each in texts]).float()


@pytest.fixture
def evaluator(monkeypatch):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from clip_geometry.training import GeometryEvaluator

    monkeypatch.setattr(GeometryEvaluator, "store_metrics_in_model_card_data", lambda *rest: None)
    return GeometryEvaluator


QA = {"question": ["Who?", "When?", "Where, then?"], "answer": ["Ada.", "In 1843.", "London, I think"]}


def test_the_evaluator_selects_by_a_number_that_it_returns(evaluator):
    few = evaluator(QA, measures=["modality_gap", "isoscore"])
    assert few.primary_metric == "modality_gap" and few.primary_metric in few(Encoder())
    assert evaluator(QA).primary_metric == "retrieval.image_to_text.r_at_1"
    assert evaluator(QA["answer"]).primary_metric == "effective_rank/text"
    assert evaluator(QA, primary_metric="alignment").primary_metric == "alignment"
    with pytest.raises(InputError, match="unknown primary_metric 'alignmnt'; did you mean 'alignment'"):
        evaluator(QA, primary_metric="alignmnt")
    with pytest.raises(InputError, match="expected a list, or a mapping of modality → list"):
        evaluator({"question": "abc", "answer": "def"})


def test_a_single_item_is_too_few_and_no_collapse():
    """All measures of one item are NaN, which counts as a collapse where there are several."""
    monitor = GeometryMonitor(every=1, batches=1)
    row = torch.randn(1, 8, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="one item was given before step 1; the measures need several"):
        monitor.step(1, image=row, text=row)
    for step in range(2, 30):
        monitor.step(step, image=row, text=row)
    assert not monitor.collapsed
