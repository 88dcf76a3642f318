"""The data sets of the table, and the measurement of repairs on the half of the rows that they are not fitted on."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator
from threadpoolctl import threadpool_limits

from clip_geometry import geometry
from clip_geometry.config import Config, read_yaml
from clip_geometry.embeddings import Embeddings
from clip_geometry.evaluate.linear_probe import linear_probe
from clip_geometry.evaluate.zero_shot import ensemble, zero_shot
from clip_geometry.registry import InputError
from clip_geometry.search.held_out import HeldOutSearch
from clip_geometry.search.mixed_index import MixedIndex, Split
from clip_geometry.search.repairs import Known, Repair, Sets, repairs
from clip_geometry.search.repairs.maps import Mapped
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms import Normalize
from clip_geometry.transforms.pipeline import Pipeline
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


# --- measures

C = 100.0  # for the linear probes; unit rows need a weak penalty
GROUPS = ("geometry", "mixing", "semantics", "retrieval")
NO_ROWS = "changes scores, not rows"
NO_CLASSES = "the set has no classes"


class TableMeasure(NamedTuple):
    """A measure of the table; measures.yaml explains its fields."""

    group: str
    better: int
    title: str
    recorded: bool = False


MEASURES = {name: TableMeasure(**each) for name, each in read_yaml(Path(__file__).with_name("measures.yaml")).items()}
MEASURED = {name: each for name, each in MEASURES.items() if not each.recorded}
OF_ROWS = [name for name, each in MEASURES.items() if each.group != "retrieval"]


class RowRepair(Repair):
    """A repair that transforms rows by a pipeline fitted on the known rows and their pairs.

    Rows are normalized to unit length before and after the pipeline.
    """

    def __init__(self, pipeline: str = ""):
        self.name = pipeline or "none"
        self.pipeline = Pipeline(",".join(filter(None, ("normalize", pipeline, "normalize"))))

    def _learn(self, known: Known) -> None:
        self.fitted = self.pipeline.fit(known.rows, known.pairs if known.relevance is not None else None)

    def rows(self, modality: str, x: np.ndarray) -> np.ndarray:
        """Return the unit rows after the repair."""
        return self.fitted.transform({modality: x})[modality]

    def scores(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        return self.rows(query, q) @ self.rows(item, x).T

    def mixed(self, query: str, q: np.ndarray, items: Sets, itself: np.ndarray | None = None) -> dict[str, np.ndarray]:
        rows = {item: self.rows(item, x) for item, x in items.items()}
        queries = self.rows(query, q) if itself is None else rows[query][itself]
        scores = {item: queries @ x.T for item, x in rows.items()}
        if itself is not None:
            scores[query][np.arange(len(q)), itself] = -np.inf
        return scores


def repair_of(name: str) -> Repair:
    """Return an unfitted repair by its name in the registry, or by a pipeline."""
    if name in repairs:
        entry = repairs[name]
        return RowRepair(entry.parameters["pipeline"]) if issubclass(entry.kind, Mapped) else entry.make()
    parse_pipeline(name)
    return RowRepair(name)


class Halves:
    """Random halves of one set: repairs are fitted on the first half, and the second half is searched and measured.

    Args:
        index: The set.
        splits: Number of random halves.
        seed: Seed of the halves.
    """

    def __init__(self, index: MixedIndex, *, splits: int, seed: int):
        self.index = index
        self.splits = list(index.splits(splits, seed=seed, most_fit=10**6, most_searched=10**6, most_queries=10**6))
        first = self.splits[0]
        split = [name for name, group in index.groups.items() if group is not None]
        self.ratio = sum(len(first.searched[name]) for name in split) / sum(len(first.fit[name]) for name in split)

    @cached_property
    def searches(self) -> list[HeldOutSearch]:
        """The held-out halves, already searched without a repair, since neighbors are compared with that search."""
        searches = [HeldOutSearch(self.index, split) for split in self.splits]
        for search, split in zip(searches, self.splits, strict=True):
            search.run(RowRepair().fit(self.index.known(split.fit)))
        return searches

    def judge(self, repair: Repair) -> dict[str, list[float]]:
        """Map each measure to its values on the held-out halves, NaN if undefined.

        Raises:
            InputError: If the repair cannot be fitted.
        """
        with threadpool_limits(1):  # a few hundred rows: with two threads, waiting takes longer than computing
            by_split = [self._judge(repair, *half) for half in zip(self.splits, self.searches, strict=True)]
        return {name: [values.get(name, np.nan) for values in by_split] for name in MEASURED}

    def _judge(self, repair: Repair, split: Split, search: HeldOutSearch) -> dict[str, float]:
        """Compute all measures of a repair that is fitted on one half of the items, on the other half."""
        known = self.index.known(split.fit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # too few rows, not converged: the numbers show the effect
            repair.fit(known)
        values = {}
        if isinstance(repair, RowRepair):
            fit = {name: repair.rows(name, x) for name, x in known.rows.items()}
            rows = {name: repair.rows(name, x) for name, x in search.items.items()}
            values |= _geometry(rows) | _mixing(fit, rows) | self._semantics(fit, rows, split, search)
        asked = search.run(repair).asked
        for name in (name for name, each in MEASURES.items() if each.group == "retrieval"):
            means = [scores.mean() for (_, number), ((_, scores),) in asked.items() if number == name and len(scores)]
            values[name] = float(np.mean(means)) if means else np.nan
        return values

    def _semantics(self, fit: Sets, rows: Sets, split: Split, search: HeldOutSearch) -> dict[str, float]:
        """Measure CKA with the rows before the repair, silhouettes, a linear probe and zero-shot accuracy."""
        values = {
            "cka": _mean(lambda name: geometry.linear_cka(Normalize().apply(search.items[name]), rows[name]), rows)
        }
        if not self.index.codes:
            return values
        own = {name: self.index.codes[name][split.fit[name]] for name in fit}
        labels = {name: self.index.codes[name][split.searched[name]] for name in rows}
        halved = [name for name in rows if self.index.groups[name] is not None]  # class names are not split into halves

        def silhouette(name: str) -> float:
            classes, counts = np.unique(labels[name], return_counts=True)
            several = np.isin(labels[name], classes[counts > 1])
            return geometry.silhouette(rows[name][several], labels[name][several])

        def probe(name: str) -> float:
            known = np.isin(labels[name], own[name])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return linear_probe(fit[name], own[name], rows[name][known], labels[name][known], C=C)["top_1"]

        # the prototypes of the classes are texts of the fitting half
        classes = np.intersect1d(own["text"], np.concatenate([own["image"], labels["image"]]))
        texts = np.isin(own["text"], classes)
        images = np.isin(labels["image"], classes)
        prototypes = ensemble(fit["text"][texts], np.searchsorted(classes, own["text"][texts]))
        accuracies = zero_shot(rows["image"][images], np.searchsorted(classes, labels["image"][images]), prototypes)
        return values | {
            "silhouette": _mean(silhouette, halved),
            "probe": _mean(probe, halved),
            "zero_shot": accuracies["top_1"],
        }


def _geometry(rows: Sets) -> dict[str, float]:
    """Measure the gap, and the mean over modalities of isotropy, cosine, rank and hubness."""
    return {
        "gap": geometry.modality_gap(rows["image"], rows["text"]),
        "isoscore": _mean(lambda name: geometry.isoscore(rows[name]), rows),
        "average_cosine": _mean(lambda name: geometry.average_cosine(rows[name]), rows),
        "effective_rank": _mean(lambda name: geometry.effective_rank(rows[name]), rows),
        "robin_hood": _mean(lambda name: geometry.hubs(rows[name]).robin_hood, rows),
    }


def _mixing(fit: Sets, rows: Sets) -> dict[str, float]:
    """Measure how well the modalities mix among neighbors, and how well a linear probe separates them."""
    image, text = rows["image"], rows["text"]
    few = min(90, (len(image) + len(text) - 1) // 2)  # fewer neighbors if a set is very small, as in smoke runs
    train, test = (np.concatenate([half["image"], half["text"]]) for half in (fit, rows))
    modalities = [np.repeat([0, 1], [len(half["image"]), len(half["text"])]) for half in (fit, rows)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the probe does not converge if a plane separates the rows exactly
        separated = linear_probe(train, modalities[0], test, modalities[1], C=C)["mean_per_class"]
    return {"ilisi": geometry.ilisi(image, text, k=few), "separability": separated}


def _mean(measure: Callable[[str], float], names: Iterable[str]) -> float:
    return float(np.mean([measure(name) for name in names]))
