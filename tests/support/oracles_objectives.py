"""Definitions of the objectives of Mickus et al. 2024, of the cosines of types and of conformity: loops, no algebra."""

import numpy as np


def unit(x):
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def cosine_distance(u, v):
    """1 − cos of unit rows from their difference, which keeps the digits of near rows."""
    return ((u - v) ** 2).sum() / 2


def distances(x):
    return [[np.sqrt(((a - b) ** 2).sum()) for b in x] for a in x]


def sign(label, other):
    return -1 if label == other else 1


def silhouette_terms(x, labels):
    return [
        sign(label, other) * ((a - b) ** 2).sum()
        for a, label in zip(x, labels, strict=True)
        for b, other in zip(x, labels, strict=True)
    ]


def isotropy(x):
    variances = np.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    ones = np.ones(x.shape[1])  # where n < d the other variances are 0
    return variances.sum() / (np.linalg.norm(ones) * np.linalg.norm(variances))


def class_means(x, labels):
    return {label: x[np.asarray(labels) == label].mean(0) for label in set(np.asarray(labels).tolist())}


def classifier_terms(x, labels, vectors):
    """vectors: {label: class vector}."""
    return [
        -sign(omega, label) * (row @ vectors[omega]) for row, label in zip(x, labels, strict=True) for omega in vectors
    ]


def triplet_terms(x, labels):
    d, n = distances(x), len(x)
    return [
        -max(d[a][p] - d[a][q], 0.0)
        for a in range(n)
        for p in range(n)
        if p != a and labels[p] == labels[a]
        for q in range(n)
        if labels[q] != labels[a]
    ]


def bound_terms(x, labels):
    d, n = distances(x), len(x)
    sizes = {label: sum(other == label for other in labels) for label in labels}
    return [
        (sizes[labels[a]] - n if labels[b] == labels[a] else sizes[labels[a]] - 1) * d[a][b]
        for a in range(n)
        for b in range(n)
    ]


def rows_of_types(x, types):
    u, types = unit(x), np.asarray(types).tolist()
    return [[row for row, own in zip(u, types, strict=True) if own == kind] for kind in dict.fromkeys(types)]


def inter_type_cosine(x, types):
    """Over all ordered pairs of types, the mean over all pairs of their instances."""
    kinds = rows_of_types(x, types)
    pairs = [
        np.mean([cosine_distance(u, v) for u in left for v in right])
        for s, left in enumerate(kinds)
        for t, right in enumerate(kinds)
        if s != t
    ]
    return 1 - np.mean(pairs)


def intra_type_cosine(x, types):
    means = [
        np.mean([cosine_distance(u, v) for i, u in enumerate(rows) for j, v in enumerate(rows) if i != j])
        for rows in rows_of_types(x, types)
        if len(rows) > 1
    ]
    return 1 - np.mean(means)


def conformity_distances(x):
    """Mean of 1 − cos of each row to the others."""
    u = unit(x)
    return [np.mean([cosine_distance(a, b) for j, b in enumerate(u) if j != i]) for i, a in enumerate(u)]


COSINE_ORACLES = {
    "inter_type_cosine": inter_type_cosine,
    "intra_type_cosine": intra_type_cosine,
    "conformity_std": lambda x: np.std(conformity_distances(x)),
}
OBJECTIVE_ORACLES = {
    "objective_silhouette": lambda x, labels: sum(silhouette_terms(x, labels)),
    "objective_isotropy": isotropy,
    "objective_classifier": lambda x, labels: sum(classifier_terms(x, labels, class_means(x, labels))),
    "objective_triplet": lambda x, labels: sum(triplet_terms(x, labels)),
    "triplet_bound": lambda x, labels: sum(bound_terms(x, labels)),
}
