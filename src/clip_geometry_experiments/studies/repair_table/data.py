"""The data sets of the table: images and texts, captions in two languages, and generated rows with a planted gap."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from clip_geometry.config import Config
from clip_geometry.embeddings import Embeddings
from clip_geometry.registry import InputError
from clip_geometry.search.mixed_index import MixedIndex
from clip_geometry_experiments.kit.base import Model, RunFolder, Source
from clip_geometry_experiments.kit.stored import check_sources


class Planted(Config):
    """Generated pairs with classes, whose images and texts differ by a known gap.

    Before the gap is applied, an image and its text are noisy views of one row of a class, and the rows are
    anisotropic. The gap "offset" adds a vector to each modality; "map" also rotates and stretches the texts.

    Args:
        gap: "offset" or "map".
        n: Number of pairs, at least 16.
        d: Dimension, at least 2.
        classes: Number of classes, at least 2.
        seed: Seed of rows, labels and gap.
    """

    gap: Literal["offset", "map"]
    n: int = Field(default=600, ge=16)
    d: int = Field(default=96, ge=2)
    classes: int = Field(default=20, ge=2)
    seed: int = Field(default=0, ge=0)

    def maps(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Map each modality to the (W, b) of the gap, x ↦ x W + b."""
        generator = np.random.default_rng([self.seed, 1])
        offsets = generator.normal(size=(2, self.d)) * self._spread() / np.sqrt(self.d)
        turned, signs = np.linalg.qr(np.eye(self.d) + 0.5 * generator.normal(size=(self.d, self.d)) / np.sqrt(self.d))
        turned = turned * np.sign(np.diag(signs))  # near the identity
        stretch = np.exp(0.5 * generator.normal(size=self.d))
        text = turned * stretch if self.gap == "map" else np.eye(self.d)
        return {"image": (np.eye(self.d), offsets[0]), "text": (text, offsets[1])}

    def embeddings(self) -> dict[str, Embeddings]:
        generator = np.random.default_rng([self.seed, 0])
        spectrum = (1 + np.arange(self.d)) ** -0.5
        labels = generator.permutation(np.arange(self.n) % self.classes)
        means = generator.normal(size=(self.classes, self.d))
        rows = means[labels] + generator.normal(size=(self.n, self.d))
        views = {name: (rows + 0.7 * generator.normal(size=rows.shape)) * spectrum for name in ("image", "text")}
        provenance = {"dataset": f"planted {self.gap}", "model": "generated"}
        return {
            name: Embeddings(views[name] @ w + b, name, labels=labels, provenance=provenance)
            for name, (w, b) in self.maps().items()
        }

    def _spread(self) -> float:
        """Return the approximate length of a row before the gap is applied."""
        return float(np.sqrt(2.5 * (1 / (1 + np.arange(self.d))).sum()))


class SetConfig(Config):
    """Config of one data set of the table.

    Args:
        name: Name in the table.
        model: An encoder; null for stored embeddings.
        rows: Images and texts, or captions. Set either `rows` or `planted`.
        text_model: Encoder of the texts, if it is not `model`.
        texts: Source of the texts if they are not in `rows`, such as the captions in another language; captions in
            `rows` then take the place of images.
        planted: Generated rows, instead of all the above.
        relevant: Which items are relevant, "labels" or "pairs", if both are known; null uses labels if both modalities
            have them.
        control: Whether the set is a control in which there is nothing to find; repairs are not ranked on it.
        limit: Use only the first N items; null uses all.
        batch_size: Batch size of the encoders.
    """

    name: str
    model: Model | None = None
    rows: Source | None = None
    text_model: Model | None = None
    texts: Source | None = None
    planted: Planted | None = None
    relevant: Literal["labels", "pairs"] | None = None
    control: bool = False
    limit: int | None = Field(default=None, ge=16)
    batch_size: int = Field(default=100, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> "SetConfig":
        """Check that a set has either stored rows or planted ones, with matching sources."""
        if (self.rows is None) == (self.planted is None):
            given = "both rows and planted" if self.rows is not None else "neither rows nor planted"
            raise InputError(f"the set {self.name} has {given}; expected one of them")
        if self.rows is not None:
            check_sources(self.model, rows=self.rows)
        if self.texts is not None:
            check_sources(self.text_model or self.model, texts=self.texts)
        return self

    def sources(self) -> list[tuple[Any, Any]]:
        """Return pairs of a model and the data that it embeds."""
        candidates = [(self.model, self.rows), (self.text_model or self.model, self.texts)]
        return [(model, data) for model, data in candidates if data is not None]

    def embeddings(self, workspace: RunFolder) -> dict[str, Embeddings]:
        """Return the images and the texts, or the rows that take their place."""
        if self.planted is not None:
            return self.planted.embeddings()
        options: dict[str, Any] = {"limit": self.limit, "batch_size": self.batch_size}
        (model, rows), *others = self.sources()
        read = workspace.embeddings(model, rows, **options)
        image = read["image"] if "image" in read else read["text"]
        text = workspace.embeddings(*others[0], **options, only="text")["text"] if others else read["text"]
        return {name: replace(rows, modality=name) for name, rows in (("image", image), ("text", text))}

    def index(self, workspace: RunFolder) -> MixedIndex:
        return MixedIndex.of(self.embeddings(workspace), self.relevant)
