"""What is the same numbers gives the same tensor; every other argument is one sentence."""

import functools
import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import clip_geometry as cg
from clip_geometry.evaluate.linear_probe import modality_separability
from clip_geometry.geometry import isoscore, measures
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import as_tensor, flag, members, positive_number, seed_number, whole_number
from clip_geometry.steps import transforms
from clip_geometry.transforms import Center
from support.public import PUBLIC

X = np.array([[1.5, -2.0, 0.25], [0.0, 3.0, 8.0], [-1.0, 0.5, 2.0], [4.0, -0.5, 1.0]])  # exact in every precision


def strided():
    x = np.zeros((8, 6))
    x[::2, ::2] = X
    return x[::2, ::2]


def packed():
    """Strides that are no multiple of an element."""
    records = np.zeros(4, dtype=[("a", "f8", (3,)), ("b", "i1")])
    records["a"] = X
    return records["a"]


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


SAME = {
    **{name: lambda name=name: X.astype(name) for name in ("f2", "f4", "f8", ">f2", ">f4", ">f8")},
    **{name: lambda name=name: torch.from_numpy(X).to(getattr(torch, name)) for name in ("float16", "bfloat16")},
    "negative strides": lambda: X[::-1, ::-1].copy()[::-1, ::-1],
    "columns": lambda: np.asfortranarray(X),
    "every second": strided,
    "packed": packed,
    "read-only": read_only,
    "a matrix": lambda: X.view(np.matrix),
    "transposed tensor": lambda: torch.from_numpy(X.T.copy()).T,
    "expanded tensor": lambda: torch.from_numpy(X)[:, :, None].expand(4, 3, 2)[:, :, 1],
    "with gradient": lambda: torch.from_numpy(X).requires_grad_(),
    "a parameter": lambda: torch.nn.Parameter(torch.from_numpy(X)),
    "negated view": lambda: torch.complex(torch.zeros(4, 3), torch.from_numpy(-X).float()).conj().imag,
    "a table": lambda: pd.DataFrame(X),
    "a table of pandas' own floats": lambda: pd.DataFrame(X, dtype="Float32"),
    "lists": lambda: X.tolist(),
    "tuples": lambda: tuple(map(tuple, X.tolist())),
    "a list of arrays": lambda: list(X),
    "a list of tensors": lambda: list(torch.from_numpy(X)),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_numbers(kind):
    given = SAME[kind]()
    assert np.array_equal(as_tensor(given, "x").detach().double().numpy(), X)
    assert float(torch.as_tensor(isoscore(given)).detach()) == pytest.approx(float(isoscore(X)), rel=1e-6)
    assert np.allclose(Center().fit(given).transform(given), X - X.mean(0), atol=1e-12)


def test_gradients_pass_and_memory_is_shared():
    rows = [row.requires_grad_() for row in torch.from_numpy(X)]
    isoscore(rows).backward()
    assert all(row.grad is not None and row.grad.abs().sum() > 0 for row in rows)
    x = X.astype(np.float16)
    assert as_tensor(x, "x").data_ptr() == x.ctypes.data


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.from_numpy(X).float(), 0.1, 0, torch.qint8)


def sparse_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(3).to_sparse_csr()


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def masked():
    from torch.masked import MaskedTensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MaskedTensor(torch.from_numpy(X), torch.ones(4, 3, dtype=torch.bool))


class Hostile:
    def __array__(self, dtype=None, copy=None):
        raise ZeroDivisionError("of its own")


def endless():
    rows: list = []
    rows.append(rows)
    return rows


