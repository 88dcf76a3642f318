"""Languages as library calls: embed the same captions in several languages, measure how near translations are.

python scripts/tyshchuk2023/multilingual.py [--model NAME] [--captions scenes] [--limit 500] …
"""

import argparse
from pathlib import Path

import numpy as np

import clip_geometry as cg
from clip_geometry_experiments.kit.languages import language_distance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mclip:shipped/scenes-multilingual", help="any model with a text tower")
    parser.add_argument("--captions", default="scenes", help="a data set in several languages, such as xtd10")
    parser.add_argument("--languages", default=["en", "de", "fr", "ru"], nargs="+", help="languages, the source first")
    parser.add_argument("--limit", type=int, default=500, help="number of items")
    parser.add_argument("--out", type=Path, default=Path("runs/languages"), help="folder of the embeddings")
    options = parser.parse_args()
    # the same captions in each language: row k of all belongs to one item
    rows = {}
    for language in options.languages:
        captions = cg.data.load_dataset(options.captions, language=language)
        folder = options.out / f"{options.model}-{options.captions}-{language}".replace("/", "-").replace(":", "-")
        cg.embed(cg.encoders.resolve_encoder(options.model), captions, folder, limit=options.limit)
        rows[language] = cg.read_store(folder, limit=options.limit)["text"].vectors

    # whether a caption is nearest to its translation, and whether languages form clusters
    (source, x), *others = rows.items()
    for language, y in others:
        ratio = language_distance(x, y)["ratio"]
        apart = cg.geometry.silhouette(np.concatenate([x, y]), np.repeat([source, language], [len(x), len(y)]))
        print(f"{source}-{language}  distance of translations / of other captions {ratio:.3f}  silhouette {apart:.3f}")


if __name__ == "__main__":
    main()
