"""What the numbers of one run say, in plain sentences: only what its rows state, nothing fitted to a model."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clip_geometry.report.numbers import as_number, number

Row = Mapping[str, Any]


class Values:
    """The rows of one run by measure and set."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = {(row["measure"], (row.get("at") or {}).get("modality")): row for row in rows}

    def get(self, measure: str, modality: str = "both", key: str = "value") -> float | None:
        return as_number(self._rows.get((measure, modality), {}).get(key))


def findings(rows: Iterable[Row]) -> list[str]:
    """The sentences that these rows support, the most telling first; empty where they support none."""
    values = Values(rows)
    sentences = (tell(values) for tell in _TELL)
    return [sentence for sentence in sentences if sentence]


def _own_caption(values: Values) -> str | None:
    matching, random = values.get("matching_cosine"), values.get("random_cosine")
    stranger = values.get("average_cosine", "image")
    if matching is None or stranger is None:
        return None
    own, other = (matching, "its own text"), (stranger, "another image drawn at random")
    (near, who), (far, whom) = sorted((own, other), reverse=True)
    tail = "" if random is None else f"; the text of another image comes to {number(random)}"
    return f"On average an image is closer to {who} (cosine {number(near)}) than to {whom} ({number(far)}){tail}."


def _gap(values: Values) -> str | None:
    gap, null = values.get("modality_gap"), values.get("modality_gap", key="null_value")
    if gap is None:
        return None
    sentence = f"The mean image and the mean text lie {number(gap)} apart"
    return f"{sentence}." if null is None else f"{sentence}; without a gap it would be about {number(null)}."


def _cone(values: Values) -> str | None:
    parts = [
        f"every {name} lies within {angle:.0f}° of the mean {name} direction"
        for name in ("image", "text")
        if (angle := values.get("cone_half_angle", name)) is not None and angle < 90
    ]
    if not parts:
        return None
    sentence = " and ".join(parts)
    null = values.get("cone_half_angle", "image", "null_value")
    reference = "" if null is None else f"; an isotropic cloud of this size reaches {null:.0f}°"
    return f"Embeddings fill a cone: {sentence}{reference}."


def _dimensions(values: Values) -> str | None:
    parts = []
    for name in ("image", "text"):
        ratio, dimension = (values.get("participation_ratio", name, key) for key in ("value", "d"))
        if ratio is not None and dimension is not None:
            parts.append((name, ratio, dimension))
    if not parts:
        return None
    (name, ratio, dimension), *others = parts
    sentence = f"The variance of {name}s spreads over the equivalent of {ratio:.0f} of {dimension:.0f} directions"
    for other, ratio, _ in others:
        sentence += f", that of {other}s over {ratio:.0f}"
    null = values.get("participation_ratio", "image", "null_value")
    reference = "" if null is None else f"; an isotropic sample of the same size would give {null:.0f}"
    return f"{sentence}{reference}."


_TELL: tuple[Callable[[Values], str | None], ...] = (_own_caption, _gap, _cone, _dimensions)