OTHER = {
    "0-d": (lambda: np.array(1.0), r"shape \(\); expected a matrix"),
    "1-d": (lambda: X[0], r"shape \(3,\); expected a matrix"),
    "3-d": (lambda: torch.ones(2, 2, 2), r"shape \(2, 2, 2\); expected a matrix"),
    "ragged": (lambda: [[1.0], [1.0, 2.0]], "rows of one length"),
    "endless": (endless, "rows of one length"),
    "an empty list": (list, r"shape \(0,\)"),
    "ragged tensors": (lambda: [torch.ones(2), torch.ones(3)], "one matrix"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "sparse_coo tensor"),
    "sparse rows": (sparse_rows, "sparse_csr tensor"),
    "a list of sparse": (lambda: [torch.ones(3).to_sparse()], "is a torch.sparse_coo"),
    "scipy": (lambda: scipy.sparse.eye_array(3).tocsr(), "is a csr_array"),
    "float8": (lambda: torch.ones(3, 3).to(torch.float8_e4m3fn), "dtype float8_e4m3fn"),
    "meta": (lambda: torch.ones(3, 3, device="meta"), "on meta; expected a dense tensor with values"),
    "quantized": (quantized, "a quantized tensor"),
    "nested": (nested, "a nested tensor"),
    "masked tensor": (masked, "a MaskedTensor"),
    "complex tensor": (lambda: torch.ones(3, 3, dtype=torch.complex64), "dtype complex64"),
    "integers": (lambda: torch.ones(3, 3, dtype=torch.int8), "dtype int8; expected floating point"),
    "booleans": (lambda: np.ones((3, 3), dtype=bool), "dtype bool; expected floating point"),
    "a list of integers": (lambda: [[1, 2], [3, 4]], "dtype int64; expected floating point"),
    "complex": (lambda: X + 0j, "dtype complex128"),
    "long double": (lambda: X.astype(np.longdouble), "dtype (float128|longdouble|float96)"),
    "objects": (lambda: X.astype(object), "dtype object"),
    "strings": (lambda: [["a", "b"]], "dtype <U1"),
    "dates": (lambda: np.zeros((3, 3), dtype="datetime64[s]"), r"dtype datetime64\[s\]"),
    "records": (lambda: np.zeros((3, 3), dtype=[("a\nb", "f8")]), "dtype .*expected floating point"),
    "masked array": (lambda: np.ma.masked_array(X), "masked array; drop the masked rows"),
    "a list of masked": (lambda: [np.ma.masked_array(X[0], X[0] > 0)], "masked array"),
    "a table with a word": (lambda: pd.DataFrame({"a": [1.0, 2.0], "b": ["c", "d"]}), "dtype object"),
    "a dictionary": (lambda: {"x": X}, "is a dict; expected a numpy array or a torch tensor"),
    "nothing": (lambda: None, "is a NoneType"),
    "a class": (lambda: np.ndarray, "is a type"),
    "hostile": (Hostile, "is a Hostile that is not a table of numbers"),
    "a huge integer": (lambda: [[10**400, 1.0]], "expected"),
}


@pytest.mark.parametrize("kind", OTHER)
def test_everything_else_is_one_sentence(kind):
    make, message = OTHER[kind]
    calls = {
        "as_tensor": lambda: as_tensor(make(), "x"),
        "measure": lambda: measures["average_cosine"](make()),
        "transform": lambda: Center().fit(make()),
        "evaluator": lambda: modality_separability(make(), X),
    }
    for call in calls.values():
        with pytest.raises(InputError, match=message) as raised:
            call()
        assert len(str(raised.value)) <= 400 and str(raised.value).isprintable()


@pytest.mark.parametrize("value", [3, np.int64(3), np.array(3), torch.tensor(3), np.uint8(3)])
def test_whole_numbers(value):
    result = whole_number(value, "k")
    assert result == 3 and type(result) is int


@pytest.mark.parametrize("value", [2.0, "3", None, True, np.float64(2), [3], 0, -1, float("nan"), 6])
def test_what_is_no_whole_number(value):
    with pytest.raises(InputError, match=r"^folds = .*; expected a whole number from 1 to 5, the rows$"):
        whole_number(value, "folds", most=5, of=", the rows")


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), np.float16(0.5)])
def test_positive_numbers(value):
    result = positive_number(value, "C")
    assert result == 0.5 and type(result) is float
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


IMAGE = np.random.default_rng(0).normal(size=(24, 4)) + 0.5
TEXT = 0.5 * IMAGE + np.random.default_rng(1).normal(size=(24, 4))
LABELS = [0, 1, 2] * 8


def fitted(make, *arguments):
    """The transform made and fitted, which is when its parameters are checked."""

    @functools.wraps(make)
    def call(*given, **options):
        return make(*given, **options).fit(IMAGE, TEXT)

    return call, arguments


# what a function takes beside its settings → every function that has some
GIVEN = {
    "rows": """uniformity hubs alpha_req min_pairwise_cosine hubness two_nn local_intrinsic_dimension isoscore
        singular_values effective_rank partition_isotropy""",
    "labeled rows": "lisi clisi silhouette silhouette_samples sampled_silhouette",
    "two sets": """cross_uniformity energy_distance sliced_wasserstein gap_shift_share ilisi cross_hubs cknna cycle_knn
        information_imbalance modality_gap modality_silhouette mutual_knn retrieval contrastive_loss
        cosine_distributions modality_separability""",
    "nothing": "IStar CosReg SIGReg",
}
ARGUMENTS = {"rows": (IMAGE,), "labeled rows": (IMAGE, LABELS), "two sets": (IMAGE, TEXT), "nothing": ()}
CALLS = {
    **{name: (PUBLIC[name], ARGUMENTS[kind]) for kind, names in GIVEN.items() for name in names.split()},
    **{name: fitted(kind) for name, kind in transforms.items() if name not in ("normalize", "center")},
    "isoscore_star": (cg.geometry.isoscore_star, (IMAGE, np.cov(TEXT.T))),
    "null_value": (cg.geometry.null_value, ("isoscore", 10, 3)),
    "standard_error": (cg.geometry.standard_error, ("isoscore", IMAGE)),
    "permutation_test": (cg.geometry.permutation_test, ("silhouette", IMAGE, LABELS)),
    "linear_probe": (cg.evaluate.linear_probe, (IMAGE, LABELS, IMAGE, LABELS)),
    "zero_shot": (cg.evaluate.zero_shot, (IMAGE, LABELS, TEXT[:3])),
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
