"""CLIP's loss on train and test pairs after maps fitted on the train pairs (Tyshchuk et al. 2023, Table 2)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from clip_geometry.evaluators import evaluators
from clip_geometry.experiments.kit.base import Source, experiments
from clip_geometry.experiments.kit.maps import MapConfig, MapsConfig, MapsExperiment
from clip_geometry.results import Row

if TYPE_CHECKING:
    from clip_geometry.data.base import DatasetConfig
    from clip_geometry.experiments.kit.stored import StoredConfig

LOSSES = ("loss", "image_to_text", "text_to_image")


class ClipLossConfig(MapsConfig):
    """Config of the experiment `clip_loss`, beside the keys of `MapsConfig`.

    Args:
        train: Pairs that maps are fitted on and scored on.
        test: Pairs that they are scored on too.
        logit_scale: Of the loss.
        pairs_per_batch: Pairs per batch (in-batch negatives); null uses all pairs.
    """

    ROLES: ClassVar = ("train",)
    SCORED: ClassVar = ("train", "test")

    train: Source
    test: Source
    logit_scale: float = Field(default=100.0, gt=0)
    pairs_per_batch: int | None = Field(default=None, ge=2)

    @property
    def sources(self) -> "Mapping[str, DatasetConfig | StoredConfig]":
        return {"train": self.train, "test": self.test}

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"train", "test"}


class ClipLoss(MapsExperiment):
    Config = ClipLossConfig
    summary = "CLIP's loss on train and test pairs after maps fitted on the train pairs"
    drawn: ClassVar = {"contrastive_loss.loss": "CLIP's loss"}
    series_by = "split"

    def rows(self, each: MapConfig) -> list[Row]:
        config = self.config
        options = {"logit_scale": config.logit_scale, "batch_size": config.pairs_per_batch}
        quadratic = config.pairs_per_batch is None  # in batches ± costs little for any number of pairs
        measures = [
            replace(evaluators[f"contrastive_loss.{name}"], options=options, quadratic=quadratic) for name in LOSSES
        ]
        rows = []
        for split in config.sources:
            for row in self.scored(each, split, measures, split=split):
                size = config.pairs_per_batch or row["n"]
                last = row["n"] % size
                note = {"note": f"the last batch has {last} pairs"} if last else {}
                rows.append({**row, **note, "at": {**row["at"], "batch": size}})
        return rows


experiments.add("clip_loss", ClipLoss)
