"""The one way in for rows: what is the same numbers gives the same tensor, everything else one sentence."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from clip_geometry.evaluators.modality_separability import modality_separability
from clip_geometry.geometry import isoscore, measures
from clip_geometry.registry import InputError
from clip_geometry.rows.arrays import as_tensor
from clip_geometry.transforms import Center

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
    "a list of sparse": (lambda: [torch.ones(3).to_sparse()], "row 0 of .* is a torch.sparse_coo"),
    "scipy": (lambda: scipy.sparse.eye_array(3).tocsr(), "is a csr_array"),
    "float8": (lambda: torch.ones(3, 3).to(torch.float8_e4m3fn), "dtype float8_e4m3fn"),
    "meta": (lambda: torch.ones(3, 3, device="meta"), "on meta; expected a dense one with values"),
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
    "hostile": (Hostile, "is a Hostile that is no table of numbers"),
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
