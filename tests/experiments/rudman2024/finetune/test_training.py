"""A step of training against a plain loop, the methods, and a training that is stopped."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from clip_geometry.config import validate
from clip_geometry.experiments.kit.checkpoint import Checkpoint
from clip_geometry.experiments.rudman2024.finetune import training as finetune_training
from clip_geometry.experiments.rudman2024.finetune.config import OptimizerConfig
from clip_geometry.experiments.rudman2024.finetune.data import Examples
from clip_geometry.experiments.rudman2024.finetune.inputs import encode
from clip_geometry.experiments.rudman2024.finetune.measuring import look
from clip_geometry.experiments.rudman2024.finetune.method import Method, parse_method
from clip_geometry.experiments.rudman2024.finetune.model import FineTuned
from clip_geometry.experiments.rudman2024.finetune.tiny import tiny_bert
from clip_geometry.experiments.rudman2024.finetune.training import Training, task_loss, train
from clip_geometry.geometry import average_cosine, isoscore
from clip_geometry.registry import InputError
from clip_geometry.transforms import AllButTheTop

FORMS = r"is not how a method is written; expected one of i_star\(λ\), cosreg\(λ\), all_but_the_top\(k\), none"
WORDS = ("red", "blue", "green", "circle", "star", "ring", "left", "right")


def sentences(n=48, seed=0, kind="class"):
    """The class is whether the first word is red."""
    rng = np.random.default_rng(seed)
    texts = tuple((" ".join(rng.choice(WORDS, size=rng.integers(3, 8))),) for _ in range(n))
    labels = np.array([text[0].startswith("red") for text in texts], dtype=np.int64)
    if kind == "span":
        texts = tuple((f"which word {k % 3}", text) for k, (text,) in enumerate(texts))
        first = tuple((passage.split()[0],) for _, passage in texts)
        return Examples("t", "span", texts, np.zeros(n, dtype=np.int64), (), "r", "train", first)
    targets = labels if kind == "class" else labels * 2.5 + 1.0
    return Examples("t", kind, texts, targets, ("no", "yes") if kind == "class" else (), "r", "train")


def prepared(kind="class", seed=0, pooling="cls"):
    """(the model before training, its inputs)."""
    examples = sentences(kind=kind)
    transformer, tokenizer = tiny_bert(examples.texts, width=16, layers=2, seed=3)
    inputs = encode(examples, tokenizer, transformer, name="tiny", max_length=64, overlap=8)
    return FineTuned(transformer, outputs=examples.outputs, spans=kind == "span", pooling=pooling, seed=seed), inputs


def configured(**changes):
    values = {"epochs": 2, "batch_size": 20, "lr": 1e-3, "refresh_sample": 100, **changes}
    return validate(OptimizerConfig, values, "test")


def training(method="none", kind="class", seed=0, pooling="cls", **changes):
    model, inputs = prepared(kind, seed, pooling)
    return Training(model, inputs, configured(**changes), parse_method(method), seed=seed)


def all_parameters(one):
    return {name: value.detach() for name, value in one.model.state_dict().items()}


# --- against a plain loop


def test_a_training_is_that_of_a_plain_loop():
    """The same numbers from torch alone, with the same random streams: 3 steps an epoch, the last of 8 examples."""
    ours = training(schedule="linear", warmup=0.34, weight_decay=0.05, clip=0.5)
    train(ours)
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
        torch.testing.assert_close(all_parameters(ours)[name], value, rtol=1e-4, atol=1e-6)


def test_a_penalty_is_added_to_the_loss_of_the_task():
    """λ (1 − IsoScore) of both layers while C_0 is the batch's own, and λ × mean cosine of the last one."""
    plain, istar, cosreg = (training(name, zeta=0.0) for name in ("none", "i_star(-3)", "cosreg(2)"))
    rows = np.arange(20)
    task, total = plain.loss(rows)
    assert float(task) == float(total.detach())
    given, _ = plain.inputs.batch(rows, plain.device)
    with plain._dropout():
        hidden = plain.model(given).hidden
    kept = given["attention_mask"].bool()
    tokens = [layer[kept].detach().double() for layer in hidden]
    same, with_istar = istar.loss(rows)
    assert float(same) == float(task)  # the same head, batch and dropout
    expected = float(task) - 3 * (1 - float(isoscore(torch.cat(tokens))))
    assert float(with_istar.detach()) == pytest.approx(expected, abs=1e-5)
    n, (_, with_cosreg) = len(tokens[-1]), cosreg.loss(rows)
    mean = float(average_cosine(tokens[-1])) * (n - 1) / n
    assert float(with_cosreg.detach()) == pytest.approx(float(task) + 2 * mean, abs=1e-5)


