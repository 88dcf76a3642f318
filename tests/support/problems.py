"""Small classification problems on random embeddings."""

import numpy as np

from clip_geometry.config import validate
from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask, TrainingConfig
from clip_geometry_experiments.mickus2024.classify.training import ClassificationTrainer

NAMES = ("silhouette", "isoscore")


def configured(**changes):
    return validate(TrainingConfig, changes, "test")


def trainer(task=None, updates=10, seed=0, unseen=None, **changes):
    return ClassificationTrainer(task or pairs(), configured(**changes), updates=updates, seed=seed, unseen=unseen)


def pairs(n=40, m=50, d=12, k=3, seed=0):
    """n pairs of m items in k classes; several pairs share an item."""
    rng = np.random.default_rng(seed)
    examples = np.stack([rng.permutation(m)[:n], rng.integers(0, m, n)], axis=1)
    return ClassificationTask.of(rng.normal(size=(m, d)) / d**0.5, examples, np.arange(n) % k)


def several_labels(n=30, d=8, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return ClassificationTask.of(rng.normal(size=(n, d)), np.arange(n)[:, None], rng.integers(0, 2, size=(n, k)))
