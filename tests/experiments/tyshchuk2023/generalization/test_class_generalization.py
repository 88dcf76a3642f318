import numpy as np
import pytest

from clip_geometry import Pipeline
from clip_geometry.evaluate.zero_shot import zero_shot
from clip_geometry.registry import InputError
from clip_geometry.transforms import LeastSquares, Procrustes, ReAlign
from clip_geometry_experiments.tyshchuk2023.generalization import class_generalization
from support import oracles_evaluators as oracles

K, D = 8, 6
IDENTITY = Pipeline("")


def task(seed=0):
    """(fit_x, fit_labels, image, labels, class_text): images are turned and shifted texts with noise."""
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(K, D)) + 0.5
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    labels = rng.integers(K, size=500)
    image = text[labels] @ (turn + 2 * np.eye(D)) + rng.normal(size=(500, D)) + 1
    return image[:200], labels[:200], image[200:], labels[200:], text


def share_right(image, labels, text):
    return (oracles.logits(image, text, "cosine").argmax(1) == labels).mean()


@pytest.mark.parametrize("known", [0.5, 0.25, [0, 5], range(5)])
@pytest.mark.parametrize("seed", range(3))
def test_both_halves_of_the_identity_make_the_zero_shot_accuracy(known, seed):
    data = task(seed)
    found = class_generalization(IDENTITY, *data, known=known, seed=seed)
    assert found["all"] == zero_shot(*data[2:])["top_1"]
    count = found["known_classes"]
    assert count == (known * K if isinstance(known, float) else len(known))
    if not isinstance(known, float):
        old = np.isin(data[3], known)
        assert found["known"] == share_right(data[2][old], data[3][old], data[4])
        weighted = old.mean() * found["known"] + (1 - old.mean()) * found["new"]
        assert found["all"] == pytest.approx(weighted, abs=1e-15)


@pytest.mark.parametrize(("name", "make"), [("procrustes", Procrustes), ("least_squares", LeastSquares)])
@pytest.mark.filterwarnings("ignore::clip_geometry.transforms.RankWarning")
def test_a_map_between_sets_moves_texts_and_sees_known_classes_only(name, make):
    fit_x, fit_labels, image, labels, text = task()
    known, pipeline = [0, 2, 3, 6, 7], Pipeline(f"{name}[text-to-image]")
    chosen = np.isin(fit_labels, known)
    moved = make().fit(text[fit_labels[chosen]], fit_x[chosen]).transform(text)
    old = np.isin(labels, known)
    found = class_generalization(pipeline, fit_x, fit_labels, image, labels, text, known=known)
    assert found["known"] == share_right(image[old], labels[old], moved)
    assert found["new"] == share_right(image[~old], labels[~old], moved)
    spoilt = np.where(chosen[:, None], fit_x, 100 * fit_x[::-1])
    assert found == class_generalization(pipeline, spoilt, fit_labels, image, labels, text, known=known)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"known": 0.01}, "known = 0.01 of 4 classes is 0; expected at least two known and two new ones"),
        ({"known": [0, 1, 2]}, r"known = \[0, 1, 2\] of 4 classes is 3; expected at least two known"),
        ({"labels": [0] * 6}, "no image has a label of the 2 new classes; add images of them"),
        ({"known": [0, 3]}, "known class 3 has no row in fit_x; expected rows of every known class"),
    ],
)
def test_errors(change, sentence):
    x, labels = np.arange(24.0).reshape(6, 4) + 1, [0, 1, 2, 0, 1, 2]
    given = {"fit_x": x, "fit_labels": labels, "image": x, "labels": labels, "class_text": np.eye(4), "known": [0, 1]}
    with pytest.raises(InputError, match=sentence):
        class_generalization(IDENTITY, **(given | change))


def test_a_map_without_pairs_is_fitted_on_one_text_of_each_known_class():
    fit_x, fit_labels, image, labels, text = task()
    moved = ReAlign().fit(text[:4], fit_x[fit_labels < 4]).transform(text)
    found = class_generalization(Pipeline("realign[text-to-image]"), *task(), known=range(4))
    assert found["all"] == share_right(image, labels, moved)


def test_a_pipeline_is_fitted_on_images_and_texts_of_known_classes_and_moves_both():
    fit_x, fit_labels, image, labels, text = task()
    chosen = fit_labels < 5
    found = class_generalization(Pipeline("center[each]"), fit_x, fit_labels, image, labels, text, known=range(5))
    centered = image - fit_x[chosen].mean(0), text - text[:5].mean(0)
    assert found["all"] == share_right(centered[0], labels, centered[1])
    assert found["all"] != share_right(centered[0], labels, text - text.mean(0))


def test_a_pipeline_that_moves_the_modalities_apart_is_refused():
    with pytest.raises(InputError, match=r"center was fitted on each modality separately"):
        class_generalization(Pipeline("center"), *task())
