"""Table 2 as library calls: CLIP's loss before and after maps, on the pairs they were fitted on and on held-out pairs.

python scripts/tyshchuk2023/clip_loss.py [FOLDER with image.npy and text.npy, row k of both being a pair]
"""

import argparse
from pathlib import Path

import clip_geometry as cg
from clip_geometry.evaluate import contrastive_loss

MAPS = {
    "CLIP": "normalize",
    "centering": "normalize,center[pooled]",
    "whitening-64": "normalize,whiten(64)[pooled]",
    "Procrustes": "normalize,procrustes[text-to-image]",
    "LSTSQ": "normalize,least_squares[text-to-image]",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="embeddings (default: scenes by the shipped model)")
    folder = parser.parse_args().folder
    if folder is None:
        folder = Path("runs/script-clip-loss")
        encoder = cg.encoders.resolve_encoder("local-dir:shipped/scenes-trained")
        cg.embed(encoder, cg.data.load_dataset("scenes"), folder)
    pairs = {modality: each.vectors for modality, each in cg.read(folder).items()}
    n = len(pairs["image"]) * 4 // 5
    train, test = ({name: x[part] for name, x in pairs.items()} for part in (slice(n), slice(n, None)))
    index = range(n)
    for name, steps in MAPS.items():
        fitted = cg.Pipeline(steps).fit(train, (index, index))  # on train pairs only
        losses = [contrastive_loss(**fitted.transform(split), batch_size=64)["loss"] for split in (train, test)]
        print(f"{name:14} train {losses[0]:8.4f}   test {losses[1]:8.4f}")


if __name__ == "__main__":
    main()
