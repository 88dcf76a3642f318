"""What a student is given is what its teacher says of the same in its own language; and nothing of held-out classes."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from clip_geometry.data import dataset_from, load_dataset
from clip_geometry.data.scenes import HELD_OUT, class_names
from clip_geometry.encoders import load_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.languages import aligned
from clip_geometry_experiments.studies.distillation import COSINE, LOSS, UNEXPLAINED, nearness
from support.distillation import LANGUAGES, PROMPTS, TINY, planned

EACH = TINY["batch_size"] // len(LANGUAGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The teacher's rows are made once."""
    return tmp_path_factory.mktemp("distillation")


@pytest.fixture(scope="module")
def teacher():
    return load_encoder("scenes-clip/fresh", "cpu")


def decoded(experiment, tokens):
    texts = experiment.sources.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return [text.strip() for text in texts]


def in_languages(experiment, trainer, number):
    """(language, its texts of a step, the rows that they should give)."""
    tokens, targets = trainer.batch(number)
    texts = decoded(experiment, tokens)
    for k, language in enumerate(LANGUAGES):
        part = slice(k * EACH, (k + 1) * EACH)
        yield language, texts[part], targets[part]


# --- what is learned


def test_a_caption_should_give_what_the_teacher_says_of_its_translation(folder, teacher):
    experiment = planned(folder, class_captions=0.0)
    trainer = experiment.trainer()
    sides = {name: load_dataset(dataset_from({**TINY["data"], "language": name})).text for name in LANGUAGES}
    english = [sides["en"].load(k) for k in range(60)]
    expected = teacher.text_features(teacher.tokenize(english))
    for language, texts, targets in in_languages(experiment, trainer, 2):
        places = defaultdict(list)  # two scenes may be worded alike in one language and not in another
        for k in range(60):
            places[sides[language].load(k).lower()].append(k)
        for text, target in zip(texts, targets, strict=True):
            distances = [float((expected[k] - target).abs().max()) for k in places[text]]
            assert min(distances) < 1e-5  # float32, in other batches


def test_class_prompts_are_of_seen_classes_only_and_of_the_teachers_own_prompt(folder, teacher):
    """With nothing but prompts, 600 in each language: all classes of the 30 scenes, and so no held-out one."""
    experiment = planned(folder, class_captions=1.0)
    trainer = experiment.trainer()
    english = teacher.text_features(teacher.tokenize([f"A picture of a {name}." for name in class_names()]))
    found = {language: set() for language in LANGUAGES}
    for number in range(60):
        for language, texts, targets in in_languages(experiment, trainer, number):
            prompts = [PROMPTS[language][0].format(name).lower() for name in class_names(language)]
            codes = [prompts.index(text) for text in texts]
            found[language] |= set(codes)
            if number < 3:
                assert torch.allclose(targets, english[codes], atol=1e-5)
    trained = set(load_dataset(dataset_from(TINY["data"])).image.labels.tolist())
    assert len(trained) > 15 and not trained & set(HELD_OUT)
    assert all(codes == trained for codes in found.values())


# --- a step


def test_an_epoch_has_every_caption_once_in_every_language(folder):
    experiment = planned(folder, class_captions=0.0)
    trainer = experiment.trainer()
    for epoch in range(2):
        numbers = range(6 * epoch, 6 * epoch + 6)  # 60 captions in batches of 10
        of = defaultdict(list)
        for number in numbers:
            for language, texts, _ in in_languages(experiment, trainer, number):
                of[language] += texts
        for language, texts in of.items():
            assert sorted(texts) == sorted(decoded(experiment, experiment.captions[language].tokens))


def test_a_step_depends_on_the_seed_and_its_number_only(folder):
    one, same = planned(folder).trainer(), planned(folder, steps=9).trainer()
    for _ in range(2):
        one.step()
    for a, b in zip(one.batch(4), same.batch(4), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.batch(4)[0], one.batch(5)[0])
    assert not torch.equal(one.batch(4)[0], planned(folder, seed=1).trainer().batch(4)[0])
    english, german = one.batch(4)[1][: 2 * EACH].split(EACH)
    assert not torch.equal(english, german)  # each language has an order of its own


def test_the_loss_is_the_mean_squared_error_of_the_batch(folder):
    """By one pass of the student over the whole batch, in float64 on the way to the mean."""
    trainer = planned(folder).trainer()
    tokens, targets = trainer.batch(0)
    with torch.no_grad():
        rows = trainer.student(tokens)
        loss = float(trainer.batch_loss(tokens, targets))
    assert loss == pytest.approx(float((rows.double() - targets.double()).square().mean()), rel=1e-5)
    trainer.step()
    assert trainer.losses == pytest.approx([loss], rel=1e-5) and trainer.number == 1


# --- numbers


def test_nearness_is_its_formulas():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(30, 5, generator=generator, dtype=torch.float64) + 2
    rows = targets + 0.3 * torch.randn(30, 5, generator=generator, dtype=torch.float64)
    found = nearness(rows.float(), targets.float())
    t, s = targets.numpy(), rows.numpy()
    assert found[LOSS] == pytest.approx(np.mean((s - t) ** 2), rel=1e-5)
    assert found[UNEXPLAINED] == pytest.approx(np.sum((s - t) ** 2) / np.sum((t - t.mean(0)) ** 2), rel=1e-5)
    cosines = (s * t).sum(1) / np.linalg.norm(s, axis=1) / np.linalg.norm(t, axis=1)
    assert found[COSINE] == pytest.approx(cosines.mean(), rel=1e-5)
    assert np.isnan(nearness(rows, targets[:1].expand(30, 5))[UNEXPLAINED])


# --- pairs, and what is wrong with them


def test_the_kth_caption_of_an_item_translates_its_kth_caption():
    i, j = aligned(["a", "b", "a", "c"], ["c", "a", "d", "a", "a"])
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == [(3, 0), (0, 1), (2, 3)]
    with pytest.raises(InputError, match="no captions in common, by their item ids"):
        aligned(["a"], ["b"])


def test_a_batch_of_more_than_there_is_is_said(folder):
    with pytest.raises(InputError) as error:
        planned(folder, batch_size=244).trainer()
    assert "batch_size is 244, 61 texts in each language, but there are 60 captions in 'en'" in str(error.value)


def test_prompts_of_data_without_classes_are_said(tmp_path):
    table = tmp_path / "t.tsv"
    table.write_text("en\tde\n" + "\n".join(f"a {k}\tein {k}" for k in range(20)) + "\n")
    data = {"name": "captions", "path": str(table)}
    experiment = planned(tmp_path, languages=["en", "de"], data=data)
    with pytest.raises(InputError, match="captions has no labels with class names, from which prompts are made"):
        experiment.trainer()
