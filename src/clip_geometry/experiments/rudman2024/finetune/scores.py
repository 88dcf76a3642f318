"""How well a fine-tuned transformer does, by the number that its task is judged by."""

from collections.abc import Iterable

import numpy as np

from clip_geometry.experiments.rudman2024.finetune.data import Examples
from clip_geometry.experiments.rudman2024.finetune.inputs import Inputs
from clip_geometry.experiments.rudman2024.finetune.measuring import Seen
from clip_geometry.experiments.rudman2024.finetune.spans import answers, exact_match, token_f1

MATTHEWS, PEARSON, F1, ACCURACY, EXACT = "matthews", "score_pearson", "f1", "accuracy", "exact_match"
WITH_F1 = ("mrpc", "qqp")  # of GLUE; the paper reports their accuracy


def performance(examples: Examples, inputs: Inputs, seen: Seen) -> dict[str, float | None]:
    """What the task is judged by, its own number first: of cola Matthews' correlation, of stsb Pearson's, of squad F1,
    then exact match, of all others accuracy; of mrpc and qqp F1 besides. None where it is not defined."""
    if examples.kind == "span":
        passages = [texts[1] for texts in examples.texts]
        told = answers(passages, inputs.example.tolist(), seen.spans)
        pairs = list(zip(told, examples.answers, strict=True))
        return {F1: _mean(token_f1(*pair) for pair in pairs), EXACT: _mean(exact_match(*pair) for pair in pairs)}
    if examples.kind == "score":
        return {PEARSON: _correlation(seen.scores[:, 0].numpy(), examples.targets)}
    predicted = seen.scores.argmax(1).numpy()
    found: dict[str, float | None] = {ACCURACY: float((predicted == examples.targets).mean())}
    if examples.name == "cola":
        from sklearn.metrics import matthews_corrcoef

        return {MATTHEWS: float(matthews_corrcoef(examples.targets, predicted)), **found}
    if examples.name in WITH_F1:
        from sklearn.metrics import f1_score

        found[F1] = float(f1_score(examples.targets, predicted, zero_division=0.0))  # pyright: ignore[reportArgumentType]
    return found


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) > 0 and np.ptp(y) > 0 else None
