"""Embeddings trained under a classifier, with every state measured, against the straightforward loop on the same data.

The peer uses torch's Adam, scikit-learn's silhouette and the IsoScore package in every state. The sizes are those of
MRPC with all-MiniLM-L6-v2 (3668 pairs of 7052 sentences); the embeddings are random, in a cone like real ones.
"""

import numpy as np
import torch
from contest import Contest, main

MRPC = {"examples": 3668, "items": 7052, "d": 384, "updates": 250}
CLAIMS = {"euclidean": 2.5, "sqeuclidean": 10}


def setup(examples, items, d, updates):
    """Two classes of pairs: (items, pairs, labels, number of updates)."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(items, d)) + rng.normal(size=d) / 2
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32")
    pairs = np.concatenate([rng.permutation(items), rng.integers(items, size=2 * examples)])[: 2 * examples]
    labels = np.arange(examples) % 3 > 0  # two thirds positive, as in MRPC
    return rows, pairs.reshape(examples, 2), labels.astype("int64"), updates


def ours(metric):
    """(2, updates + 1): silhouette and IsoScore in every state."""
    return lambda *problem: trained_by_us(metric, *problem)


def peer(metric):
    return lambda *problem: trained_plainly(metric, *problem)


def trained_by_us(metric, rows, pairs, labels, updates):
    from clip_geometry_experiments.mickus2024.classify.task import ClassificationTask, TrainingConfig
    from clip_geometry_experiments.mickus2024.classify.training import (
        ClassificationCallback,
        ClassificationTrainer,
        LayerPlace,
    )

    names = (f"silhouette[{metric}]".replace("[euclidean]", ""), "isoscore")
    task = ClassificationTask.of(rows, pairs, labels)
    trainer = ClassificationTrainer(task, TrainingConfig(), updates=updates, seed=0)
    states = trainer.run(range(updates + 1), ClassificationCallback(names))
    return np.array([states[LayerPlace(name)] for name in names])


def trained_plainly(metric, rows, pairs, labels, updates):
    """The straightforward loop."""
    from IsoScore import IsoScore
    from sklearn.metrics import silhouette_score

    items = torch.nn.Parameter(torch.from_numpy(rows.copy()))
    torch.manual_seed(0)
    classifier = torch.nn.Linear(2 * rows.shape[1], 2)
    optimizer = torch.optim.Adam([items, *classifier.parameters()], lr=0.001)
    states, targets = [], torch.from_numpy(labels)
    for update in range(updates + 1):
        inputs = items[torch.from_numpy(pairs)].flatten(1)
        silhouette = silhouette_score(inputs.detach().numpy(), labels, metric=metric)
        states.append((float(silhouette), float(IsoScore.IsoScore(items.detach().numpy()))))
        if update < updates:
            loss = torch.nn.functional.cross_entropy(classifier(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return np.array(states).T


if __name__ == "__main__":
    contests = [
        Contest(
            name=f"classify[{metric}]",
            setup=setup,
            ours=ours(metric),
            peer=peer(metric),
            peer_package="scikit-learn",
            sizes=[MRPC],
            quick={"examples": 30, "items": 50, "d": 8, "updates": 3},
            tolerance=1e-3,  # Adam propagates the rounding errors of 250 float32 updates
            faster=faster,
            rounds=1,  # minutes each
        )
        for metric, faster in CLAIMS.items()
    ]
    main(contests)
