"""A step of training against a plain loop, and the methods."""

import math
import re

import numpy as np
import pytest
import torch
from torch.nn import functional

from clip_geometry.geometry import average_cosine, isoscore
from clip_geometry.registry import InputError
from clip_geometry.transforms import AllButTheTop
from clip_geometry_experiments.rudman2024.finetune.measuring import evaluate
from clip_geometry_experiments.rudman2024.finetune.model import Method, parse_method
from clip_geometry_experiments.rudman2024.finetune.training import task_loss
from support.finetune import prepared, trainer

FORMS = r"expected one of i_star\(λ\), cosreg\(λ\), all_but_the_top\(k\), none"


# --- against a plain loop


def test_a_training_is_that_of_a_plain_loop():
    """The same numbers from torch alone, with the same random streams: 3 steps an epoch, the last of 8 examples."""
    ours = trainer(warmup=0.34, weight_decay=0.05, clip=0.5)
    ours.run()
    model, inputs = prepared()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    model.train()
    rates, losses = [], []
    for step in range(6):
        order = np.random.default_rng([0, 0, step // 3]).permutation(48)
        rows = order[step % 3 * 20 : step % 3 * 20 + 20]
        given, targets = inputs.batch(rows, torch.device("cpu"))
        torch.manual_seed(int(np.random.default_rng([0, 1, step]).integers(2**62)))
        hidden = model.transformer(**given).last_hidden_state
        loss = functional.cross_entropy(model.head(model.dropout(hidden[:, 0])), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        rate = 1e-3 * ((step + 1) / 2 if step < 2 else (6 - step) / 4)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        rates.append(rate)
        losses.append(float(loss.detach()))
    assert [ours.rate(step) for step in range(6)] == pytest.approx(rates, rel=1e-12)
    assert ours.losses == pytest.approx(losses, rel=1e-5)  # sums of float32 in another order
    for name, value in model.state_dict().items():
        torch.testing.assert_close(ours.model.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def seeded(trainer):
    with trainer.seeded_dropout():
        return [each.detach() for each in trainer.loss()]


def test_a_penalty_is_added_to_the_loss_of_the_task():
    """λ (1 − IsoScore) of both layers while C_0 is the batch's own, and λ × mean cosine of the last one."""
    plain, istar, cosreg = (trainer(name, zeta=0.0) for name in ("none", "i_star(-3)", "cosreg(2)"))
    (task, total), (same, with_istar), (_, with_cosreg) = (seeded(each) for each in (plain, istar, cosreg))
    assert float(task) == float(total)
    rows = np.random.default_rng([0, 0, 0]).permutation(48)[:20]
    given, _ = plain.inputs.batch(rows, plain.device)
    with plain.seeded_dropout():
        hidden = plain.model(given).hidden
    kept = given["attention_mask"].bool()
    tokens = [layer[kept].detach().double() for layer in hidden]
    assert float(same) == float(task)  # the same head, batch and dropout
    expected = float(task) - 3 * (1 - float(isoscore(torch.cat(tokens))))
    assert float(with_istar) == pytest.approx(expected, abs=1e-5)
    n = len(tokens[-1])
    mean = float(average_cosine(tokens[-1])) * (n - 1) / n
    assert float(with_cosreg) == pytest.approx(float(task) + 2 * mean, abs=1e-5)


def test_c_0_is_taken_anew_before_each_epoch_from_all_layers():
    ours = trainer("i_star(1)", refresh_sample=10**6)
    model = ours.model.eval()
    with torch.no_grad():
        given, _ = ours.inputs.batch(np.arange(48), ours.device)
        tokens = torch.cat([layer[given["attention_mask"].bool()] for layer in model(given).hidden]).double()
    ours.step()
    first = ours.penalty.covariance.clone()
    torch.testing.assert_close(first, torch.cov(tokens.T), rtol=1e-5, atol=1e-7)
    ours.step()
    assert torch.equal(ours.penalty.covariance, first)
    ours.step()
    ours.step()
    assert not torch.equal(ours.penalty.covariance, first)


@pytest.mark.parametrize("kind", ["class", "score", "span"])
def test_every_kind_of_target_is_learnt(kind):
    ours = trainer(kind=kind, pooling="mean", epochs=30, lr=3e-3)
    ours.run()
    assert np.mean(ours.losses[-3:]) < 0.5 * np.mean(ours.losses[:3])


def test_losses_of_the_three_kinds():
    scores, mask = torch.tensor([[0.5], [2.0]]), torch.ones(2, 3)
    assert float(task_loss(scores, torch.tensor([1.0, 0.0]), mask)) == pytest.approx((0.25 + 4) / 2)
    two = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    expected = (math.log(1 + math.e) - 1 + math.log(1 + math.exp(2)) - 2) / 2
    assert float(task_loss(two, torch.tensor([1, 0]), mask)) == pytest.approx(expected)


# --- methods


@pytest.mark.parametrize("seed", [0, 1])
def test_i_star_moves_isotropy_by_the_sign_of_lambda_and_cosreg_the_cone(seed):
    found = {}
    for name in ("none", "i_star(-3)", "i_star(3)", "cosreg(1)"):
        ours = trainer(name, seed=seed, epochs=6)
        ours.run()
        seen = evaluate(ours, ours.inputs, tokens=None, seed=0)
        found[name] = (float(isoscore(seen.layers)), float(average_cosine(seen.last)))
    assert found["i_star(-3)"][0] < 0.9 * found["none"][0] < found["none"][0] < 0.9 * found["i_star(3)"][0]
    assert found["cosreg(1)"][1] < 0.9 * found["none"][1]


@pytest.mark.parametrize("kind", ["class", "span"])
def test_all_but_the_top_is_a_plain_training_and_then_a_head_on_post_processed_rows(kind):
    plain, ours = trainer(kind=kind), trainer("all_but_the_top(2)", kind=kind, refresh_sample=10)
    plain.run()
    ours.run()
    assert (plain.steps, ours.steps) == (6, 9) and ours.losses[:6] == plain.losses
    for name, value in plain.model.transformer.state_dict().items():
        assert torch.equal(value, ours.model.transformer.state_dict()[name])
    assert not torch.equal(plain.model.head.weight, ours.model.head.weight)
    with torch.no_grad():
        given, _ = plain.inputs.batch(np.arange(len(plain.inputs)), plain.device)
        output = plain.model.eval()(given)
        rows = output.hidden[-1][given["attention_mask"].bool()] if kind == "span" else output.sentences
        after = ours.model.eval()(given)
    fitted = AllButTheTop(2).fit(rows.numpy())
    expected = fitted.transform(output.sentences.numpy())
    # batches are padded to other lengths in between, and the map is kept in float32
    np.testing.assert_allclose(after.sentences.numpy(), expected, atol=2e-5)


def test_methods_are_read_as_they_are_written():
    names = ("none", "i_star(-1)", "i_star(0.5)", "cosreg(1)", "all_but_the_top(3)")
    assert [str(parse_method(name)) for name in names] == list(names)
    assert parse_method(" i_star(-3.0) ") == Method("i_star", -3.0) and parse_method("i_star(0)") == Method("none")
    assert parse_method("cosreg(0)") == parse_method("none")
    assert parse_method("all_but_the_top(3)").at() == {"method": "all_but_the_top", "components": 3}


@pytest.mark.parametrize(
    "text",
    ["istar(-1)", "i_star(-1", "dropout", "i_star", "none(1)", "i_star(x)", "i_star(inf)", "all_but_the_top(1.5)",
     "all_but_the_top(0)"],
)  # fmt: skip
def test_another_method_is_one_sentence(text):
    with pytest.raises(InputError, match=re.escape(repr(text)) + f"; {FORMS}"):
        parse_method(text)


# --- precision


def test_mixed_precision_is_near_and_keeps_float32_parameters():
    full, mixed = trainer("i_star(-1)"), trainer("i_star(-1)", precision="bf16")
    full.run()
    mixed.run()
    assert mixed.losses != full.losses and mixed.losses == pytest.approx(full.losses, rel=0.05)
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
