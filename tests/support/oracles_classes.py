"""Definitions of neural collapse, by covariance matrices."""

import numpy as np
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


CLASS_ORACLES = {
    "nc1": nc1,
    "nc2_norm": nc2_norm,
    "nc2_angle": nc2_angle,
    "nc3": nc3,
    "nc4": nc4,
}
