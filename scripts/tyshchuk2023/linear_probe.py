"""Table 5 as library calls: logistic regression on CIFAR-100 embeddings before and after whitening.

python scripts/tyshchuk2023/linear_probe.py [--model scenes-clip/fresh] [--limit 5000]
"""

import argparse
from pathlib import Path

import clip_geometry as cg


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="scenes-clip/fresh", help="the paper's: open_clip:ViT-B-32-quickgelu/openai")
    parser.add_argument("--data", default="cifar100", help="a labeled set")
    parser.add_argument("--limit", type=int, default=5000, help="number of images per split")
    options = parser.parse_args()
    model = cg.encoders.resolve_encoder(options.model)
    sets = {}
    for split in ("train", "test"):
        data = cg.data.load_dataset(options.data, split=split)
        folder = Path("runs/script-linear-probe") / split
        cg.embed(model, data, folder, limit=options.limit)
        sets[split] = cg.read_store(folder, limit=options.limit)["image"]
    # whitening is fitted on captioned images of another data set
    cg.embed(model, cg.data.load_dataset("scenes", split="train"), "runs/script-linear-probe/pairs")
    pairs = {name: each.vectors for name, each in cg.read_store("runs/script-linear-probe/pairs").items()}

    for steps in ("normalize", *(f"normalize,whiten({k})[pooled]" for k in (256, 128, 64))):
        fitted = cg.Pipeline(steps).fit(pairs)
        train, test = (fitted.transform({"image": each.vectors})["image"] for each in sets.values())
        scores = cg.evaluate.linear_probe(train, sets["train"].labels, test, sets["test"].labels, solver="torch")
        print(f"{steps:32} {100 * scores['top_1']:6.2f} %  ({scores['iterations']:.0f} iterations)")


if __name__ == "__main__":
    main()
