import functools
import inspect

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.geometry.measure import measures
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import flag, members, positive_number, seed_number, whole_number
from clip_geometry.transforms import transforms


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3), torch.tensor(3), np.uint8(3)])
def test_whole_numbers(value):
    found = whole_number(value, "k")
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [2.0, "3", None, True, np.float64(2), [3], 0, -1, float("nan"), 6])
def test_what_is_no_whole_number(value):
    with pytest.raises(InputError, match=r"^folds = .*; expected a whole number from 1 to 5, the rows$"):
        whole_number(value, "folds", most=5, of=", the rows")


def test_without_an_upper_bound():
    assert whole_number(10**9, "k") == 10**9
    with pytest.raises(InputError, match=r"draws = 1; expected a whole number from 2 on$"):
        whole_number(1, "draws", least=2)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), np.float16(0.5)])
def test_positive_numbers(value):
    found = positive_number(value, "C")
    assert found == 0.5 and type(found) is float
    assert positive_number(2, "C") == positive_number(np.int8(2), "C") == 2


@pytest.mark.parametrize("value", [0, -1.0, "1", None, True, float("nan"), float("inf"), [1.0], np.array([1.0, 2.0])])
def test_what_is_no_positive_number(value):
    with pytest.raises(InputError, match=r"^C = .*; expected a positive, finite number, or 'validation'$"):
        positive_number(value, "C", of=", or 'validation'")


def test_members():
    several = ((1, 2), [1, 2], range(1, 3), np.array([1, 2]), torch.tensor([1, 2]), iter([1, 2]), {1, 2})
    assert all(members(value) == [1, 2] for value in several)
    assert members(()) == []
    assert [members(value) for value in (1, "ab", None, np.float32(1), np.array(1))] == [None] * 5


@pytest.mark.parametrize("value", [-1, 2**32, 1.5, "a", None])
def test_seeds(value):
    assert seed_number(2**32 - 1) == 2**32 - 1 and seed_number(0) == 0
    with pytest.raises(InputError, match=r"seed = .*; expected a whole number from 0 to 4294967295"):
        seed_number(value)


@pytest.mark.parametrize("value", [True, False, np.True_, torch.tensor(False)])
def test_flags(value):
    assert flag(value, "center") is bool(value)


X = np.random.default_rng(0).normal(size=(24, 4)) + 0.5
Y = 0.5 * X + np.random.default_rng(1).normal(size=(24, 4))
LABELS = [0, 1, 2] * 8


def fitted(make, *arguments):
    """The transform made and fitted, which is when its parameters are checked."""

    @functools.wraps(make)
    def call(*given, **options):
        return make(*given, **options).fit(X, Y)

    return call, arguments


# every function that takes settings, and what it takes beside them
CALLS = {
    "uniformity": (cg.uniformity, (X,)),
    "cross_uniformity": (cg.cross_uniformity, (X, Y)),
    "energy_distance": (cg.energy_distance, (X, Y)),
    "sliced_wasserstein": (cg.sliced_wasserstein, (X, Y)),
    "gap_shift_share": (cg.gap_shift_share, (X, Y)),
    "lisi": (cg.lisi, (X, LABELS)),
    "ilisi": (cg.ilisi, (X, Y)),
    "clisi": (cg.clisi, (X, LABELS)),
    "hubs": (cg.hubs, (X,)),
    "cross_hubs": (cg.cross_hubs, (X, Y)),
    "alpha_req": (cg.alpha_req, (X,)),
    "cknna": (cg.cknna, (X, Y)),
    "cycle_knn": (cg.cycle_knn, (X, Y)),
    "information_imbalance": (cg.information_imbalance, (X, Y)),
    "min_pairwise_cosine": (cg.min_pairwise_cosine, (X,)),
    "hubness": (cg.hubness, (X,)),
    "two_nn": (cg.two_nn, (X,)),
    "local_intrinsic_dimension": (cg.local_intrinsic_dimension, (X,)),
    "isoscore": (cg.isoscore, (X,)),
    "isoscore_star": (cg.isoscore_star, (X, np.cov(Y.T))),
    "silhouette": (cg.silhouette, (X, LABELS)),
    "silhouette_samples": (cg.silhouette_samples, (X, LABELS)),
    "modality_gap": (cg.modality_gap, (X, Y)),
    "modality_silhouette": (cg.modality_silhouette, (X, Y)),
    "mutual_knn": (cg.mutual_knn, (X, Y)),
    "singular_values": (cg.singular_values, (X,)),
    "effective_rank": (cg.effective_rank, (X,)),
    "partition_isotropy": (cg.partition_isotropy, (X,)),
    "sampled_silhouette": (cg.sampled_silhouette, (X, LABELS)),
    "null_value": (cg.null_value, ("isoscore", 10, 3)),
    "standard_error": (cg.standard_error, ("isoscore", X)),
    "permutation_test": (cg.permutation_test, ("silhouette", X, LABELS)),
    "retrieval": (cg.retrieval, (X, Y)),
    "two_sided_retrieval": (cg.two_sided_retrieval, (X, Y)),
    "contrastive_loss": (cg.contrastive_loss, (X, Y)),
    "cosine_distributions": (cg.cosine_distributions, (X, Y)),
    "linear_probe": (cg.linear_probe, (X, LABELS, X, LABELS)),
    "modality_separability": (cg.modality_separability, (X, Y)),
    "zero_shot": (cg.zero_shot, (X, LABELS, Y[:3])),
    "pca": fitted(cg.PCA),
    "whiten": fitted(cg.Whiten),
    "all_but_the_top": fitted(cg.AllButTheTop),
    "cluster_center": fitted(cg.ClusterCenter),
    "scale": fitted(cg.Scale),
    "procrustes": fitted(cg.Procrustes),
    "least_squares": fitted(cg.LeastSquares),
    "ridge": fitted(cg.Ridge),
    "realign": fitted(cg.ReAlign),
    "isoclip": fitted(cg.IsoCLIP),
    "conceptor": fitted(cg.Conceptor),
    "mini_vec2vec": fitted(cg.MiniVec2Vec),
    "IStar": (cg.IStar, ()),
    "CosReg": (cg.CosReg, ()),
    "SIGReg": (cg.SIGReg, ()),
}
REQUIRED = {
    "pca": {"k": 2},
    "cluster_center": {"k": 2},
    "isoclip": {"top": 1, "bottom": 1},
    "IStar": {"lambda_": 1.0},
    "SIGReg": {"lambda_": 1.0},
}
WRONG = (
    "nonsense",
    [],
    {},
    1j,
    float("nan"),
    10**400,
    object(),
    torch.ones(2),
    torch.ones((), device="meta"),
    "x\n" * 999,
)
ELSEWHERE = {"n_text", "labels", "prepare", "group", "mean"}  # no settings, or with tests of their own


