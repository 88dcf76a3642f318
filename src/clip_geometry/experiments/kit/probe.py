"""What the experiments on a labelled data set share: its splits, its prompts, and pairs to fit maps on."""

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import model_validator

from clip_geometry.config import validate
from clip_geometry.data.base import DatasetConfig
from clip_geometry.embeddings import Embeddings
from clip_geometry.experiments.kit.base import Data, Source
from clip_geometry.experiments.kit.maps import MapsConfig, MapsExperiment, Sets
from clip_geometry.experiments.kit.stored import StoredConfig
from clip_geometry.registry import InputError


class ProbeConfig(MapsConfig):
    """Keys of a probe. A map's fit_on is "pairs"; "train" or "test", the images of the probe with the prompts of their
    classes; or "prompts", the prompts alone.

    Args:
        pairs: images and captions that maps can be fitted on, null for none.
        probe: labelled images with splits "train" and "test", and a prompt.
    """

    ROLES: ClassVar = ("pairs", "train", "test", "prompts")
    SCORED: ClassVar = ("test",)

    pairs: Source | None = None
    probe: Data

    @property
    def sources(self) -> Mapping[str, DatasetConfig | StoredConfig]:
        splits = {split: self._split(split) for split in ("test", "train") if split in self.used}
        pairs = {} if self.pairs is None else {"pairs": self.pairs}
        prompts = {"prompts": self._split("test")} if "prompts" in self.used else {}
        return splits | pairs | prompts

    @classmethod
    def data_fields(cls) -> set[str]:
        return {"pairs", "probe"}

    def _split(self, split: str) -> DatasetConfig:
        values = self.probe.model_dump(mode="json") | {"split": split}
        return validate(type(self.probe), values, f"probe {self.probe.name}")


class PromptedConfig(ProbeConfig):
    """A probe whose classes have prompts."""

    @model_validator(mode="after")
    def _prompted(self) -> Self:
        if self.probe.prompt is None:
            raise InputError(f'the probe {self.probe.name} needs a prompt: set probe.prompt, as in "a photo of a {{}}"')
        return self


class ProbeExperiment(MapsExperiment):
    def sets(self, role: str) -> Sets:
        found = super().sets(role)
        return {"text": found["text"]} if role == "prompts" else found

    def labelled(self, role: str) -> tuple[Embeddings, Embeddings]:
        """Images with labels, and their class prompts."""
        found = super().sets(role)
        if len(found) < 2 or found["image"].labels is None or found["text"].pair_on != "label":
            raise InputError(
                f"the probe {self.config.probe.name} has to be labelled images with class prompts; set probe.prompt, "
                'as in "a photo of a {}"'
            )
        return found["image"], found["text"]
