"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.transforms.base import Transform, TransformEntry, transforms
from clip_geometry.transforms.center import Center
from clip_geometry.transforms.normalize import Normalize
from clip_geometry.transforms.pipeline import Prepared, Step, parse_pipeline, prepare

__all__ = [
    "Center",
    "Normalize",
    "Prepared",
    "Step",
    "Transform",
    "TransformEntry",
    "parse_pipeline",
    "prepare",
    "transforms",
]
