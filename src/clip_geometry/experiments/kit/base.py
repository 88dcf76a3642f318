"""What an experiment is: a config, the cells it plans, and the report it makes of their rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny

from clip_geometry.config import Config, digest, validate
from clip_geometry.data import dataset_from, path_of
from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import resolve_encoder
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.experiments.kit.stored import StoredConfig
from clip_geometry.registry import InputError, Registry, homes_in
from clip_geometry.results import Results, Row
from clip_geometry.transforms import parse_pipeline

if TYPE_CHECKING:
    from clip_geometry.report.gallery import FigureEntry


def _encoder(value: Any) -> EncoderConfig:
    """`open_clip:…` or a section {model: open_clip:…, seed: 1, …} as the family's config."""
    if isinstance(value, EncoderConfig):
        return value
    section = {"model": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}
    if not isinstance(section.get("model"), str):
        raise InputError("expected a model name or a section with the key 'model'")
    return resolve_encoder(**section)


def _dataset(value: Any) -> DatasetConfig:
    """`scenes` or a section {name: scenes, split: test, …} as the data set's config."""
    if isinstance(value, DatasetConfig):
        return value
    if not isinstance(value, str | dict):
        raise InputError("expected the name of a data set or a section with the key 'name'")
    return dataset_from({"name": value} if isinstance(value, str) else value)


def _source(value: Any) -> DatasetConfig | StoredConfig:
    """A data set, or a section {embeddings: PATH, …} of embeddings that are there already."""
    if isinstance(value, StoredConfig):
        return value
    if isinstance(value, dict) and isinstance(value.get("embeddings"), str):
        given = {key: value[key] for key in ("embeddings", "labels") if isinstance(value.get(key), str)}
        places = {key: str(path_of(place).resolve()) for key, place in given.items()}
        return validate(StoredConfig, {**value, **places}, "stored embeddings")
    return _dataset(value)


def _steps(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Known steps, as they are written."""
    return tuple(str(step) for step in parse_pipeline(steps))


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise InputError(f"{list(seeds)} has a seed twice or below 0")
    return seeds


Model = Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(_encoder)]
Data = Annotated[SerializeAsAny[DatasetConfig], BeforeValidator(_dataset)]
Steps = Annotated[tuple[str, ...], AfterValidator(_steps)]
Seeds = Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(_distinct)]
Source = Annotated[SerializeAsAny[DatasetConfig] | StoredConfig, BeforeValidator(_source)]


class RunConfig(Config):
    """Keys of every config; an experiment adds its own. title and description head the report."""

    name: str = Field(pattern=r"^[\w.-]+$")
    experiment: str
    title: str = ""
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=2**63)


class Workspace(Protocol):
    """What the runner gives an experiment."""

    folder: Path
    device: str

    def embeddings(
        self,
        model: EncoderConfig | None,
        data: DatasetConfig | StoredConfig,
        *,
        limit: int | None,
        batch_size: int,
        only: str | None = None,
    ) -> Mapping[str, Embeddings]:
        """The sets of both, embedded once and kept in the store; of stored embeddings, as they are. only: a modality
        that is enough."""
        ...

    def revisions(self, model: EncoderConfig | None, data: DatasetConfig | StoredConfig) -> dict[str, str]:
        """What identifies the files behind both, and the package: when they change, cells are new."""
        ...


@dataclass(frozen=True)
class Cell:
    """One unit of work that is finished or not. define: what its numbers depend on; compute: its rows."""

    define: Mapping[str, Any]
    compute: Callable[[], Sequence[Row]]

    @cached_property
    def key(self) -> str:
        return digest(dict(self.define))


class Experiment(ABC):
    """A question put to some data: plans cells, and draws what came out."""

    Config: ClassVar[type[RunConfig]]
    summary: ClassVar[str]
    explanations: ClassVar[Mapping[str, Any]] = {}  # of numbers of its own, as `report.table.Explanation` has them

    def __init__(self, config: Any, workspace: Workspace):
        self.config = config
        self.workspace = workspace

    @abstractmethod
    def cells(self) -> Iterator[Cell]:
        """The units of work, cheap to list: nothing is loaded before a cell computes."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """What the head of the report states: model, data, n, d, pipeline, seed, …"""

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> list["FigureEntry"]:
        """Draws the figures of the report into `folder`; prefix of the file names, group of the headings."""
        return []

    @classmethod
    def together(cls, planned: Sequence[Any], folder: Path) -> list["FigureEntry"]:
        """Figures of several runs of this experiment in one, for a sweep."""
        return []

    @classmethod
    def sentences(cls, planned: Sequence[Any]) -> list[str]:
        """What the rows of one run, or of several together, say, the most telling first; where there are none, the
        report reads sentences off the measures of each run."""
        return []

    def tabled(self, row: Row) -> bool:
        """Whether the report's table shows the row; results.jsonl has all."""
        return True

    def finished_rows(self) -> list[Row]:
        """The rows of its cells that are there by now, in the order of the cells."""
        found: dict[str, list[Row]] = {cell.key: [] for cell in self.cells()}
        for row in Results(self.workspace.folder / "results.jsonl").read():
            if row["cell"] in found:
                found[row["cell"]].append(row)
        return [row for rows in found.values() for row in rows]

    def label(self) -> str:
        """A short name of this run beside others of a sweep."""
        return self.config.name

    def fresh_models(self) -> Sequence[str]:
        """Models whose weights are untrained, which the report says at its head."""
        model = getattr(self.config, "model", None)
        if model is None or not model.is_fresh:
            return []
        return [f"{model.model} (fresh)" if getattr(model, "fresh", False) else model.model]


experiments: Registry[type[Experiment]] = Registry(
    "experiment", "clip-geometry list experiments", homes_in("clip_geometry.experiments", without=["kit"])
)
