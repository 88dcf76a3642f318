"""Embeddings under a classifier as library calls: train them on their classes, track silhouette and IsoScore.

python scripts/mickus2024/classify.py [--model scenes-clip/fresh] [--data scenes] [--updates 250] …
"""

import argparse
from pathlib import Path

import numpy as np

import clip_geometry as cg
from clip_geometry_experiments.kit.training import correlations
from clip_geometry_experiments.mickus2024.classify import training as steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes-clip/fresh", help="any encoder of images")
    parser.add_argument("--data", default="scenes", help="a data set whose images have classes")
    parser.add_argument("--limit", type=int, default=1000, help="number of items")
    parser.add_argument("--updates", type=int, default=250, help="full-batch steps of Adam")
    parser.add_argument("--out", type=Path, default=Path("runs/classify"), help="folder of the embeddings")
    options = parser.parse_args()
    folder = options.out / f"{options.model}-{options.data}".replace("/", "-").replace(":", "-")
    data = cg.data.load_dataset(options.data)
    cg.embed(cg.encoders.resolve_encoder(options.model), data, folder, limit=options.limit)
    rows = cg.read_store(folder, limit=options.limit)["image"]

    classes = np.unique(rows.labels, return_inverse=True)[1]  # each row is an example, its embedding a parameter
    unit = rows.vectors / np.linalg.norm(rows.vectors, axis=1, keepdims=True)
    task = steps.ClassificationTask.of(unit, np.arange(len(unit))[:, None], classes)
    trainer = steps.ClassificationTrainer(task, steps.TrainingConfig(), updates=options.updates, seed=0)
    states = trainer.run(range(options.updates + 1), steps.ClassificationCallback(["silhouette", "isoscore"]))
    silhouette, isoscore = (np.array(states[steps.LayerPlace(name)]) for name in ("silhouette", "isoscore"))
    print(f"silhouette {silhouette[0]:.3f} → {silhouette[-1]:.3f}  IsoScore {isoscore[0]:.4f} → {isoscore[-1]:.4f}")
    print("  ".join(f"{name} {value:.4f}" for name, value in correlations(silhouette, isoscore).items()))


if __name__ == "__main__":
    main()
