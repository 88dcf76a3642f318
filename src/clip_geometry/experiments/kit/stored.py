"""Stored embeddings, in place of a data set and a model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from clip_geometry.config import Config, digest
from clip_geometry.data.base import revision
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.formats import read_any, read_labels, with_labels
from clip_geometry.registry import InputError


class StoredConfig(Config):
    """Stored embeddings as a source of a config.

    Args:
        embeddings: A file or folder that `clip-geometry measure` accepts.
        labels: A file with one label per row, null for the labels that the embeddings carry.
        encoder: The model behind the embeddings, for the result rows.
        rows: [first, end) of every set, null for all.
    """

    embeddings: Path
    labels: Path | None = None
    encoder: str | None = None
    rows: tuple[int, int] | None = None

    @model_validator(mode="after")
    def _some_rows(self) -> Self:
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise InputError(f"rows = {list(self.rows)}; expected [first, end] with 0 ≤ first < end")
        return self

    @property
    def name(self) -> str:
        return self.embeddings.name


def read_stored(config: StoredConfig, limit: int | None = None) -> Mapping[str, Embeddings]:
    """The sets by modality. Raises InputError where there are fewer rows than the config asks for."""
    first, end = config.rows or (0, None)
    split = {} if config.rows is None else {"split": f"rows {first} to {end}"}
    encoder = {} if config.encoder is None else {"model": config.encoder}
    sets = {}
    found = read_any(config.embeddings)
    if config.labels is not None:
        found = with_labels(found, read_labels(config.labels))
    for modality, each in found.items():
        if end is not None and len(each) < end:
            raise InputError(f"{config.embeddings} has {len(each)} {modality} rows, but rows = [{first}, {end}]")
        rows = each.take(slice(first, end))
        known = {key: value for key, value in each.provenance.items() if key != "source"}
        provenance = {"dataset": config.name, **known, **split, **encoder}
        sets[modality] = replace(rows if limit is None else rows.take(slice(limit)), provenance=provenance)
    return sets


def stored_revision(config: StoredConfig) -> str:
    """A hash that changes when a file of the embeddings or their labels does."""
    path = config.embeddings
    names = sorted(str(each.relative_to(path)) for each in path.rglob("*")) if path.is_dir() else [path.name]
    embeddings = digest(revision(path if path.is_dir() else path.parent, names))
    if config.labels is None:
        return embeddings
    return digest([embeddings, revision(config.labels.parent, [config.labels.name])])


def check_sources(model: EncoderConfig | None, **roles: Any) -> None:
    """Raise InputError unless data sets have a model and stored embeddings have none."""
    for role, data in roles.items():
        if isinstance(data, StoredConfig) and model is not None:
            raise InputError(f"{role} has stored embeddings, which no model is needed for; set model to null")
        if not isinstance(data, StoredConfig) and model is None:
            raise InputError(f"{role} has {data.name}, which a model has to embed; set model")
