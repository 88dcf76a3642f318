"""The base class of experiments: the config, the planned cells, and the section of the report."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points, version
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny

from clip_geometry.config import Config, digest, read_yaml, validate
from clip_geometry.data import dataset_from, load_dataset, path_of
from clip_geometry.data.base import Dataset, DatasetConfig
from clip_geometry.display.origin import data_words, model_words, option_words, words
from clip_geometry.embedding.loop import embed, recipe_for
from clip_geometry.embedding.store import read_store
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import encoder_revision, resolve_encoder
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.registry import InputError, Registry
from clip_geometry.results import Results, Row
from clip_geometry.steps import parse_pipeline
from clip_geometry_experiments.kit.stored import StoredConfig, StoredProbe, read_stored, stored_revision
from clip_geometry_experiments.report.figures import Drawing, FigureEntry, save_drawings


def _encoder(value: Any) -> EncoderConfig:
    """Return the config of a model, given as a name (`open_clip:…`) or a section {model: open_clip:…, seed: 1, …}."""
    if isinstance(value, EncoderConfig):
        return value
    section = {"model": value} if isinstance(value, str) else value
    if not isinstance(section, dict) or not isinstance(section.get("model"), str):
        raise InputError("expected a model name or a section with the key 'model'")
    return resolve_encoder(**section)


def _dataset(value: Any) -> DatasetConfig:
    """Return the config of a data set, given as a name (`scenes`) or a section {name: scenes, split: test, …}."""
    if isinstance(value, DatasetConfig):
        return value
    if not isinstance(value, str | dict):
        raise InputError("expected the name of a data set or a section with the key 'name'")
    return dataset_from({"name": value} if isinstance(value, str) else value)


def _source(value: Any) -> DatasetConfig | StoredConfig:
    """Return a data set, or stored embeddings for a section {embeddings: PATH, …} or {image: PATH, text: PATH, …}."""
    if isinstance(value, StoredConfig):
        return value
    if isinstance(value, dict) and "name" not in value and {"embeddings", "image", "text"} & set(value):
        keys = ("embeddings", "image", "text", "labels")
        paths = {key: str(path_of(value[key]).resolve()) for key in keys if isinstance(value.get(key), str)}
        return validate(StoredConfig, {**value, **paths}, "stored embeddings")
    return _dataset(value)


def distinct(what: str, key: str = "") -> AfterValidator:
    """Return a validator that the values of a key, or their attributes `key`, are distinct.

    Args:
        what: Name of the key, for the message.
        key: The attribute; "" for the values themselves.
    """

    def check(values: Sequence[Any]) -> Sequence[Any]:
        names = [getattr(value, key) if key else value for value in values]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise InputError(f"{what} has {repeated[0]!r} twice; expected each of them once")
        return values

    return AfterValidator(check)


def _probe(value: Any) -> DatasetConfig | StoredProbe:
    """Return a labeled data set, or stored embeddings for a section {train: …, test: …}."""
    if isinstance(value, StoredProbe):
        return value
    if isinstance(value, dict) and "name" not in value and isinstance(value.get("test"), dict):
        splits = {key: _source(part) for key, part in value.items() if part is not None}
        for key, part in splits.items():
            if not isinstance(part, StoredConfig):
                raise InputError(f"{key} of a stored probe is a data set; expected stored embeddings")
        values = {key: part.model_dump(mode="json") for key, part in splits.items()}
        return validate(StoredProbe, values, "stored probe")
    return _dataset(value)


Model = Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(_encoder)]
Data = Annotated[SerializeAsAny[DatasetConfig], BeforeValidator(_dataset)]
Steps = Annotated[tuple[str, ...], AfterValidator(lambda steps: tuple(map(str, parse_pipeline(steps))))]
Seeds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), distinct("seeds")]
Probe = Annotated[SerializeAsAny[DatasetConfig] | StoredProbe, BeforeValidator(_probe)]
Source = Annotated[SerializeAsAny[DatasetConfig] | StoredConfig, BeforeValidator(_source)]


class RunConfig(Config):
    """Keys of every config; each experiment adds its own.

    Args:
        name: Name of the config, made of letters, digits, "_", "." and "-".
        experiment: Name of the experiment.
        title: Title of the report.
        description: Description at the head of the report.
        seed: Seed of the run.
    """

    name: str = Field(pattern=r"^[\w.-]+$")
    experiment: str
    title: str = ""
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)

    def settings(self, *left_out: str) -> dict[str, Any]:
        """Return the values that the numbers depend on, as JSON.

        Args:
            *left_out: Keys to leave out, in addition to `name`, `title` and `description`, which the report only shows.
        """
        texts = {"name", "title", "description"}
        return self.model_dump(mode="json", serialize_as_any=True, exclude=texts | set(left_out))


@dataclass
class RunFolder:
    """The folder of a run, and what its experiments share.

    Embeddings are stored in the folder `embeddings/` beside the run folder, one store per model and data set.

    Attributes:
        folder: The folder of the run.
        device: The device that models run on: "auto", "cpu", "cuda", ….
    """

    folder: Path
    device: str = "auto"
    _cache: dict[str, Any] = field(default_factory=dict)

    def embeddings(
        self,
        model: EncoderConfig | None,
        data: DatasetConfig | StoredConfig,
        *,
        limit: int | None,
        batch_size: int,
        only: str | None = None,
    ) -> Mapping[str, Embeddings]:
        """Return the embeddings of a data set by a model, or stored embeddings unchanged.

        The embeddings of a data set are computed once and kept in a store.

        Args:
            model: The model; None for stored embeddings.
            data: The data set or the stored embeddings.
            limit: Use only the first N items.
            batch_size: Items per batch.
            only: The modality that is needed. Default: all.

        Returns:
            Modality → embeddings.
        """
        if isinstance(data, StoredConfig):
            return self._cached(f"{digest(data)} {limit}", lambda: read_stored(data, limit))
        assert model is not None  # validated configs have a model for data sets and none for stored embeddings
        dataset = self.dataset(data)
        readable = "".join(
            character if character.isalnum() or character in "._-" else "-"
            for character in f"{model.model}-{data.name}"
        )
        name = f"{readable[:60]}-{recipe_for(model, dataset, batch_size)['key']}"
        if only is not None and len(dataset.sides) > 1:  # a separate store, because it may lack the other modality
            dataset = dataset.only(only)
            name += f"-{only}"
        store = self.folder.parent / "embeddings" / name

        def embedded() -> Mapping[str, Embeddings]:
            embed(model, dataset, store, limit=limit, batch_size=batch_size, device=self.device)
            return read_store(store, limit=limit)

        return self._cached(f"{store} {limit}", embedded)

    def revisions(self, model: EncoderConfig | None, data: DatasetConfig | StoredConfig) -> dict[str, str]:
        """Return identifiers of the model's files, the data's files and the package version.

        They are part of what defines a cell, so a cell is computed again when one of them changes.

        Args:
            model: The model; None for stored embeddings.
            data: The data set or the stored embeddings.

        Returns:
            "model_revision" (for data sets only), "data_revision" and "version" → identifier.
        """
        package = version("clip-geometry")
        if isinstance(data, StoredConfig):
            return {"data_revision": stored_revision(data), "version": package}
        assert model is not None
        model_revision = self._cached(f"revision {digest(model)}", lambda: encoder_revision(model))
        return {"model_revision": model_revision, "data_revision": self.dataset(data).revision, "version": package}

    def dataset(self, config: DatasetConfig) -> Dataset:
        """Return the data set of a config, which is loaded only once."""
        return self._cached(f"data {digest(config)}", lambda: load_dataset(config))

    def _cached(self, key: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which is called only the first time that a key is used."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


@dataclass(frozen=True)
class Cell:
    """One unit of work, finished or not.

    Args:
        define: Everything that the numbers of the cell depend on.
        compute: Function that computes the rows of the cell.
        what: Name of the cell for readers, shown while it is computed.
    """

    define: Mapping[str, Any]
    compute: Callable[[], Sequence[Row]]
    what: str = ""

    @cached_property
    def key(self) -> str:
        """The hash of `define`, which identifies the cell in results.jsonl."""
        return digest(dict(self.define))


def read_explanations(file: Path) -> dict[str, SimpleNamespace]:
    """Read the explanations of an experiment's own measures from its numbers.yaml.

    Args:
        file: YAML file with three keys: `experiment` is the prefix of the names, or null if the names are complete;
            `defaults` holds default fields; `numbers` maps each name to the fields that differ from the defaults
            (title, summary, reading, caveat, formula, range, direction, reference, group and unit).

    Returns:
        Name → explanation, which has these fields as attributes.
    """
    content = read_yaml(file)
    defaults = {"direction": "", "group": "maps", "unit": ""} | content.get("defaults", {})
    prefix = f"{content['experiment']}." if content["experiment"] else ""
    return {
        prefix + name: SimpleNamespace(**{**defaults, **fields, "name": prefix + name})
        for name, fields in content["numbers"].items()
    }


class Experiment(ABC):
    """A question about some data. An experiment plans cells and reports on their rows."""

    Config: ClassVar[type[RunConfig]]
    summary: ClassVar[str]  # needed in other packages only; the summaries of this package are in catalog.yaml
    explanations: ClassVar[Mapping[str, Any]] = {}  # measure → explanation, for the experiment's own measures

    def __init__(self, config: Any, workspace: RunFolder):
        self.config = config
        self.workspace = workspace

    @abstractmethod
    def cells(self) -> Iterator[Cell]:
        """Yield the units of work. This is cheap: nothing is loaded before a cell is computed."""

    def facts(self) -> Mapping[str, Any]:
        """Return the facts at the head of the report: the model, the data, the pipeline and the seed.

        The model, data and pipeline are "" if the rows do not all share them.
        """
        origins = zip(*map(origin_words, self.finished_rows()), strict=True)
        shared = [values[0] if len(set(values)) == 1 else "" for values in origins]
        return {**dict(zip(("model", "data", "pipeline"), shared, strict=False)), "seed": self.config.seed}

    def drawings(self) -> Mapping[str, Drawing]:
        """Return the figures of the report by file name."""
        return {}

    def origin(self) -> str:
        """Return the data, model and seed, as the last sentence of every caption."""
        return ""

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> list[FigureEntry]:
        """Save the drawings.

        Args:
            folder: Folder of the files.
            prefix: Prefix of the file names.
            group: Heading of the figures.
        """
        drawings = self.drawings()
        return save_drawings(drawings, folder, origin=self.origin() if drawings else "", prefix=prefix, group=group)

    @classmethod
    def together(cls, planned: Sequence[Any], folder: Path) -> list[FigureEntry]:
        """Return figures that combine several runs of this experiment, for a sweep.

        Args:
            planned: The experiments of the runs.
            folder: Folder of the files.
        """
        return []

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """Return sentences about the rows of one or several runs, the most important first.

        If there are none, the report states what the measures of each run support.

        Args:
            planned: The experiments of the runs.
        """
        return []

    def tabled(self, row: Row) -> bool:
        """Return whether the report's table shows the row; results.jsonl has all rows."""
        return True

    def finished_rows(self) -> list[Row]:
        """Return the rows of this experiment's finished cells, in the order of the cells."""
        by_cell: dict[str, list[Row]] = {cell.key: [] for cell in self.cells()}
        for row in Results(self.workspace.folder / "results.jsonl").read():
            if row["cell"] in by_cell:
                by_cell[row["cell"]].append(row)
        return [row for rows in by_cell.values() for row in rows]

    def label(self) -> str:
        """Return a short name that distinguishes this run from the others of a sweep."""
        rows = self.finished_rows()
        return ", ".join(filter(None, origin_words(rows[0]))) if rows else self.config.name

    def fresh_models(self) -> Sequence[str]:
        """Return the models with untrained weights, which the banner of the report names."""
        return fresh_names([getattr(self.config, "model", None)])


