"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.transforms.base import RankWarning, Transform, register, transforms
from clip_geometry.transforms.chain import Affine, Compose
from clip_geometry.transforms.cluster_center import ClusterCenter
from clip_geometry.transforms.conceptor import Conceptor
from clip_geometry.transforms.elementary import Center, Normalize, Scale
from clip_geometry.transforms.gaussian_transport import GaussianTransport
from clip_geometry.transforms.gromov_wasserstein import GromovWasserstein
from clip_geometry.transforms.mini_vec2vec import MiniVec2Vec
from clip_geometry.transforms.paired import LeastSquares, Procrustes
from clip_geometry.transforms.pipeline import ANY, FittedPipeline, Pipeline, Prepared, prepare
from clip_geometry.transforms.principal import PCA, AllButTheTop, Whiten
from clip_geometry.transforms.sets import JointTransform, OntoTransform, PairedTransform
from clip_geometry.transforms.sinkhorn import Sinkhorn
from clip_geometry.transforms.step import Step, parse_pipeline

__all__ = [
    "ANY",
    "PCA",
    "Affine",
    "AllButTheTop",
    "Center",
    "ClusterCenter",
    "Compose",
    "Conceptor",
    "FittedPipeline",
    "GaussianTransport",
    "GromovWasserstein",
    "JointTransform",
    "LeastSquares",
    "MiniVec2Vec",
    "Normalize",
    "OntoTransform",
    "PairedTransform",
    "Pipeline",
    "Prepared",
    "Procrustes",
    "RankWarning",
    "Scale",
    "Sinkhorn",
    "Step",
    "Transform",
    "Whiten",
    "parse_pipeline",
    "prepare",
    "register",
    "transforms",
]
