"""Fitted pipelines and repairs in the formats of other programs: a vector index, an inference runtime, a script."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from clip_geometry.embeddings import Embeddings
from clip_geometry.files import new_folder
from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, Registry
from clip_geometry.search.repairs import InnerProduct, Repair
from clip_geometry.search.shipping.rows import RowMap, SavedPipeline, item_map, query_map
from clip_geometry.transforms import ANY

__all__ = ["RowMap", "SavedPipeline", "Target", "item_map", "query_map", "targets", "write_shipment"]


class Target:
    """Base class of the targets.

    Attributes:
        stores_rows: Whether it needs the rows of the index.
    """

    stores_rows: bool = False

    @abstractmethod
    def write(self, repair: Repair, sets: Mapping[str, Embeddings], folder: Path) -> dict[str, str]:
        """Write the files into a folder and return file → what it is."""


targets: Registry[Target] = Registry(
    "target",
    "clip-geometry ship --help",
    {name: f"clip_geometry.search.shipping.{name}" for name in ("faiss", "onnx", "numpy")},
)


def require_inner_product(repair: Repair) -> InnerProduct:
    """Return the repair; raise InputError if its scores are not an inner product of rows."""
    if not isinstance(repair, InnerProduct):
        raise InputError(
            f"{repair.name} is no inner product of rows, so an index cannot hold it: ship it --to numpy, "
            "which writes a reranker"
        )
    return repair


def write_shipment(repair: Repair, to: str, out: Path, sets: Mapping[str, Embeddings] | None = None) -> dict[str, str]:
    """Write the new folder `out`, completely or not at all.

    Args:
        repair: A fitted repair.
        to: Name of the target.
        out: A folder that does not exist or is empty.
        sets: Modality → items of the index, for a target that stores them.

    Returns:
        File → what it is.

    Raises:
        InputError: The target cannot express the repair, needs a package that is not installed, or `out` has files.
    """
    target = targets[to]
    for modality in getattr(repair, "modalities", ()):  # they become names of files
        if modality != ANY:
            modality_name(modality, f"{repair.name}:")
    with new_folder(out) as temporary:
        return target.write(repair, sets or {}, temporary)