def settings(name):
    function, given = CALLS[name]
    parameters = list(inspect.signature(function).parameters.values())[len(given) :]
    return [each.name for each in parameters if each.kind is not each.VAR_POSITIONAL and each.name not in ELSEWHERE]


def test_every_function_with_settings_is_here():
    functions = {each.function for each in measures.values()}
    known = {function for function, _ in CALLS.values()}
    for function in functions - known:
        parameters = inspect.signature(function).parameters.values()
        assert not [each.name for each in parameters if each.kind is each.KEYWORD_ONLY], function
    assert {*transforms} - {"normalize", "center"} <= CALLS.keys()


@pytest.mark.parametrize(("name", "setting"), [(name, each) for name in CALLS for each in settings(name)])
def test_a_wrong_setting_is_one_sentence_that_names_it(name, setting):
    function, given = CALLS[name]
    for value in WRONG:
        if setting == "C" and isinstance(value, torch.Tensor) and not value.is_meta:
            continue  # several
        with pytest.raises(InputError, match=rf"\b{setting}\b") as raised:
            function(*given, **{**REQUIRED.get(name, {}), setting: value})
        message = str(raised.value)
        assert len(message) <= 400 and message.isprintable() and " at 0x" not in message


ODD = {
    "isoscore": ({"unbiased": "no"}, "unbiased = 'no'; expected True or False"),
    "effective_rank": ({"center": 0}, "center = 0; expected True or False"),
    "hubness": ({"k": True}, "k = True; expected a whole number"),
    "uniformity": ({"block_size": 2**31}, "block_size = 2147483648; expected a whole number from 1 to 2147483647"),
    "permutation_test": ({"draws": 10**9}, "draws = 1000000000; expected a whole number from 1 to 100000"),
    "standard_error": ({"seed": -1}, "seed = -1; expected a whole number from 0 to 4294967295"),
    "silhouette": ({"metric": "cosin"}, "metric 'cosin' is unknown; did you mean 'cosine'"),
    "CosReg": ({"lambda_": True}, "lambda_ = True; expected a finite weight"),
    "pca": ({"center": "no"}, "center of pca = 'no'; expected True or False"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_passed_for_a_value(name):
    options, message = ODD[name]
    function, given = CALLS[name]
    with pytest.raises(InputError, match=message):
        function(*given, **{**REQUIRED.get(name, {}), **options})


@pytest.mark.parametrize("three", [np.int64(3), np.uint8(3), np.array(3), torch.tensor(3)])
def test_integers_of_any_type(three):
    for name, setting in (
        ("hubness", "k"),
        ("mutual_knn", "k"),
        ("local_intrinsic_dimension", "k"),
        ("retrieval", "k"),
    ):
        function, given = CALLS[name]
        assert function(*given, **{setting: three}) == function(*given, **{setting: 3})
    assert float(cg.standard_error("isoscore", X, blocks=three, seed=three)) > 0
    assert float(cg.uniformity(X, t=three, block_size=three)) == pytest.approx(float(cg.uniformity(X, t=3)), rel=1e-12)
