"""Definitions of neural collapse and of LiDAR, by covariance matrices, and of sliced normality."""

import numpy as np
import scipy.linalg
import torch
from scipy.spatial.distance import cdist


def scatters(x, labels):
    """Σ_W, Σ_B and the class means about their center, every class with the same weight."""
    classes = [x[np.asarray(labels) == label] for label in sorted(set(np.asarray(labels).tolist()))]
    means = np.array([rows.mean(0) for rows in classes])
    within = np.mean([(rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows) for rows in classes], axis=0)
    means = means - means.mean(0)
    return within, means.T @ means / len(means), means


def nc1(x, labels):
    within, _, means = scatters(x, labels)
    root = np.linalg.pinv(means, rcond=1e-10) * np.sqrt(len(means))  # Σ_B⁺ = root rootᵀ
    return np.trace(within @ root @ root.T) / len(means)


def nc2_norm(x, labels):
    lengths = np.linalg.norm(scatters(x, labels)[2], axis=1)
    return lengths.std() / lengths.mean()


def nc2_angle(x, labels):
    means = scatters(x, labels)[2]
    cosines = means @ means.T / np.outer(*[np.linalg.norm(means, axis=1)] * 2)
    return np.abs(cosines[np.triu_indices(len(means), 1)] + 1 / (len(means) - 1)).mean()


def nc3(x, labels, text):
    """‖W/‖W‖ − M/‖M‖‖ of Papyan et al. 2020, of a classifier whose rows sum to zero."""
    means, text = scatters(x, labels)[2], text[sorted(set(labels.tolist()))]
    text = text - text.mean(0)
    return np.linalg.norm(means / np.linalg.norm(means) - text / np.linalg.norm(text))


def nc4(x, labels, text):
    classes = sorted(set(labels.tolist()))
    nearest = cdist(x, [x[labels == label].mean(0) for label in classes]).argmin(1)
    return (nearest != cdist(x, text[classes], "cosine").argmin(1)).mean()


def lidar(x, labels, delta=1e-4):
    x = x / np.abs(x).max()
    within, between, _ = scatters(x, labels)
    values = scipy.linalg.eigh(between, within + delta * np.trace(within) / len(within) * np.eye(len(within)))[0]
    shares = values[values > 1e-14 * values.max()] / values.sum()
    return np.exp(-(shares * np.log(shares)).sum())


def sliced_normality(x, directions=128, seed=0):
    rows = x - x.mean(0)
    rows = rows / np.sqrt((rows**2).mean())
    drawn = torch.randn(x.shape[1], directions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    t, values = np.linspace(-5, 5, 17), []
    for direction in drawn.numpy().T:
        along = rows @ direction / np.linalg.norm(direction)
        difference = np.exp(1j * np.outer(t, along)).mean(1) - np.exp(-(t**2) / 2)
        values.append(len(x) * np.trapezoid(np.abs(difference) ** 2 * np.exp(-(t**2) / 2), t))
    return np.mean(values)


CLASS_ORACLES = {
    "nc1": nc1,
    "nc2_norm": nc2_norm,
    "nc2_angle": nc2_angle,
    "nc3": nc3,
    "nc4": nc4,
    "lidar": lidar,
    "lidar[pairs]": lambda x, y: lidar(np.concatenate([x, y]), np.tile(np.arange(len(x)), 2)),
    "sliced_normality": sliced_normality,
}
