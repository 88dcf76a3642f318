"""Schemas of the JSON files of a store. They are checked when a file is read, so that no later code has to ask."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

Count = Annotated[int, Field(ge=0, le=2**53)]


class Strict(TypedDict):
    """Base of all: exact types; further keys are kept."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # pyright: ignore[reportGeneralTypeIssues]


class Skipped(Strict):
    """An item without rows."""

    index: Count
    item_id: str
    reason: str


class Record(Strict):
    """A finished shard: record-00000.json."""

    start: Count
    stop: Count
    rows: Count
    d: Count
    files: dict[str, str]
    truncated: Count
    skipped: list[Skipped]
    lost: NotRequired[Count]


class Side(Strict):
    """A modality in the manifest."""

    n: Count
    d: Count
    dtype: Literal["float32"]
    items: Count
    truncated: Count
    skipped: list[Skipped]
    shards: list[Record]
    language: str | None
    pair_on: Literal["item_id", "label"]
    lost: NotRequired[Count]


class EncoderFacts(Strict):
    """The encoder in a recipe."""

    model: str
    features: str
    precision: str
    seed: NotRequired[int | None]


class DatasetFacts(Strict):
    """The data set in a recipe."""

    name: str
    split: str
    prompt: Any


class Recipe(Strict):
    """recipe.json; without shard_size, the manifest's "recipe"."""

    key: str
    encoder: EncoderFacts
    dataset: DatasetFacts
    shard_size: NotRequired[Annotated[int, Field(ge=1)]]


class Manifest(Strict):
    """manifest.json."""

    recipe: Recipe
    encoder: dict[str, Any]
    sides: Annotated[dict[Literal["image", "text"], Side], Field(min_length=1)]
    class_names: list[str] | None
    model_options: NotRequired[dict[str, Any]]
    data_options: NotRequired[dict[str, Any]]
