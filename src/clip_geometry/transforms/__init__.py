"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.registry import import_all
from clip_geometry.steps import parse_pipeline
from clip_geometry.transforms.base import OntoTransform, PairedTransform, RankWarning, Transform, register
from clip_geometry.transforms.elementary import Center, ClusterCenter, Normalize, Scale
from clip_geometry.transforms.paired import LeastSquares, Procrustes, Ridge
from clip_geometry.transforms.pipeline import Affine
from clip_geometry.transforms.principal import PCA, AllButTheTop, Conceptor, Whiten
from clip_geometry.transforms.unpaired import IsoCLIP, ReAlign

import_all(__name__)  # every module in this folder registers its transforms

__all__ = [
    "PCA",
    "Affine",
    "AllButTheTop",
    "Center",
    "ClusterCenter",
    "Conceptor",
    "IsoCLIP",
    "LeastSquares",
    "Normalize",
    "OntoTransform",
    "PairedTransform",
    "Procrustes",
    "RankWarning",
    "ReAlign",
    "Ridge",
    "Scale",
    "Transform",
    "Whiten",
    "parse_pipeline",
    "register",
]


def __dir__() -> list[str]:
    return __all__
