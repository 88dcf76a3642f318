"""What a program without clip-geometry gets of a shipped repair: the best items of a mixed index for raw queries."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

K = 10


def module(path: Path):
    """A shipped script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def ours(repair, query, q, items, k=K):
    """(scores, rows) of the best k of all items, one modality after the other, by the repair itself."""
    scores = np.concatenate(list(repair.mixed(query, q, items).values()), axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def by_faiss(folder, query, q, items, k=K):
    pytest.importorskip("faiss")
    return module(folder / "search.py").search(query, q, k)


def by_onnx(folder, query, q, items, k=K):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def rows(name, raw):
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        return session.run(["row"], {"raw": np.asarray(raw, dtype=np.float32)})[0].astype(float)

    index = np.concatenate([rows(f"{name}.item", x) for name, x in items.items()])
    return best(rows(f"{query}.query", q) @ index.T, k)


def by_numpy(folder, query, q, items, k=K):
    script = module(folder / "repair.py")
    items = {name: script.rows("items", name, x) for name, x in items.items()}
    scores, found = script.top(query, q, items, k)
    starts = dict(zip(items, np.cumsum([0, *(len(x) for x in items.values())]), strict=False))
    return scores, np.array([[starts[name] + row for name, row in each] for each in found])


def best(scores, k):
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


SEARCHES = {"faiss": by_faiss, "onnx": by_onnx, "numpy": by_numpy}


def assert_same_top(found, expected, scale):
    """The same items in the same order, scores to 1e-5.

    Items whose scores are nearer to each other than that may trade places: float32 cannot tell them apart.
    scale: by which a score multiplies the cosine. A cosine of 512 dimensions in float32 is up to 1e-6 off on the
    processors seen, by the order in which they add; 2e-6 is admitted, so that 1e-5 holds for scales up to 5, and beyond
    the tolerance grows in proportion.
    """
    (scores, rows), (wanted, order) = found, expected
    tolerance = 1e-5 * max(1.0, scale / 5)
    assert np.abs(scores - wanted).max() < tolerance
    k = wanted.shape[1]
    for mine, theirs, values in zip(rows, order, wanted, strict=True):
        for place in np.flatnonzero(mine != theirs):
            ties = np.flatnonzero(np.abs(values - values[place]) < 2 * tolerance)
            at_edge = values[place] - values[k - 1] < 2 * tolerance
            assert mine[place] in theirs[ties] or at_edge, (mine, theirs, values)


def scale_of(repair):
    """The largest slope of an inner product, by which it multiplies the rounding of a cosine."""
    return max(abs(term.slope) for term in repair.terms_.values())
