"""The sets of the table: images and texts, captions in two languages, and generated rows with a planted gap."""

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
    """Generated pairs with classes, whose images and texts differ by a gap that is known.

    Before it, images and texts are noisy views of one row of a class, anisotropic. An offset adds a vector to each
    modality; a map also turns and stretches the texts.

    Args:
        gap: "offset" or "map".
        n: Number of pairs.
        d: Dimension.
        classes: Number of classes.
        seed: Of everything.
    """

    gap: Literal["offset", "map"]
    n: int = Field(default=600, ge=16)
    d: int = Field(default=96, ge=2)
    classes: int = Field(default=20, ge=2)
    seed: int = Field(default=0, ge=0)

    def maps(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Modality → (W, b) of the gap, x ↦ x W + b."""
        generator = np.random.default_rng([self.seed, 1])
        offsets = generator.normal(size=(2, self.d)) * self._spread() / np.sqrt(self.d)
        turned, signs = np.linalg.qr(np.eye(self.d) + 0.5 * generator.normal(size=(self.d, self.d)) / np.sqrt(self.d))
        turned = turned * np.sign(np.diag(signs))  # near the identity
        stretch = np.exp(0.5 * generator.normal(size=self.d))
        text = turned * stretch if self.gap == "map" else np.eye(self.d)
        return {"image": (np.eye(self.d), offsets[0]), "text": (text, offsets[1])}

    def embeddings(self) -> dict[str, Embeddings]:
        generator, spectrum = np.random.default_rng([self.seed, 0]), (1 + np.arange(self.d)) ** -0.5
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
        """The length of a row before the gap, about."""
        return float(np.sqrt(2.5 * (1 / (1 + np.arange(self.d))).sum()))


class SetConfig(Config):
    """One data set of the table.

    Args:
        name: In the table.
        model: An encoder, null for stored embeddings.
        rows: Images and texts, or captions.
        text_model: An encoder of the texts, where it is not `model`.
        texts: Where the texts are, if not in `rows`, such as the captions in another language; then captions in `rows`
            take the place of images.
        planted: Generated rows, in place of all these.
        relevant: "labels" or "pairs", where both are known; null: labels, if both modalities have them.
        control: Whether there is nothing to find in it; then repairs are not ranked on it.
        limit: Use only the first N items.
        batch_size: Of the encoders.
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
        if (self.rows is None) == (self.planted is None):
            raise InputError(f"the set {self.name} has rows and planted; expected one of them")
        if self.rows is not None:
            check_sources(self.model, rows=self.rows)
        if self.texts is not None:
            check_sources(self.text_model or self.model, texts=self.texts)
        return self

    def sources(self) -> list[tuple[Any, Any]]:
        """The models and what they embed."""
        found = [(self.model, self.rows)] if self.rows is not None else []
        return found + ([(self.text_model or self.model, self.texts)] if self.texts is not None else [])

    def embeddings(self, workspace: RunFolder) -> dict[str, Embeddings]:
        """The images and the texts, or what takes their place."""
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
