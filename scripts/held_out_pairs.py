"""The effect of a map on retrieval of held-out image-text pairs, over random splits.

python scripts/held_out_pairs.py FOLDER --fit 400 --held-out 100     # a folder with image.npy and text.npy, or a store
python scripts/held_out_pairs.py FOLDER --json FILE                  # appends the numbers to FILE
"""

import argparse
import json
from pathlib import Path

import numpy as np

import clip_geometry as cg

NUMBERS = (
    ("cross", "image_to_text.r_at_1", "R@1 of image queries, index of texts"),
    ("mixed", "image_to_text.r_at_1", "R@1 of image queries, mixed index"),
    ("mixed", "image.same_modality_at_10", "images among the ten rows nearest to an image"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", type=int, default=250, help="number of pairs to fit the map on")
    parser.add_argument("--held-out", type=int, default=250, help="number of held-out pairs")
    parser.add_argument("--splits", type=int, default=20, help="number of random splits (seeds 0, 1, …)")
    parser.add_argument("--pipeline", default="normalize,procrustes[text-to-image]")
    parser.add_argument("--json", type=Path, help="file to append the means and standard deviations over splits to")
    options = parser.parse_args()
    if (options.folder / "image.npy").exists():
        image, text = (np.load(options.folder / f"{modality}.npy") for modality in ("image", "text"))
    else:
        image, text = (cg.read_store(options.folder)[modality].vectors for modality in ("image", "text"))
    for title, scores in shares(image, text, options.fit, options.held_out, options.splits, options.pipeline).items():
        before, after = (f"{100 * share.mean():.1f} ± {100 * share.std(ddof=1):.1f} %" for share in scores)
        print(f"{title}: {before} before, {after} after")
        if options.json is not None:
            numbers = {key: {"mean": share.mean(), "deviation": share.std(ddof=1)}
                       for key, share in zip(("before", "after"), scores, strict=True)}  # fmt: skip
            setup = {key: getattr(options, key) for key in ("pipeline", "fit", "held_out", "splits")}
            row = {"run": "held_out_pairs", "rows": options.folder.name, **setup, "number": title, **numbers}
            with options.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def shares(
    image: np.ndarray, text: np.ndarray, fit: int, held_out: int, splits: int, pipeline: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The values before and after the map, by title, one per split."""
    by_split = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(image))
        known, unseen = order[:fit], order[fit : fit + held_out]
        pairs = (range(fit), range(fit))
        fitted = cg.Pipeline(pipeline).fit({"image": image[known], "text": text[known]}, pairs)
        raw = {"image": image[unseen], "text": text[unseen]}
        sets = (raw, fitted.transform(raw))
        by_split.append(
            [[cg.evaluate.retrieval(s["image"], s["text"], index=i)[key] for s in sets] for i, key, _ in NUMBERS]
        )
    values = np.array(by_split)
    return {title: (values[:, k, 0], values[:, k, 1]) for k, (_, _, title) in enumerate(NUMBERS)}


if __name__ == "__main__":
    main()
