"""Intra-modal retrieval with native features and features inverted into the other modality (Mistretta et al. 2025)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from clip_geometry.encoders import load_encoder
from clip_geometry.measuring.views import context
from clip_geometry.progress import progress
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit import base
from clip_geometry_experiments.studies.intra_modal.figures import draw_intra_modal, tell
from clip_geometry_experiments.studies.intra_modal.inversion import Inversion, invert

PREFIX = "intra_modal."
INTO: Mapping[str, Literal["text", "image"]] = {"image": "text", "text": "image"}


class IntraModalConfig(base.RunConfig):
    """Config of the experiment `intra_modal`.

    Args:
        model: An open_clip model.
        data: Labeled images and texts; items with the same label are relevant to each other.
        queries: Number of queries per modality, taken from the first rows, at least 2; the index contains all rows.
        to_text: Settings of the inversion of images into texts.
        to_image: Settings of the inversion of texts into images; null leaves out text queries.
        seeds: Seeds of the initial pseudo-tokens; average precision is the mean over them.
        batch_size: Batch size of the encoder.
    """

    model: base.Model
    data: base.Data
    queries: int = Field(default=200, ge=2)
    to_text: Inversion = Inversion()
    to_image: Inversion | None = Inversion(steps=1000)
    seeds: base.Seeds = (0, 1, 2)
    batch_size: int = Field(default=64, ge=1)


class IntraModal(base.Experiment):
    """A cell holds the queries of one modality."""

    Config = IntraModalConfig
    explanations = base.read_explanations(Path(__file__).with_name("numbers.yaml"))

    def cells(self) -> Iterator[base.Cell]:
        config = self.config
        shared = {"queries": config.queries, "seeds": config.seeds, "batch_size": config.batch_size}
        shared |= {key: getattr(config, key).model_dump(mode="json") for key in ("model", "data")}
        shared |= self.workspace.revisions(config.model, config.data)
        for modality, how in (("image", config.to_text), ("text", config.to_image)):
            if how is not None:
                define = {"measure": "intra_modal", "modality": modality, "how": how.model_dump(mode="json"), **shared}
                yield base.Cell(define, partial(self._rows, modality, how), f"queries of {modality}s")

    def _rows(self, modality: str, how: Inversion) -> list[Row]:
        """Measure average precision within a modality, before and after inversion into the other modality."""
        config = self.config
        sets = self.workspace.embeddings(config.model, config.data, limit=None, batch_size=config.batch_size)
        if modality not in sets or sets[modality].labels is None:
            raise InputError(
                f"{config.data.name} has no labeled {modality}s; expected labels, which say what is relevant"
            )
        rows = np.asarray(sets[modality].vectors)
        labels = np.asarray(sets[modality].labels)
        relevant = labels[: config.queries, None] == labels
        queries = np.flatnonzero(relevant.sum(1) > 1)  # queries with another item of their label
        if len(queries) < 2:
            raise InputError(
                f"{len(queries)} of the first {config.queries} {modality}s share their label with another row; "
                "expected two or more"
            )
        encoder = load_encoder(config.model, self.workspace.device)
        by_seed, cosines = [], []
        with progress(f"inversions of {modality}s", len(config.seeds)) as advance:
            for seed in config.seeds:
                inverted = invert(encoder, rows[queries], INTO[modality], how, seed=seed)
                by_seed.append(average_precision(inverted.rows.numpy(), rows, relevant[queries], queries))
                cosines.append(inverted.cosines.numpy())
                advance(1)
        native = average_precision(rows[queries], rows, relevant[queries], queries)
        inverted = np.mean(by_seed, axis=0)
        chance = float(chance_level(relevant[queries].sum(1) - 1, len(rows) - 1).mean())
        shared = {**context(sets, seed=config.seed), "d": rows.shape[1], "n": len(queries)}
        return [
            {**shared, **_record("native", native, modality, null_value=chance)},
            {**shared, **_record("inverted", inverted, modality, null_value=chance, starts=_spread(by_seed))},
            {**shared, **_record("gain", inverted - native, modality, null_value=0.0, starts=_spread(by_seed))},
            {**shared, **_record("cosine", np.mean(cosines, axis=0), modality, starts=_spread(cosines))},
        ]

    # --- the report

    @classmethod
    def sentences(cls, planned: "Sequence[IntraModal]") -> list[str]:
        return tell(planned[0].finished_rows()) if len(planned) == 1 else []

    def drawings(self) -> Mapping[str, Any]:
        return draw_intra_modal(self.finished_rows())

    def origin(self) -> str:
        config = self.config
        return f"{base.dataset_words(config.data)} by {config.model.model}; seed {config.seed}."


def average_precision(
    queries: np.ndarray, index: np.ndarray, relevant: np.ndarray, itself: np.ndarray
) -> NDArray[np.float64]:
    """Return the average precision of each query by cosine, in an index that contains the query itself.

    Args:
        queries: Query rows, (q, d).
        index: Rows of the index, (n, d).
        relevant: Whether each row of the index is relevant to each query, (q, n).
        itself: Row of each query in the index, (q,), which is left out of its ranking.

    Returns:
        One value per query, (q,), in [0, 1]; higher is better.
    """
    scores = cosine_similarity(queries.astype(float), index.astype(float))
    others = np.arange(len(index)) != itself[:, None]
    rows = zip(relevant, scores, others, strict=True)
    return np.array([average_precision_score(is_relevant[mask], score[mask]) for is_relevant, score, mask in rows])


def chance_level(relevant: np.ndarray, n: int) -> NDArray[np.float64]:
    """Return the expected average precision of a random order of n rows.

    Args:
        relevant: Number of relevant rows for each query, (q,).
        n: Number of rows in the index, without the query.

    Returns:
        One value per query, (q,), in [0, 1].
    """
    harmonic = (1 / np.arange(1, n + 1)).sum()
    return (harmonic + (n - harmonic) * (relevant - 1) / max(n - 1, 1)) / n


def _record(number: str, values: np.ndarray, modality: str, **others: Any) -> Row:
    """Return a record with the mean over queries and its standard error."""
    error = float(values.std(ddof=1) / len(values) ** 0.5)
    return Record(PREFIX + number, float(values.mean()), error, at={"modality": modality}, **others)


def _spread(values: Sequence[np.ndarray]) -> float | None:
    """Return the standard deviation over starts of the mean over queries."""
    return float(np.std([by_query.mean() for by_query in values], ddof=1)) if len(values) > 1 else None


base.experiments.add("intra_modal", IntraModal)
