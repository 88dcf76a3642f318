"""What is shipped, where to, and the registry of targets."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import new_folder
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, Registry
from clip_geometry.repairs import InnerProduct, Repair
from clip_geometry.transforms import ANY

Source = Literal["embeddings", "model", ""]


@dataclass(frozen=True)
class Shipment:
    """What a target gets.

    Args:
        repair: Fitted.
        sets: Modality → items of the index, for a target that stores them.
        model: Folder of an encoder, for a target that extends it.
        modality: Of the encoder.
    """

    repair: Repair
    sets: Mapping[str, Embeddings] = field(default_factory=dict)
    model: Path | None = None
    modality: str = ""

    @property
    def inner_product(self) -> InnerProduct:
        """The repair; raise InputError if it is no inner product."""
        if not isinstance(self.repair, InnerProduct):
            raise InputError(
                f"{self.repair.name} is no inner product of rows, so an index cannot hold it: ship it --to numpy, "
                "which writes a reranker"
            )
        return self.repair


class Target:
    """Base of the targets; a subclass implements `write`.

    Attributes:
        summary: What it writes, in a line.
        takes: What FOLDER is: "embeddings", a "model", or "" for none.
    """

    summary: str = ""
    takes: Source = ""

    @abstractmethod
    def write(self, shipment: Shipment, folder: Path) -> dict[str, str]:
        """Write the files into a folder and return file → what it is."""


targets: Registry[Target] = Registry(
    "target",
    "clip-geometry ship --help",
    {
        name: f"clip_geometry.shipping.{name.replace('-', '_')}"
        for name in ("faiss", "onnx", "sentence-transformers", "numpy", "javascript")
    },
)


def write_shipment(shipment: Shipment, to: str, out: Path) -> dict[str, str]:
    """Write the new folder `out`, whole or not at all.

    Args:
        shipment: What.
        to: Name of the target.
        out: A folder that does not exist or is empty.

    Returns:
        File → what it is.

    Raises:
        InputError: The target cannot express the repair, needs a package that is not installed, or `out` has files.
    """
    target = targets[to]
    for modality in getattr(shipment.repair, "modalities", ()):  # they become names of files
        if modality != ANY:
            modality_name(modality, f"{shipment.repair.name}:")
    with new_folder(out) as temporary:
        return target.write(shipment, temporary)
