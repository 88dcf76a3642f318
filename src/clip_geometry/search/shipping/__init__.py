"""Fitted pipelines and repairs in the formats of other programs: a vector index, an inference runtime, a script."""

from clip_geometry.search.shipping.base import Target, targets, write_shipment
from clip_geometry.search.shipping.rows import RowMap, SavedPipeline, item_map, query_map

__all__ = [
    "RowMap",
    "SavedPipeline",
    "Target",
    "item_map",
    "query_map",
    "targets",
    "write_shipment",
]
