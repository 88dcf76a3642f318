"""Zero-shot accuracy after maps (Tyshchuk et al. 2023, Tables 3 and 7)."""

from typing import ClassVar

from clip_geometry.measuring.records import named
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.kit.maps import MapConfig, ProbeExperiment, PromptedConfig

LOGITS = ("zero_shot", "zero_shot[dot]", "zero_shot[neg_distance]")


class ZeroShot(ProbeExperiment):
    Config = PromptedConfig
    drawn: ClassVar = {
        "zero_shot.top_1": "cosine",
        "zero_shot[dot].top_1": "inner product",
        "zero_shot[neg_distance].top_1": "distance",
    }
    in_brief: ClassVar = {"zero_shot.top_1": "zero-shot accuracy"}

    def rows(self, map_config: MapConfig) -> list[Row]:
        self.labeled("test")
        return self.scored(map_config, "test", named(LOGITS), split="test")


experiments.add("zero_shot", ZeroShot)
