"""Words in context as library calls: is there one cone, are there clusters, how many dimensions are around a word?

python scripts/cai2021/contextual.py [--model hidden-states:scenes-clip/fresh] [--data scenes] [--limit 200] …
"""

import argparse
from pathlib import Path

import numpy as np

import clip_geometry as cg
from clip_geometry_experiments.cai2021.contextual.measures import adjusted_type_cosines, neighborhoods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="hidden-states:scenes-clip/fresh", help="any model behind hidden-states:")
    parser.add_argument("--data", default="scenes", help="a corpus, such as treebank")
    parser.add_argument("--limit", type=int, default=200, help="number of sentences")
    parser.add_argument("--out", type=Path, default=Path("runs/contextual"), help="folder of the embeddings")
    options = parser.parse_args()
    folder = options.out / f"{options.model}-{options.data}".replace("/", "-").replace(":", "-")
    model = cg.encoders.resolve_encoder(options.model)
    data = cg.data.load_dataset(options.data)
    cg.embed(model, data, folder, limit=options.limit)
    words = cg.read_store(folder, limit=options.limit)["text"]

    for layer in np.unique(words.metadata["layer"]):
        rows = words.take(words.metadata["layer"] == layer)
        x, types = rows.vectors, rows.metadata["token"]
        # between and within types, as they are and with the mean subtracted
        raw = float(cg.geometry.inter_type_cosine(x, types)), float(cg.geometry.intra_type_cosine(x, types))
        centered = adjusted_type_cosines(x, types, np.zeros(len(x)))
        lid, error = neighborhoods(x, k=100, of=2000).dimension("mackay")
        print(f"layer {layer:2}  between types {raw[0]:.3f} → {centered.mean('inter'):.3f} centered", end="  ")
        print(f"within {raw[1]:.3f} → {centered.mean('intra'):.3f}  dimension {lid:.1f} ± {error:.1f}")


if __name__ == "__main__":
    main()
