"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.transforms.affine import Affine
from clip_geometry.transforms.all_but_the_top import AllButTheTop
from clip_geometry.transforms.base import RankWarning, Transform, TransformEntry, transforms
from clip_geometry.transforms.center import Center
from clip_geometry.transforms.cluster_center import ClusterCenter
from clip_geometry.transforms.compose import Compose
from clip_geometry.transforms.fitted import ANY, FittedPipeline
from clip_geometry.transforms.least_squares import LeastSquares
from clip_geometry.transforms.normalize import Normalize
from clip_geometry.transforms.pca import PCA
from clip_geometry.transforms.pipeline import Pipeline, Prepared, prepare
from clip_geometry.transforms.procrustes import Procrustes
from clip_geometry.transforms.scale import Scale
from clip_geometry.transforms.step import Step, parse_pipeline
from clip_geometry.transforms.whiten import Whiten

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
    "Pipeline",
    "Prepared",
    "Procrustes",
    "RankWarning",
    "Scale",
    "Step",
    "Transform",
    "TransformEntry",
    "Whiten",
    "parse_pipeline",
    "prepare",
    "transforms",
]
