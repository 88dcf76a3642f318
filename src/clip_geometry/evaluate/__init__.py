"""Evaluators: how well embeddings serve classification and retrieval, and how sets relate; one file each.

As with measures, results are floats for arrays and 0-d tensors for tensors.
"""

from clip_geometry.evaluate.base import add_evaluator
from clip_geometry.evaluate.contrastive_loss import contrastive_loss
from clip_geometry.evaluate.cosine_distributions import cosine_distributions
from clip_geometry.evaluate.linear_probe import linear_probe, modality_separability
from clip_geometry.evaluate.retrieval import retrieval
from clip_geometry.evaluate.zero_shot import ensemble, zero_shot
from clip_geometry.registry import import_all

import_all(__name__)

__all__ = [
    "add_evaluator",
    "contrastive_loss",
    "cosine_distributions",
    "ensemble",
    "linear_probe",
    "modality_separability",
    "retrieval",
    "zero_shot",
]


def __dir__() -> list[str]:
    return __all__
