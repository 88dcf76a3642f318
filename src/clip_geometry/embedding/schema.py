"""What the JSON files of a store hold: checked where they are read, so that nothing after it has to ask."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict  # pydantic takes the standard one from Python 3.12 on

Count = Annotated[int, Field(ge=0, le=2**53)]
STRICT = ConfigDict(extra="allow", strict=True)


class Skipped(TypedDict):
    """An item without rows."""

    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    index: Count
    item_id: str
    reason: str


class Record(TypedDict):
    """A finished shard: record-00000.json."""

    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    start: Count
    stop: Count
    rows: Count
    d: Count
    files: dict[str, str]
    truncated: Count
    skipped: list[Skipped]
    lost: NotRequired[Count]


class Side(TypedDict):
    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
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


class EncoderFacts(TypedDict):
    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    model: str
    features: str
    precision: str
    seed: NotRequired[int | None]


class DatasetFacts(TypedDict):
    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    name: str
    split: str
    prompt: Any


class Recipe(TypedDict):
    """recipe.json; without shard_size, the manifest's "recipe"."""

    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    key: str
    encoder: EncoderFacts
    dataset: DatasetFacts
    shard_size: NotRequired[Annotated[int, Field(ge=1)]]


class Manifest(TypedDict):
    __pydantic_config__ = STRICT  # pyright: ignore[reportGeneralTypeIssues]
    recipe: Recipe
    encoder: dict[str, Any]
    sides: Annotated[dict[Literal["image", "text"], Side], Field(min_length=1)]
    class_names: list[str] | None
    model_options: NotRequired[dict[str, Any]]
    data_options: NotRequired[dict[str, Any]]
