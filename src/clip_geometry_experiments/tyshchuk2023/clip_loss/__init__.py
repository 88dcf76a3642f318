"""CLIP's loss on train and test pairs after maps fitted on the train pairs (Tyshchuk et al. 2023, Table 2)."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, model_validator

from clip_geometry.data.base import DatasetConfig
from clip_geometry.evaluate import contrastive_loss
from clip_geometry.geometry import Measure
from clip_geometry.registry import InputError
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Source, experiments
from clip_geometry_experiments.kit.maps import MapConfig, MapsConfig, MapsExperiment, Sets
from clip_geometry_experiments.kit.stored import RandomSplit, StoredConfig, part_of

LOSSES = ("loss", "image_to_text", "text_to_image")


class ClipLossConfig(MapsConfig):
    """Config of the experiment `clip_loss`, in addition to the keys of `MapsConfig`.

    Args:
        train: Pairs that the maps are fitted and scored on.
        test: Pairs that the maps are only scored on; null with `split`. Set either `test` or `split`.
        split: Splits the images of `train`, with their captions, at random: the first part replaces `train`, and the
            rest is used as `test`.
        logit_scale: Logit scale of the loss, > 0.
        pairs_per_batch: Pairs per batch (in-batch negatives), at least 2; null uses all pairs.
    """

    ROLES: ClassVar = ("train",)
    SCORED: ClassVar = ("train", "test")

    train: Source
    test: Source | None = None
    split: RandomSplit | None = None
    logit_scale: float = Field(default=100.0, gt=0)
    pairs_per_batch: int | None = Field(default=None, ge=2)

    @property
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        return {"train": self.train, "test": self.train if self.test is None else self.test}

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"train", "test"}

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        """Check that the test set is given in one way."""
        if (self.test is None) == (self.split is None):
            raise InputError(
                "clip_loss needs either test, a set of its own, or split, which takes it from train; set one of them"
            )
        return self


class ClipLoss(MapsExperiment):
    Config = ClipLossConfig
    drawn: ClassVar = {"contrastive_loss.loss": "CLIP's loss"}
    in_brief: ClassVar = {"contrastive_loss.loss": "loss of CLIP"}
    series_by = "split"

    def sets(self, role: str) -> Sets:
        sets = super().sets(role)
        split = self.config.split
        return sets if split is None else part_of(sets, split, "first" if role == "train" else "rest")

    def rows(self, map_config: MapConfig) -> list[Row]:
        config = self.config
        options = {"logit_scale": config.logit_scale, "batch_size": config.pairs_per_batch}
        kind = Measure if config.pairs_per_batch is None else _InBatches
        losses = [
            kind(f"contrastive_loss.{name}", contrastive_loss, attribute=name, options=options) for name in LOSSES
        ]
        rows = []
        for split in config.sources:
            for row in self.scored(map_config, split, losses, split=split):
                size = config.pairs_per_batch or row["n"]
                last = row["n"] % size
                note = {"note": f"the last batch has {last} pairs"} if last else {}
                rows.append({**row, **note, "at": {**row["at"], "batch": size}})
        return rows


class _InBatches(Measure):
    quadratic = False  # the standard error is cheap for any number of pairs


experiments.add("clip_loss", ClipLoss)
