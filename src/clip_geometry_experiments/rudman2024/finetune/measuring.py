"""Evaluation of a fine-tuned transformer on the validation windows: performance, geometry, and result records."""

import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.geometry import measures
from clip_geometry.geometry.statistics.moments import Moments
from clip_geometry.geometry.uncertainty import BLOCKS, standard_error
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry.training.losses import hidden_rows, second_moments
from clip_geometry_experiments.kit import training
from clip_geometry_experiments.kit.base import data_options
from clip_geometry_experiments.report.figures import sampled_cosines
from clip_geometry_experiments.rudman2024.finetune.model import I_STAR, NONE, FinetuneConfig
from clip_geometry_experiments.rudman2024.finetune.training import Examples, FineTuningTrainer, Windows

MEASURED_TOKENS = 50_000  # approximate number of tokens of validation sentences
LONGEST_ANSWER = 30  # tokens
BINS = 100  # bins of the cosines, from −1 to 1
MATTHEWS, PEARSON, F1, ACCURACY, EXACT = "matthews", "score_pearson", "f1", "accuracy", "exact_match"
SEED = "training.seed"  # of head, batches and dropout; a row's own `seed` is of samples and held-out examples
ALL = "all"
PERFORMANCE = "finetune.performance"

Best = tuple[float, int, int]  # score, first and last character (exclusive)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Result of a pass over the validation windows.

    Args:
        sentences: Sentence embeddings at the input of the head, (w, d).
        last: Tokens of the last layer, (n, d).
        layers: Moments of the same tokens over all layers.
        scores: Outputs of the head, (w, k).
        spans: The best span of each window, or None.
    """

    sentences: Tensor
    last: Tensor
    layers: Moments
    scores: Tensor
    spans: list[Best | None]


@dataclass(frozen=True, eq=False)
class TaskMetric:
    """A metric: the function `of` applied to `columns`, each with one entry per validation example."""

    of: Callable[..., Any]
    columns: tuple[np.ndarray, ...]

    def __call__(self, *columns: Any) -> float:
        return float(self.of(*map(np.asarray, columns or self.columns)))

    @property
    def standard_error(self) -> float | None:
        """Jackknife standard error over validation examples; None if the metric is undefined without some of them."""
        try:
            return float(standard_error(self, *self.columns, blocks=min(BLOCKS, len(self.columns[0]))))
        except InputError:
            return None


@torch.no_grad()
def evaluate(
    trainer: FineTuningTrainer, inputs: Windows, *, tokens: int | None = MEASURED_TOKENS, seed: int
) -> Evaluation:
    """Run the trained model on other windows, without dropout.

    Args:
        trainer: The training whose model is evaluated.
        inputs: The windows.
        tokens: Approximate number of tokens to measure, in random windows; None measures all.
        seed: Seed of the random windows.
    """
    model = trainer.model.eval()
    measured = np.zeros(len(inputs), bool)
    measured[inputs.sample(tokens, np.random.default_rng(seed))] = True
    order, outputs, last = [], [], []
    moments = None
    for rows in inputs.batches(np.arange(len(inputs)), trainer.config.batch_size):
        batch, _ = inputs.batch(rows, trainer.device)
        with trainer.autocast():
            output = model(batch)
        order += rows.tolist()
        scores, sentences = output.scores.float().cpu(), output.sentences.float().cpu()
        for k, row in enumerate(rows.tolist()):
            if inputs.places is None:
                outputs.append((sentences[k], scores[k], None))
            else:  # the scores of single tokens are not kept
                places = inputs.places[row]
                best = best_span(scores[k, : len(places)].numpy(), places, LONGEST_ANSWER)
                outputs.append((sentences[k], scores[k, 0], best))
        chosen = np.flatnonzero(measured[rows])
        if chosen.size:
            mask = batch["attention_mask"][chosen]
            of_batch = second_moments(hidden_rows([layer[chosen] for layer in output.hidden], mask))
            moments = of_batch if moments is None else moments + of_batch
            last.append(output.hidden[-1][chosen][mask.bool()].float().cpu())
    assert moments is not None
    sentences, scores, spans = zip(*(outputs[k] for k in np.argsort(order)), strict=True)
    return Evaluation(torch.stack(sentences), torch.cat(last), moments, torch.stack(scores), list(spans))


# --- performance


def metrics(examples: Examples, inputs: Windows, seen: Evaluation) -> dict[str, TaskMetric]:
    """Return the metrics of a task; the first is its main metric.

    cola: Matthews' correlation, then accuracy; stsb: Pearson's correlation; squad: F1, then exact match; others:
    accuracy.
    """
    if examples.kind == "span":
        passages = [texts[1] for texts in examples.texts]
        predicted = answers(passages, inputs.example.tolist(), seen.spans)
        pairs = list(zip(predicted, examples.answers, strict=True))
        return {
            F1: TaskMetric(np.mean, (np.array([token_f1(*pair) for pair in pairs]),)),
            EXACT: TaskMetric(np.mean, (np.array([exact_match(*pair) for pair in pairs]),)),
        }
    if examples.kind == "score":
        return {PEARSON: TaskMetric(_pearson, (seen.scores[:, 0].numpy(), examples.targets))}
    predicted = seen.scores.argmax(1).numpy()
    accuracy = {ACCURACY: TaskMetric(np.mean, (predicted == examples.targets,))}
    if examples.name == "cola":
        from sklearn.metrics import matthews_corrcoef

        return {MATTHEWS: TaskMetric(matthews_corrcoef, (examples.targets, predicted)), **accuracy}
    return accuracy


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else math.nan


def best_span(scores: np.ndarray, places: np.ndarray, longest: int) -> Best | None:
    """Return the passage span whose first and last token have the highest sum of scores.

    Args:
        scores: Scores of each token as the first and as the last of the answer, (t, 2).
        places: Character offsets of each passage token, (t, 2); -1 for other tokens.
        longest: Maximum length of the span in tokens.

    Returns:
        The score and the first and last character (exclusive), or None if the window contains no part of the passage.
    """
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside):
        return None
    begin, end = scores[inside].astype(np.float64).T
    sums = begin[:, None] + end[None, :]
    allowed = np.tril(np.triu(np.ones_like(sums, bool)), longest - 1)
    first, last = np.unravel_index(np.where(allowed, sums, -np.inf).argmax(), sums.shape)
    return float(sums[first, last]), int(places[inside[first], 0]), int(places[inside[last], 1])


def answers(passages: Sequence[str], example: Sequence[int], spans: Iterable[Best | None]) -> list[str]:
    """Return the best answer of each passage over its windows, copied from the passage; "" if there is none."""
    best: dict[int, Best] = {}
    for k, span in zip(example, spans, strict=True):
        if span is not None and (k not in best or span[0] > best[k][0]):
            best[k] = span
    return [passage[best[k][1] : best[k][2]] if k in best else "" for k, passage in enumerate(passages)]


def normalised(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, and with single spaces."""
    without_punctuation = text.lower().translate(str.maketrans("", "", string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", without_punctuation).split())


def exact_match(predicted: str, accepted: Sequence[str]) -> float:
    """Return 1 if the normalized prediction is an accepted answer, else 0 (SQuAD, Rajpurkar et al. 2016)."""
    return float(any(normalised(predicted) == normalised(answer) for answer in accepted))


def token_f1(predicted: str, accepted: Sequence[str]) -> float:
    """Return the best F1 over the answers: harmonic mean of precision and recall of words, counted with repetition."""
    words = Counter(normalised(predicted).split())
    best = 0.0
    for answer in accepted:
        answer_words = Counter(normalised(answer).split())
        shared = (words & answer_words).total()
        if shared:
            precision, recall = shared / words.total(), shared / answer_words.total()
            best = max(best, 2 * precision * recall / (precision + recall))
    return best


# --- geometry


def geometry_rows(seen: Evaluation, layers: int, classes: np.ndarray | None = None) -> list[Record]:
    """Measure the geometry of tokens and sentences.

    For the tokens of all layers together: IsoScore. For the tokens of the last layer: average cosine, with a
    `histogram`. For the sentence embeddings at the input of the head: IsoScore, average cosine, TwoNN, the silhouette
    of their classes if they have classes, and the mean of each coordinate (`coordinates`).
    """
    tokens, sentences = {"rows": "tokens", "layer": "last"}, {"rows": "sentences", "layer": "last"}
    all_layers = {"rows": "tokens", "layer": f"1 to {layers}"}
    rows = [
        _row("isoscore", seen.layers, all_layers, n=seen.layers.n, d=seen.layers.d),
        _row("average_cosine", seen.last, tokens) | {"histogram": cosine_histogram(seen.last)},
        *(_row(name, seen.sentences, sentences) for name in ("isoscore", "average_cosine", "two_nn")),
    ]
    if classes is not None:
        rows.append(_row("silhouette", seen.sentences, sentences, classes))
    mean = seen.sentences.double().mean(0)
    largest = float(mean.abs().max() / mean.norm())
    more = {"at": sentences, "coordinates": [round(float(coordinate), 6) for coordinate in mean]}
    return [*rows, Record("finetune.largest_coordinate", largest, None, n=len(seen.sentences), d=len(mean), **more)]


def _row(name: str, rows: Any, at: dict[str, Any], *labels: Any, **size: int) -> Record:
    """Compute one measure; if it is undefined, the record has a note instead of a value."""
    fields: Row = {**(size or {"n": len(rows), "d": rows.shape[1]}), "at": at}
    try:
        value = float(measures[name](rows, *labels))
    except InputError as error:
        return Record(name, None, **fields, note=str(error))
    remark = measures[name].remark
    note = remark(rows) if remark is not None else None
    return Record(name, value, None, **fields, **({"note": note} if note else {}))


def cosine_histogram(rows: Tensor) -> list[int]:
    """Count the cosines of pairs of different rows in BINS, for all pairs or a sample with a fixed seed."""
    kinds, _ = sampled_cosines({"text": rows.numpy()}, None, np.random.default_rng(0))
    counts, _ = np.histogram(np.clip(kinds["two different texts"], -1, 1), BINS, (-1, 1))
    return counts.tolist()


# --- records


def context(config: FinetuneConfig, validation: Examples) -> Row:
    """Return the fields that all rows share."""
    own: Row = {"model": config.model.model, "model_options": config.model.options()}
    own |= {} if config.precision == "fp32" else {"dtype": config.precision}
    return training.context(validation.name, validation.split, data_options(config.task), config.seed, **own)


def performance_rows(task_metrics: Mapping[str, TaskMetric], examples: Examples) -> Iterator[Record]:
    """Yield a record per metric; the main metric is also `finetune.performance`, so that tasks can be compared."""
    for k, (name, metric) in enumerate(task_metrics.items()):
        value = metric()
        fields: Row = {"standard_error": metric.standard_error, "n": len(examples), "d": None}
        if not math.isfinite(value):
            value = None
            fields["note"] = "not defined: all predictions or all targets are equal"
        if k == 0:
            yield Record(PERFORMANCE, value, at={"metric": name}, **fields)
        yield Record(f"finetune.{name}", value, at={}, **fields)


def pooled_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the mean over seeds of every number of each method, with its standard error, and the correlations.

    SE² = s²/seeds + the mean squared error of a training over the validation examples, which all seeds share.
    """
    rows = list(rows)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["value"] is not None:
            at = {key: value for key, value in row["at"].items() if key != SEED}
            groups[repr((row["measure"], at))].append(row)
    for members in groups.values():
        values = np.array([row["value"] for row in members])
        of_examples = [row["standard_error"] for row in members if row.get("standard_error") is not None]
        error = None
        if len(values) > 1:
            shared = np.square(of_examples).mean() if of_examples else 0.0
            error = float((values.var(ddof=1) / len(values) + shared) ** 0.5)
        first = members[0]
        at = {**first["at"], SEED: ALL, "seeds": len(members)}
        yield Record(first["measure"], float(values.mean()), error, n=first["n"], d=first["d"], at=at)
    yield from correlation_rows(rows)


def correlation_rows(rows: Iterable[Row]) -> Iterator[Row]:
    """Correlate IsoScore (all layers) with performance over the trainings with any λ of I-STAR, including 0."""
    trainings: dict[tuple[float, int], dict[str, float]] = defaultdict(dict)
    for row in rows:
        at = row["at"]
        correlated = row["measure"] == PERFORMANCE or (row["measure"] == "isoscore" and at.get("rows") == "tokens")
        if not correlated or row["value"] is None or at.get(SEED) in (None, ALL):
            continue
        if at["method"] in (I_STAR, NONE):
            trainings[at["lambda"], at[SEED]][row["measure"]] = row["value"]
    pairs = [(numbers["isoscore"], numbers[PERFORMANCE]) for numbers in trainings.values() if len(numbers) == 2]
    x, y = np.array(pairs, dtype=float).reshape(-1, 2).T
    at = {"method": I_STAR, SEED: ALL, "of": "isoscore", "with": PERFORMANCE}
    yield from training.correlation_rows("finetune", x, y, d=None, at=at)