def data_options(config: Config, *left_out: str) -> dict[str, Any]:
    """Return the options of a data set or a task that differ from the defaults, for result rows and reports.

    Args:
        config: The config of the data set or the task.
        *left_out: Options to leave out, in addition to `name` and `split`.
    """
    excluded = {"name", "split", *left_out}
    return config.model_dump(mode="json", serialize_as_any=True, exclude_defaults=True, exclude=excluded)


def dataset_words(data: DatasetConfig) -> str:
    """Return a data set as words, such as `scenes, test, size 200`."""
    return ", ".join(filter(None, (data.name, data.split, option_words(data_options(data)))))


def changed(data: DatasetConfig, **values: Any) -> DatasetConfig:
    """Return the config of a data set with some values changed."""
    return validate(type(data), data.model_dump(mode="json") | values, f"data set {data.name}")


def fresh_names(models: Iterable[EncoderConfig | None]) -> list[str]:
    """Return the names of the models with untrained weights, for the banner of the report."""
    fresh = [model for model in models if model is not None and model.is_fresh]
    return [f"{model.model} (fresh)" if getattr(model, "fresh", False) else model.model for model in fresh]


def origin_words(row: Row) -> tuple[str, str, str]:
    """Return the model, data and pipeline of a row as text for readers; a missing one is ""."""
    return model_words(row), data_words(row), words(row, "pipeline")


def distinct_labels(labels: Sequence[str]) -> list[str]:
    """Remove the comma-separated parts that all labels share, unless two labels would become equal."""
    parts = [label.split(", ") for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    short = [", ".join(part for part in label_parts if part not in common) for label_parts in parts]
    return short if len(set(short)) == len(short) else list(labels)


def numbered_labels(labels: Sequence[str]) -> list[str]:
    """Append a number to every label if two labels are equal; otherwise return the labels unchanged."""
    equal = len(set(labels)) < len(labels)
    return [f"{label} {number}" for number, label in enumerate(labels, start=1)] if equal else list(labels)


# experiments of this and other packages; each entry point gives the name of an experiment and its module
experiments: Registry[type[Experiment]] = Registry(
    "experiment",
    "clip-geometry list experiments",
    {entry.name: entry.module for entry in entry_points(group="clip_geometry.experiments")},
)
