"""A fine-tuned transformer on the validation sentences: what it makes of them, and the geometry of that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clip_geometry.experiments.rudman2024.finetune.inputs import Inputs
from clip_geometry.experiments.rudman2024.finetune.model import Output
from clip_geometry.experiments.rudman2024.finetune.spans import Best, best_span
from clip_geometry.experiments.rudman2024.finetune.training import Training
from clip_geometry.geometry import measures
from clip_geometry.geometry._core.moments import Moments
from clip_geometry.losses.hidden import Layers
from clip_geometry.losses.second_moments import second_moments
from clip_geometry.registry import InputError
from clip_geometry.results import Row

BINS = 100  # of the cosines, from −1 to 1


@dataclass(frozen=True, eq=False)
class Seen:
    """What a pass over the validation windows leaves. sentences: (w, d), as they go into the head. last: (n, d) tokens
    of the last layer. layers: moments of the same tokens in all layers. scores: (w, k). spans: the best of each window.
    """

    sentences: Tensor
    last: Tensor
    layers: Moments
    scores: Tensor
    spans: list[Best | None]


@torch.no_grad()
def look(training: Training, inputs: Inputs, *, tokens: int | None, longest: int, seed: int) -> Seen:
    """The model of a training on other windows, without dropout. tokens: of how many, about, tokens are measured, in
    random windows; None: of all. longest: tokens of an answer."""
    model = training.model.eval()
    measured = np.zeros(len(inputs), bool)
    measured[inputs.sample(tokens, np.random.default_rng(seed))] = True
    order, outputs, last, moments = [], [], [], None
    for part in inputs.batches(np.arange(len(inputs)), training.config.batch_size):
        given, _ = inputs.batch(part, training.device)
        with training.autocast():
            output = model(given)
        order += part.tolist()
        outputs += _of_each(output, inputs, part, longest)
        if (chosen := np.flatnonzero(measured[part])).size:
            mask = given["attention_mask"][chosen]
            layers = Layers([layer[chosen] for layer in output.hidden], mask)
            found = second_moments(layers.rows, layers.kept)
            moments = found if moments is None else moments + found
            last.append(output.hidden[-1][chosen][mask.bool()].float().cpu())
    assert moments is not None
    sentences, scores, spans = zip(*(outputs[k] for k in np.argsort(order)), strict=True)
    return Seen(torch.stack(sentences), torch.cat(last), moments, torch.stack(scores), list(spans))


def _of_each(
    output: Output, inputs: Inputs, part: np.ndarray, longest: int
) -> list[tuple[Tensor, Tensor, Best | None]]:
    """(sentence, scores, best span) of each window of a batch; the scores of tokens are not kept."""
    scores, sentences = output.scores.float().cpu(), output.sentences.float().cpu()
    if inputs.places is None:
        return [(sentence, score, None) for sentence, score in zip(sentences, scores, strict=True)]
    found = []
    for k, row in enumerate(part.tolist()):
        places = inputs.places[row]
        found.append((sentences[k], scores[k, 0], best_span(scores[k, : len(places)].numpy(), places, longest)))
    return found


def geometry_rows(seen: Seen, layers: int) -> list[Row]:
    """IsoScore of the tokens of all layers together; the cone of those of the last, and a `histogram` of their cosines;
    of the sentences as the head is given them IsoScore, cone, TwoNN, and the mean of each coordinate (`coordinates`).
    """
    tokens, sentences = {"rows": "tokens", "layer": "last"}, {"rows": "sentences", "layer": "last"}
    all_layers = {"rows": "tokens", "layer": f"1 to {layers}"}
    rows = [
        _row("isoscore", seen.layers, all_layers, n=seen.layers.n, d=seen.layers.d),
        {**_row("average_cosine", seen.last, tokens), "histogram": cosine_histogram(seen.last)},
        *(_row(name, seen.sentences, sentences) for name in ("isoscore", "average_cosine", "two_nn")),
    ]
    mean = seen.sentences.double().mean(0)
    largest = {"measure": "finetune.largest_coordinate", "value": float(mean.abs().max() / mean.norm())}
    size = {"n": len(seen.sentences), "d": len(mean), "standard_error": None}
    return [*rows, {**largest, **size, "at": sentences, "coordinates": [round(float(each), 6) for each in mean]}]


def _row(name: str, rows: Any, at: dict[str, Any], **size: int) -> Row:
    """A note instead of a value where the measure cannot be taken."""
    size = size or {"n": len(rows), "d": rows.shape[1]}
    row: Row = {"measure": name, "value": None, "standard_error": None, **size, "at": at}
    try:
        row["value"] = float(measures[name](rows))
    except InputError as error:
        return {**row, "note": str(error)}
    remark = measures[name].remark
    note = remark(rows) if remark is not None else None
    return {**row, "note": note} if note else row


def cosine_histogram(rows: Tensor) -> list[int]:
    """Counts in BINS of the cosines of pairs of different rows, all of them or a sample; by a fixed seed."""
    from clip_geometry.report.cosines import sampled_cosines

    kinds, _ = sampled_cosines({"text": rows.numpy()}, None, np.random.default_rng(0))
    counts, _ = np.histogram(np.clip(kinds["two different texts"], -1, 1), BINS, (-1, 1))
    return counts.tolist()


def loss_row(losses: Sequence[float], epoch_steps: int) -> Row:
    """The task's loss, mean of each epoch (`trajectory`); the value is that of the last."""
    epochs = [losses[start : start + epoch_steps] for start in range(0, len(losses), epoch_steps)]
    means = [float(np.mean(part)) for part in epochs]
    row = {"measure": "finetune.loss", "value": means[-1], "standard_error": None, "n": None, "d": None, "at": {}}
    return {**row, "trajectory": means}
