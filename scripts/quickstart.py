"""The quickstart as library calls: embed drawn scenes with a fresh small CLIP, measure, centre, measure again.

python scripts/quickstart.py [--size 1000] [--out runs/script]
"""

import argparse
from pathlib import Path

import clip_geometry as cg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="how many scenes")
    parser.add_argument("--out", type=Path, default=Path("runs/script"), help="where the embeddings are kept")
    arguments = parser.parse_args()

    # a model and a data set by name; embeddings go to a folder and are read back
    scenes = cg.load_dataset(cg.resolve_dataset("scenes", size=arguments.size))
    cg.embed(cg.resolve_encoder("scenes-clip/fresh", seed=0), scenes, arguments.out)
    raw = cg.read_store(arguments.out)

    # the same numbers before and after each modality was centred
    for steps in ("normalize", "normalize,center[each],normalize"):
        rows = cg.prepare(cg.parse_pipeline(steps), {name: each.vectors for name, each in raw.items()}).sets
        image, text = rows["image"], rows["text"]
        print(f"\n{steps}")
        print(f"  average cosine of images  {cg.average_cosine(image):.4f}, of texts {cg.average_cosine(text):.4f}")
        print(f"  modality gap              {cg.modality_gap(image, text):.4f}")
        print(f"  IsoScore of images        {cg.isoscore(image):.4f}, of texts {cg.isoscore(text):.4f}")


if __name__ == "__main__":
    main()