def test_c_0_is_taken_anew_before_each_epoch_from_all_layers():
    ours = training("i_star(1)", refresh_sample=10**6)
    model = ours.model.eval()
    with torch.no_grad():
        given, _ = ours.inputs.batch(np.arange(48), ours.device)
        tokens = torch.cat([layer[given["attention_mask"].bool()] for layer in model(given).hidden]).double()
    ours.step()
    first = ours.penalty.loss.running.covariance.clone()
    torch.testing.assert_close(first, torch.cov(tokens.T), rtol=1e-5, atol=1e-7)
    ours.step()
    assert torch.equal(ours.penalty.loss.running.covariance, first)
    ours.step()
    ours.step()
    assert not torch.equal(ours.penalty.loss.running.covariance, first)


def test_c_0_is_of_other_sentences_in_each_epoch_and_for_each_seed():
    """Five or so of 48 windows: equal draws by chance are rarer than one in a million."""
    one, same, other = training("i_star(1)", refresh_sample=30), training(refresh_sample=30), training(
        seed=1, refresh_sample=30)  # fmt: skip
    first = one._sampled(0)
    assert 30 <= one.inputs.lengths[first].sum() < 30 + one.inputs.lengths.max()
    assert first.tolist() == same._sampled(0).tolist() and one._sampled(1).tolist() == same._sampled(1).tolist()
    assert len({tuple(each) for each in (first, one._sampled(1), one._sampled(2), other._sampled(0))}) == 4
    asked, sampled = [], one._sampled
    one._sampled = lambda epoch: asked.append(epoch) or sampled(epoch)
    train(one)
    assert asked == [0, 1]


def test_so_many_tokens_are_measured_and_all_examples_judged():
    ours = training()
    everything, some = (look(ours, ours.inputs, tokens=tokens, longest=30, seed=0) for tokens in (None, 100))
    total, longest = ours.inputs.lengths.sum(), ours.inputs.lengths.max()
    assert len(everything.last) == total > 3 * (100 + longest) and everything.layers.n == 2 * total
    assert 100 <= len(some.last) < 100 + longest and some.layers.n == 2 * len(some.last)
    assert len(some.sentences) == len(some.scores) == 48
    other = look(ours, ours.inputs, tokens=100, longest=30, seed=1)
    assert float(isoscore(other.layers)) != float(isoscore(some.layers))


@pytest.mark.parametrize("kind", ["class", "score", "span"])
def test_every_kind_of_target_is_learnt(kind):
    ours = training(kind=kind, pooling="mean", epochs=30, lr=3e-3)
    train(ours)
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
        ours = training(name, seed=seed, epochs=6)
        train(ours)
        seen = look(ours, ours.inputs, tokens=None, longest=30, seed=0)
        found[name] = (float(isoscore(seen.layers)), float(average_cosine(seen.last)))
    assert found["i_star(-3)"][0] < 0.9 * found["none"][0] < found["none"][0] < 0.9 * found["i_star(3)"][0]
    assert found["cosreg(1)"][1] < 0.9 * found["none"][1]


@pytest.mark.parametrize("kind", ["class", "span"])
def test_all_but_the_top_is_a_plain_training_and_then_a_head_on_post_processed_rows(kind):
    plain, ours = training(kind=kind), training("all_but_the_top(2)", kind=kind, refresh_sample=10)
    train(plain)
    train(ours)
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


