"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.registry import import_all
from clip_geometry.transforms.aniso_align import AnisoAlign
from clip_geometry.transforms.base import RankWarning, Transform, register, transforms
from clip_geometry.transforms.chain import Affine, Compose
from clip_geometry.transforms.cluster_center import ClusterCenter
from clip_geometry.transforms.combat import ComBat
from clip_geometry.transforms.conceptor import Conceptor
from clip_geometry.transforms.elementary import Center, Normalize, Scale
from clip_geometry.transforms.gaussian_transport import GaussianTransport
from clip_geometry.transforms.gromov_wasserstein import GromovWasserstein
from clip_geometry.transforms.harmony import Harmony
from clip_geometry.transforms.isoclip import IsoCLIP
from clip_geometry.transforms.mini_vec2vec import MiniVec2Vec
from clip_geometry.transforms.mutual_neighbors import MutualNeighbors
from clip_geometry.transforms.paired import LeastSquares, Procrustes
from clip_geometry.transforms.pipeline import ANY, FittedPipeline, Pipeline, Prepared, prepare
from clip_geometry.transforms.principal import PCA, AllButTheTop, Whiten
from clip_geometry.transforms.realign import ReAlign
from clip_geometry.transforms.ridge import Ridge
from clip_geometry.transforms.sets import JointTransform, OntoTransform, PairedTransform
from clip_geometry.transforms.sinkhorn import Sinkhorn
from clip_geometry.transforms.step import Step, parse_pipeline

import_all(__name__)  # a new file registers its transforms by being there

__all__ = [
    "ANY",
    "PCA",
    "Affine",
    "AllButTheTop",
    "AnisoAlign",
    "Center",
    "ClusterCenter",
    "ComBat",
    "Compose",
    "Conceptor",
    "FittedPipeline",
    "GaussianTransport",
    "GromovWasserstein",
    "Harmony",
    "IsoCLIP",
    "JointTransform",
    "LeastSquares",
    "MiniVec2Vec",
    "MutualNeighbors",
    "Normalize",
    "OntoTransform",
    "PairedTransform",
    "Pipeline",
    "Prepared",
    "Procrustes",
    "RankWarning",
    "ReAlign",
    "Ridge",
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
