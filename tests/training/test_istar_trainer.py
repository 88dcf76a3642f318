"""scripts/istar_trainer.py: I-STAR in transformers' Trainer, on a small untrained BERT."""

import runpy
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from clip_geometry.training import IStar

SCRIPT = Path(__file__).parents[2] / "scripts/istar_trainer.py"
SIZE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 12}
QUIET = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}


@pytest.fixture(scope="module")
def example():
    if not SCRIPT.exists():
        pytest.skip("scripts/ is not part of an installed package")
    pytest.importorskip("accelerate", reason="accelerate, which transformers' Trainer needs, is not installed")
    return runpy.run_path(str(SCRIPT))


def sequences(n):
    """Sequences of three to eight tokens with padding, and whether the first one is small."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, 12, (n, 8), generator=generator)
    mask = (torch.arange(8) < torch.randint(3, 9, (n, 1), generator=generator)).long()
    rows = zip(ids * mask, mask, (ids[:, 0] < 7).long(), strict=True)
    return [{"input_ids": ids, "attention_mask": mask, "labels": label} for ids, mask, label in rows]


def model(**options):
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**SIZE, **options))


def trainer(kind, folder, *, examples=40, bert=None, lambda_=None, **options):
    from transformers import TrainingArguments

    arguments = TrainingArguments(str(folder), **{**QUIET, "learning_rate": 3e-3, "num_train_epochs": 2, **options})
    penalty = {} if lambda_ is None else {"lambda_": lambda_}
    data = sequences(examples)
    return kind(bert or model(), arguments, train_dataset=data, eval_dataset=data, **penalty)


def states(bert, examples):
    """The rows of all layers, without padding and dropout."""
    batch = {name: torch.stack([each[name] for each in examples]) for name in examples[0]}
    with torch.no_grad():
        hidden = bert.eval()(**batch, output_hidden_states=True).hidden_states[1:]
    return torch.cat([layer[batch["attention_mask"].bool()] for layer in hidden]).double()


def test_c_0_is_refreshed_once_an_epoch_from_the_weights_of_that_time(example, tmp_path):
    from transformers import TrainerCallback

    epochs, steps = [], []

    class Recorder(TrainerCallback):
        def on_epoch_begin(self, args, state, control, model, **rest):
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            epochs.append((weights, istar.covariance))

        def on_step_end(self, args, state, control, **rest):
            steps.append(istar.covariance)

    training = trainer(example["IStarTrainer"], tmp_path, lambda_=-1.0, num_train_epochs=3)
    istar = training.istar
    training.add_callback(Recorder())
    training.train()
    assert len(epochs) == 3 and len(steps) == 15
    assert [id(c_0) for c_0 in steps] == [id(c_0) for _, c_0 in epochs for _ in range(5)]
    for weights, c_0 in epochs:
        bert = model()
        bert.load_state_dict(weights)
        expected = torch.cov(states(bert, training.train_dataset).T)
        assert float((c_0 - expected).norm() / expected.norm()) < 1e-5
    for (_, before), (_, after) in pairwise(epochs):
        assert float((after - before).norm() / before.norm()) > 0.01


def test_lambda_0_is_the_plain_trainer_bit_for_bit(example, tmp_path):
    """With dropout: the sample behind C_0 must not use up random numbers."""
    from transformers import Trainer

    found = []
    for kind, lambda_ in ((Trainer, None), (example["IStarTrainer"], 0)):
        training = trainer(kind, tmp_path, lambda_=lambda_)  # sets the seed
        loss = training.train().training_loss
        found.append((loss, torch.cat([value.flatten() for value in training.model.state_dict().values()])))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


CALM = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
RATE = 1e-2
SGD = {"optim": "sgd", "learning_rate": RATE, "lr_scheduler_type": "constant", "max_grad_norm": 0}


def gradients(network, data, batches, lambda_, istar_of):
    """The gradient of the mean task loss of all rows, and of the mean penalty of the batches."""
    whole = {name: torch.stack([each[name] for each in data]) for name in data[0]}
    istar = IStar(lambda_)
    istar.covariance = istar_of.covariance
    task = network(**whole).loss
    penalty = 0.0
    for batch in batches:
        given = {name: torch.stack([each[name] for each in batch]) for name in batch[0]}
        hidden = network(**given, output_hidden_states=True).hidden_states[1:]
        penalty = penalty + istar(list(hidden), given["attention_mask"]) / len(batches)
    weights = list(network.parameters())
    found = (torch.autograd.grad(each, weights, allow_unused=True, materialize_grads=True) for each in (task, penalty))
    return [torch.cat([each.flatten() for each in several]) for several in found]


@pytest.mark.parametrize("size", [8, 6], ids=["even", "last batch smaller"])
@pytest.mark.parametrize("accumulated", [1, 2, 4])
def test_a_step_weighs_task_and_penalty_alike_for_every_accumulation(example, tmp_path, accumulated, size):
    """A step of gradient descent is the gradient of the mean loss of its rows and of the mean penalty of its batches.

    Both weights come from a regression of the step on the two gradients, 1 and 1 where it holds.
    """
    before, bert, lambda_ = model(**CALM), model(**CALM), 3.0
    options = {"per_device_train_batch_size": 8 // accumulated, "gradient_accumulation_steps": accumulated}
    training = trainer(
        example["IStarTrainer"],
        tmp_path,
        examples=size,
        bert=bert,
        lambda_=lambda_,
        num_train_epochs=1,
        **SGD,
        **options,
    )
    batches, original = [], training.compute_loss

    def recorded(network, inputs, *rest, **more):
        batches.append([dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)])
        return original(network, inputs, *rest, **more)

    training.compute_loss = recorded
    training.train()
    assert sum(map(len, batches)) == size and len(batches) == -(-size * accumulated // 8)
    rows = [row for batch in batches for row in batch]
    task, penalty = gradients(before, rows, batches, lambda_, training.istar)
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(before.parameters(), bert.parameters(), strict=True)])
    weights = torch.linalg.lstsq(torch.stack([task, penalty], dim=1).double(), moved.double()[:, None] / RATE).solution
    assert weights.flatten().tolist() == pytest.approx([1, 1], abs=1e-3)  # float32 steps of 1e-2 times a gradient


def test_tokens_count_alike_in_batches_of_different_lengths(example, tmp_path):
    """A causal language model divides by the tokens of all accumulated batches, and so does the plain Trainer."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    data = [
        {**each, "labels": each["input_ids"].masked_fill(each["attention_mask"] == 0, -100)} for each in sequences(8)
    ]
    arguments = TrainingArguments(
        str(tmp_path), **QUIET, **SGD, num_train_epochs=1, per_device_train_batch_size=2, gradient_accumulation_steps=4
    )
    found = []
    for kind, penalty in ((Trainer, {}), (example["IStarTrainer"], {"lambda_": 0})):
        torch.manual_seed(0)
        network = LlamaForCausalLM(LlamaConfig(**SIZE, num_key_value_heads=2, use_cache=False))
        before = torch.cat([each.detach().flatten() for each in network.parameters()])
        kind(network, arguments, train_dataset=data, **penalty).train()
        found.append(torch.cat([each.detach().flatten() for each in network.parameters()]) - before)
    assert found[0].norm() > 0
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 1e-4  # the order of float32 products


@pytest.mark.slow
def test_the_script_runs(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--lambdas", "-1", "1"])
    example["main"]()
    lines = capsys.readouterr().out.splitlines()
    scores = [float(line.split("all layers ")[1].split(",")[0]) for line in lines if "IsoScore" in line]
    assert 100 * scores[0] < scores[1]


def test_the_sample_behind_c_0_is_another_one_in_every_epoch(example, tmp_path):
    seen = []
    training = trainer(example["IStarTrainer"], tmp_path, lambda_=1.0, learning_rate=0.0, num_train_epochs=3)
    training.sample, original = 10, training.states
    training.states = lambda bert, examples: seen.append(examples.indices) or original(bert, examples)
    training.train()
    assert [len(set(drawn)) for drawn in seen] == [10, 10, 10]
    assert len({frozenset(drawn) for drawn in seen}) == 3