def test_all_but_the_top_is_fitted_on_all_sentences_and_of_spans_on_so_many_tokens(monkeypatch):
    monkeypatch.setattr(finetune_training, "FITTED_TOKENS", 60)
    monkeypatch.setattr(finetune_training, "AllButTheTop", lambda k: Recorded(k))
    fitted = []

    class Recorded(AllButTheTop):
        def fit(self, x, y=None):
            fitted.append(len(x))
            return super().fit(x, y)

    sentence, span = (training("all_but_the_top(2)", kind=kind, refresh_sample=10) for kind in ("class", "span"))
    for each in (sentence, span):
        each._fitted()
    assert fitted[0] == 48 and 60 <= fitted[1] < 60 + span.inputs.lengths.max() < span.inputs.lengths.sum()


def test_methods_are_read_as_they_are_written():
    names = ("none", "i_star(-1)", "i_star(0.5)", "cosreg(1)", "all_but_the_top(3)")
    assert [str(parse_method(name)) for name in names] == list(names)
    assert parse_method(" i_star(-3.0) ") == Method("i_star", -3.0) and parse_method("i_star(0)") == Method("none")
    assert parse_method("cosreg(0)") == parse_method("none")
    assert parse_method("all_but_the_top(3)").at() == {"method": "all_but_the_top", "components": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("istar(-1)", f"'istar\\(-1\\)' {FORMS}"),
        ("i_star(-1", f"'i_star\\(-1' {FORMS}"),
        ("dropout", f"'dropout' {FORMS}"),
        ("i_star", f"'i_star' {FORMS}"),
        ("none(1)", f"'none\\(1\\)' {FORMS}"),
        ("i_star(x)", "has no number between its brackets; expected one of i_star"),
        ("i_star(inf)", "has no number between its brackets"),
        ("all_but_the_top(1.5)", "removes 1.5 components; expected a whole number from 1 on"),
        ("all_but_the_top(0)", "removes 0 components"),
    ],
)
def test_another_method_is_one_sentence(text, says):
    with pytest.raises(InputError, match=says):
        parse_method(text)


# --- going on


@pytest.mark.parametrize("stop", [1, 3, 4, 6, 7])
@pytest.mark.parametrize("method", ["none", "i_star(-1)", "all_but_the_top(2)"])
def test_a_training_that_is_stopped_goes_on_bit_for_bit(tmp_path, monkeypatch, method, stop):
    monkeypatch.setattr("clip_geometry.experiments.kit.checkpoint.SECONDS", 0)
    monkeypatch.setattr("clip_geometry.experiments.kit.checkpoint.SHARE", float("inf"))
    whole = training(method)
    train(whole)
    stop = min(stop, whole.steps - 1)

    def stopping(done):
        stopped.append(done)
        if len(stopped) > stop:
            raise KeyboardInterrupt

    stopped, checkpoint = [], Checkpoint(tmp_path / "a.pt")
    with pytest.raises(KeyboardInterrupt):
        train(training(method), checkpoint, stopping)
    ours = training(method)
    ours.restore(checkpoint.load())
    torch.rand(3)  # whatever else has drawn random numbers
    assert ours.number == stop
    train(ours, checkpoint)
    assert ours.losses == whole.losses
    for name, value in all_parameters(whole).items():
        assert torch.equal(value, all_parameters(ours)[name]), name
    for one, other in zip(ours.optimizer.state_dict()["state"].values(), whole.optimizer.state_dict()["state"].values(),
                          strict=True):  # fmt: skip
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_seeds_change_head_batches_and_dropout_and_nothing_outside():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = training(seed=1), training(seed=1), training(seed=2)
    for each in (one, same, other):
        each.step()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.losses == same.losses != other.losses
    assert not torch.equal(one.model.head.weight, other.model.head.weight)


def test_mixed_precision_is_near_and_keeps_float32_parameters():
    full, mixed = training("i_star(-1)"), training("i_star(-1)", precision="bf16")
    train(full)
    train(mixed)
    assert mixed.losses != full.losses and mixed.losses == pytest.approx(full.losses, rel=0.05)
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
