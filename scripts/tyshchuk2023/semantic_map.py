"""Maps as library calls: t-SNE of images and texts, one rotated onto the other, drawn with their images.

python scripts/tyshchuk2023/semantic_map.py [--model NAME] [--pairs scenes] [--limit 500]
"""

import argparse
from pathlib import Path

import clip_geometry as cg
from clip_geometry_experiments.report.figures import save_drawings
from clip_geometry_experiments.tyshchuk2023.semantic_map.figures import PlaneOfRows, draw_semantic_map
from clip_geometry_experiments.tyshchuk2023.semantic_map.planes import superpose, trustworthiness, tsne_plane


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="local-dir:shipped/scenes-trained", help="any model with both towers")
    parser.add_argument("--pairs", default="scenes", help="a data set of images with captions")
    parser.add_argument("--limit", type=int, default=500, help="number of items")
    parser.add_argument("--out", type=Path, default=Path("runs/maps"), help="folder of embeddings and figures")
    options = parser.parse_args()
    pairs = cg.data.load_dataset(options.pairs)
    cg.embed(cg.encoders.resolve_encoder(options.model), pairs, options.out / "embeddings", limit=options.limit)
    sets = cg.read_store(options.out / "embeddings", limit=options.limit)
    image, text = sets["image"], sets["text"]
    rows = cg.Pipeline("normalize").fit_transform({name: each.vectors for name, each in sets.items()})[1]

    # a plane per modality, with the perplexities of the paper
    planes = {name: tsne_plane(rows[name], perplexity=p) for name, p in (("image", 5), ("text", 50))}
    superposition = superpose(planes["image"], planes["text"], cg.pair(image, text))
    print(*(f"trustworthiness of the {name} map {trustworthiness(rows[name], planes[name]):.3f}" for name in rows))
    print(f"disparity of both maps {superposition.disparity:.3f}")
    images = PlaneOfRows(planes["image"], 5, lambda row: pairs.image.load(int(image.metadata["index"][row])))
    both = {"image": images, "text": PlaneOfRows(planes["text"], 50)}
    save_drawings(draw_semantic_map(both, superposition), options.out, origin=options.model)


if __name__ == "__main__":
    main()
