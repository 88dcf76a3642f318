"""What is tried: rows and settings as users hold them, and files, JSON and texts that were valid once."""

import copy
import json
import math

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

from clip_geometry.embeddings import LazyRows
from clip_geometry.rows.streamed import StreamedRows

LONG = "x" * 999
JUNK = [None, True, "", "no", "é\n\x1b[31m", LONG, b"x", -1, 0, 1, 3, 10**30, 0.5, -0.0, 1e308, 1e-320, math.nan]
JUNK += [math.inf, 1j, [], [1], [[1.0]], (), {}, {"a": 1}, {1}, object(), int, print, np.int64(2), np.float32(0.5)]
JUNK += [np.array([1, 2]), np.array(3), torch.tensor(2), torch.tensor([1.0, 2.0])]
JUNK_JSON = [None, True, "", "no", "\ud800", LONG, -1, 0, 1, 10**30, 0.5, 1e308, math.nan, [], [1], {}, {"a": 1}]
junk = st.sampled_from(JUNK)


def rarely(share):
    """True in one case of about so many; Hypothesis prefers the ends of a range, and shrinks to 0."""
    return st.integers(0, share + 1).map(lambda k: k == share // 2 + 1)


def often(strategy, otherwise, share=8):
    """`strategy`, but for one case in about so many."""
    return rarely(share).flatmap(lambda odd: otherwise if odd else strategy)


# -- rows

KINDS = {
    "gaussian": lambda g: g,
    "far from the origin": lambda g: g + 1e6,
    "close together": lambda g: 1 + 1e-9 * g,
    "ties": lambda g: np.round(g),
    "equal": lambda g: np.ones_like(g),
    "zero": lambda g: np.zeros_like(g),
    "on a line": lambda g: g[:, :1] * g[:1],
    "a constant column": lambda g: np.where(np.arange(g.shape[1]) == 0, 1.0, g),
    "a zero row": lambda g: np.where(np.arange(len(g))[:, None] == len(g) // 2, 0.0, g),
    "each row twice": lambda g: g[np.arange(len(g)) // 2],
    "an outlier": lambda g: np.where(np.arange(len(g))[:, None] == 0, 1e12, g),
    "opposite pairs": lambda g: g[np.arange(len(g)) // 2] * (-1.0) ** np.arange(len(g))[:, None],
    "unit": lambda g: g / np.linalg.norm(g, axis=1, keepdims=True),
    "one-hot": lambda g: np.eye(max(g.shape))[: len(g), : g.shape[1]],
    "all magnitudes": lambda g: g * 10.0 ** np.linspace(-300, 300, g.shape[1]),
}
SCALES = [1.0] * 8 + [1e-320, 1e-308, 1e-160, 1e-45, 1e-38, 1e-7, 1e3, 6e4, 1e19, 1e38, 1e80, 1e154, 1e200, 1e308]
DTYPES = [np.float32] * 4 + [np.float64] * 4 + [np.float16]
ODD_DTYPES = [np.int64, np.uint8, bool, complex, object, "U3", "M8[s]", np.longdouble, "f4,f4"]
FORMS = {
    "array": lambda x: x,
    "column-major": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "read-only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "list": lambda x: x.tolist(),
    "list of arrays": list,
    "table": pd.DataFrame,
    "tensor": lambda x: torch.from_numpy(x.copy()),
    "transposed tensor": lambda x: torch.from_numpy(x.T.copy()).T,
    "tensor with gradient": lambda x: torch.from_numpy(x.copy()).requires_grad_(),
    "bfloat16": lambda x: torch.from_numpy(x.copy()).bfloat16(),
    "streamed": lambda x: StreamedRows.of(LazyRows([x[:1], x[1:]])),
    "sharded": lambda x: LazyRows([x[:1], x[1:]]),
}
ODD_FORMS = {
    "masked": lambda x: np.ma.masked_greater(x, 1),
    "matrix": np.matrix,
    "one row": lambda x: x.reshape(-1),
    "a cube": lambda x: x[None],
    "ragged": lambda x: [row[: k + 1] for k, row in enumerate(x.tolist())],
    "sparse": lambda x: torch.from_numpy(x.copy()).to_sparse(),
    "meta": lambda x: torch.from_numpy(x.copy()).to("meta"),
    "float8": lambda x: torch.from_numpy(x.copy()).to(torch.float8_e4m3fn),
    "nothing": lambda x: None,
    "text": str,
    "iterator": iter,
    "table of text": lambda x: pd.DataFrame(x.astype(str)),
}
SIZES = st.sampled_from([12, 12, 24, 24, 16, 16, 8, 8, 6, 5, 4, 3, 2, 1, 0])
WIDTHS = st.sampled_from([3, 3, 4, 6, 2, 2, 1, 0])


@st.composite
def arrays(draw, n=None, d=None, dtypes=DTYPES):
    """Finite rows but where one value is not, mostly of n rows and d columns."""
    n = draw(SIZES if n is None else often(st.just(n), SIZES, 40))
    d = draw(WIDTHS if d is None else often(st.just(d), WIDTHS, 40))
    kind, scale = draw(st.sampled_from(list(KINDS.values()))), draw(st.sampled_from(SCALES))
    with np.errstate(all="ignore"):
        x = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(n, d))
        x = (np.nan_to_num(kind(x)) * scale if x.size else x).astype(draw(st.sampled_from(dtypes)))
    if x.size and draw(rarely(30)):
        x[draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return x


@st.composite
def rows(draw, n=None, d=None):
    """The same as an array, a tensor, a list, a table, streamed, …; one in about twenty as something else."""
    x = draw(arrays(n, d))
    if np.abs(x).max(initial=0) < 9 and draw(rarely(40)):
        return x.astype(draw(st.sampled_from(ODD_DTYPES)))
    return draw(often(st.sampled_from(list(FORMS.values())), st.sampled_from(list(ODD_FORMS.values())), 40))(x)


LABELS = {
    "integers": lambda n: np.arange(n) * 7 % 11 % 3,
    "words": lambda n: [f"class {k % 3}" for k in range(n)],
    "tensor": lambda n: torch.arange(n) % 3,
    "objects": lambda n: np.array([f"{k % 3}" for k in range(n)], dtype=object),
    "one each": lambda n: list(range(n)),
    "column": lambda n: pd.Series(np.arange(n) % 3),
}
ODD_LABELS = {
    "numbers": lambda n: np.arange(n) % 3 + 0.5,
    "mixed": lambda n: [(1, "a", 2.5, None)[k % 4] for k in range(n)],
    "missing": lambda n: np.where(np.arange(n) == 0, np.nan, np.arange(n) % 3),
    "negative": lambda n: np.arange(n) % 3 - 1,
    "huge": lambda n: [10**30 + k % 3 for k in range(n)],
    "nested": lambda n: [[k % 3] for k in range(n)],
    "too many": lambda n: np.arange(n + 1) % 3,
    "nothing": lambda n: None,
    "text": lambda n: "ab" * (n // 2),
}


def labels(n):
    return often(*(st.sampled_from([make(n) for make in table.values()]) for table in (LABELS, ODD_LABELS)))


# -- what was valid once


@st.composite
def damaged(draw, content):
    """Bytes after one to three of: cut, flipped, overwritten, repeated, left out, swollen."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        # the ends hold headers, footers and directories
        at = draw(st.integers(0, len(content)) | st.integers(0, 200) | st.integers(0, 400).map(lambda k: -k))
        length = draw(st.integers(1, 16))
        match draw(st.sampled_from(["cut", "flip", "set", "repeat", "drop", "insert"])):
            case "cut":
                del content[at:]
            case "flip" if content:
                content[at % len(content)] ^= 1 << draw(st.integers(0, 7))
            case "set":
                content[at : at + length] = draw(st.sampled_from([b"\0", b"\xff", b"\x80", b"9", b"["])) * length
            case "repeat":
                content[at:at] = content[at : at + 50 * length]
            case "drop":
                del content[at : at + length]
            case "insert":
                content[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(content)


def places(value, path=()):
    """The paths to all parts of a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(children)[:20]:
        yield from places(child, (*path, key))


@st.composite
def altered(draw, value):
    """A JSON value in which one or two parts were replaced, removed, renamed, repeated or wrapped."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 2))):
        *path, last = draw(st.sampled_from([path for path in places([value]) if path]))
        parent = box = [value]
        for key in path:
            parent = parent[key]
        match draw(st.sampled_from(["replace"] * 5 + ["remove", "rename", "repeat", "wrap"])):
            case "remove" if len(path) > 0:
                del parent[last]
            case "rename" if isinstance(parent, dict):
                parent[draw(st.sampled_from(["x", "", *parent]))] = parent.pop(last)
            case "repeat" if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[last]))
            case "wrap":
                parent[last] = [parent[last]]
            case _:
                parent[last] = copy.deepcopy(draw(st.sampled_from(JUNK_JSON)))  # it may be altered next
        value = box[0]
    return value


def altered_file(name, content):
    """Damaged bytes; of .json mostly other values."""
    if not name.endswith(".json"):
        return damaged(content)
    return often(altered(json.loads(content)).map(lambda value: json.dumps(value).encode()), damaged(content), 4)


@st.composite
def one_damaged(draw, files):
    """A folder's files (name → bytes), one of them damaged, missing, or with another's content."""
    name = draw(st.sampled_from(sorted(files)))
    match draw(st.integers(0, 9)):
        case 8:
            return {other: content for other, content in files.items() if other != name}
        case 9:
            return files | {name: files[draw(st.sampled_from(sorted(files)))]}
        case _:
            return files | {name: draw(altered_file(name, files[name]))}
