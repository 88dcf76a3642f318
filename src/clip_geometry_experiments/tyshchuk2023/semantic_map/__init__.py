"""t-SNE maps of images and texts, and how well the two maps agree (Tyshchuk et al. 2023, Figures 1, A1, A2)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.data import load_dataset
from clip_geometry.measuring.sets import MeasuredSets
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit import base
from clip_geometry_experiments.kit.stored import StoredConfig, check_sources
from clip_geometry_experiments.tyshchuk2023.semantic_map.figures import Picture, PlaneOfRows, draw_semantic_map, tell
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import (
    Points,
    Superposition,
    superpose,
    trustworthiness,
    tsne_plane,
)

SHUFFLES = 20  # shuffles of the pairs, for the disparity of unrelated maps


class SemanticMapConfig(base.RunConfig):
    """Config of the experiment `semantic_map`.

    Args:
        model: An encoder; null for stored embeddings.
        pairs: A data set, or {embeddings: PATH}; its items are the points.
        pipeline: Steps applied before t-SNE.
        perplexity_image: Perplexity of the t-SNE of the images, below the number of rows.
        perplexity_text: Perplexity of the t-SNE of the texts, below the number of rows.
        k: Number of neighbors in the trustworthiness of the maps.
        repeats: Number of t-SNE seeds; the reported numbers are means over them, and the first map is drawn.
        limit: Use only the first N items; null uses all.
        batch_size: Batch size of the encoder.
    """

    model: base.Model | None = None
    pairs: base.Source
    pipeline: base.Steps = ("normalize",)
    perplexity_image: float = Field(default=5, gt=0)
    perplexity_text: float = Field(default=50, gt=0)
    k: int = Field(default=10, ge=1)
    repeats: int = Field(default=5, ge=1)
    limit: int | None = Field(default=500, ge=2)
    batch_size: int = Field(default=64, ge=1)

    @model_validator(mode="after")
    def _sources(self) -> Self:
        check_sources(self.model, pairs=self.pairs)
        return self


class SemanticMap(base.Experiment):
    """Figures 1, A1 and A2 of Tyshchuk et al. 2023.

    The paper says only "aligned … via Procrustes". Here the two planes are aligned. A Procrustes map of the embeddings
    themselves is orthogonal, so it changes no distance within a modality and therefore neither map, and a t-SNE of both
    modalities together would have one perplexity, not two. The images are rotated onto the texts; the other direction
    yields the same two maps, both rotated. Another seed gives another t-SNE map, so numbers are means over several
    seeds.
    """

    Config = SemanticMapConfig
    explanations = base.read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def sets(self) -> MeasuredSets:
        config = self.config
        sets = self.workspace.embeddings(config.model, config.pairs, limit=config.limit, batch_size=config.batch_size)
        if len(sets) < 2:
            raise InputError(
                f"there are only {next(iter(sets))} embeddings; expected images and texts, to compare their maps"
            )
        return MeasuredSets(sets, parse_pipeline(config.pipeline), seed=config.seed, blocks=0)

    @cached_property
    def _planes(self) -> dict[tuple[str, int], Points]:
        return {}

    def plane(self, modality: str, repeat: int = 0) -> Points:
        """Return the points (n, 2) of a modality; each repeat has its own seed."""
        if (modality, repeat) not in self._planes:
            self._planes[modality, repeat] = tsne_plane(
                self.sets.rows[modality],
                perplexity=self._perplexity(modality),
                seed=self.config.seed + repeat,
                name=modality,
            )
        return self._planes[modality, repeat]

    @cached_property
    def superposition(self) -> Superposition:
        """The superposition of the maps that are drawn."""
        return superpose(self.plane("image"), self.plane("text"), self.sets.pairs)

    def _perplexity(self, modality: str) -> float:
        return getattr(self.config, f"perplexity_{modality}")

    def cells(self) -> Iterator[base.Cell]:
        config = self.config
        revisions = self.workspace.revisions(config.model, config.pairs)
        define = {"measure": "semantic_map", **config.settings(), **revisions}
        for modality in ("image", "text"):
            rows = partial(self._map_rows, modality)
            yield base.Cell(define | {"of": modality}, rows, f"maps of the {modality} rows")
        yield base.Cell(define | {"of": "both"}, self._agreement_rows, "agreement of the maps")

    def _map_rows(self, modality: str) -> list[Row]:
        """Measure how faithful the maps of a modality are to its rows."""
        rows = self.sets.rows[modality]
        planes = [self.plane(modality, repeat) for repeat in range(self.config.repeats)]
        faithful = [trustworthiness(rows, points, k=self.config.k) for points in planes]
        at = {"modality": modality, "perplexity": self._perplexity(modality)}
        shared = {**self.sets.context(), "n": len(rows), "d": rows.shape[1], "at": at}
        return [shared | _mean("trustworthiness", faithful)]

    def _agreement_rows(self) -> list[Row]:
        """Measure how well the two maps agree."""
        sets = self.sets
        i, j = sets.pairs
        planes = [(self.plane("image", k), self.plane("text", k)) for k in range(self.config.repeats)]
        disparities = [superpose(image, text, (i, j)).disparity for image, text in planes]
        generator = np.random.default_rng(self.config.seed)
        shuffled = [superpose(*planes[0], (i, generator.permutation(j))).disparity for _ in range(SHUFFLES)]
        shared = {**sets.context(), "n": len(i), "d": sets.rows["image"].shape[1], "at": {"modality": "both"}}
        return [
            shared | _mean("disparity", disparities),
            shared | _mean("disparity_shuffled", shuffled, "shuffles of the pairs"),
        ]

    @classmethod
    def sentences(cls, planned: "Sequence[SemanticMap]") -> list[str]:
        return tell(planned[0].finished_rows()) if len(planned) == 1 else []

    def drawings(self) -> Mapping[str, Any]:
        pictures = self._pictures()
        planes = {
            modality: PlaneOfRows(self.plane(modality), self._perplexity(modality), pictures.get(modality))
            for modality in self.sets.rows
        }
        return draw_semantic_map(planes, self.superposition)

    def origin(self) -> str:
        return f"{'; '.join(base.origin_words(self.sets.context()))}; seed {self.config.seed}."

    def _pictures(self) -> dict[str, Picture]:
        """Return functions that load the image of an image row, or of a text's first pair; none for stored rows."""
        if isinstance(self.config.pairs, StoredConfig):
            return {}
        side: Any = load_dataset(self.config.pairs).image
        # unreadable images have no row, so look up the index of each row in the data set
        index = self.sets.embeddings["image"].metadata["index"]
        image_of: dict[int, int] = {}
        for image, text in zip(*self.superposition.pairs, strict=True):
            image_of.setdefault(int(text), int(image))

        def of_text(row: int) -> Any:
            if row not in image_of:
                raise OSError(f"the text of row {row} has no image")
            return side.load(int(index[image_of[row]]))

        return {"image": lambda row: side.load(int(index[row])), "text": of_text}


def _mean(name: str, values: Sequence[float], over: str = "starts of t-SNE") -> Row:
    """Return the mean of several values and its standard error; a note says that it is not a jackknife over items."""
    count = len(values)
    row: Row = {"measure": f"semantic_map.{name}", "value": float(np.mean(values)), "standard_error": None}
    if count < 2:
        return row
    error = float(np.std(values, ddof=1)) / count**0.5
    return row | {"standard_error": error, "repeats": count, "note": f"± over {count} {over}"}


base.experiments.add("semantic_map", SemanticMap)
