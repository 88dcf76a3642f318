"""Transforms of embeddings, and pipelines of them.

The transforms are scikit-learn's estimators, whose import takes as long as torch's: they are imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clip_geometry.transforms.pipeline import ANY, FittedPipeline, Pipeline, Prepared, prepare
from clip_geometry.transforms.step import Step, parse_pipeline, transforms

if TYPE_CHECKING:
    from clip_geometry.transforms.base import RankWarning, Transform, register
    from clip_geometry.transforms.chain import Affine, Compose
    from clip_geometry.transforms.cluster_center import ClusterCenter
    from clip_geometry.transforms.elementary import Center, Normalize, Scale
    from clip_geometry.transforms.paired import LeastSquares, PairedTransform, Procrustes
    from clip_geometry.transforms.principal import PCA, AllButTheTop, Whiten

__all__ = [
    "ANY",
    "PCA",
    "Affine",
    "AllButTheTop",
    "Center",
    "ClusterCenter",
    "Compose",
    "FittedPipeline",
    "LeastSquares",
    "Normalize",
    "PairedTransform",
    "Pipeline",
    "Prepared",
    "Procrustes",
    "RankWarning",
    "Scale",
    "Step",
    "Transform",
    "Whiten",
    "parse_pipeline",
    "prepare",
    "register",
    "transforms",
]


_HOMES = ("base", "chain", "cluster_center", "elementary", "paired", "principal")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            if name in vars(module := import_module(f"{__name__}.{home}")):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
