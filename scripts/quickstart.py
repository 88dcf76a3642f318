"""The quickstart as library calls: a trained CLIP on held-out images, the effect of maps on it, and four languages.

python scripts/quickstart.py [--size 1000] [--out runs/script]
"""

import argparse
from pathlib import Path

import clip_geometry as cg

LANGUAGES = {"en": "A picture of a {}.", "de": "Bild: {}.", "fr": "Image : {}.", "ru": "Изображение: {}."}
MAPS = ("normalize", "normalize,center[each],normalize", "normalize,whiten(64)[pooled],normalize",
        "normalize,least_squares[text-to-image],normalize")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="number of images")
    parser.add_argument("--out", type=Path, default=Path("runs/script"), help="folder of the embeddings")
    arguments = parser.parse_args()

    def embedded(model: str, name: str, **options):
        data = cg.data.load_dataset("scenes", size=arguments.size, **options)
        cg.embed(cg.encoders.resolve_encoder(model), data, arguments.out / name)
        return cg.read_store(arguments.out / name)

    clip, tower = "local-dir:shipped/scenes-trained", "mclip:shipped/scenes-multilingual"
    test, other = (embedded(clip, split, split=split) for split in ("test", "train"))
    for steps in MAPS:  # fitted on the train split, applied to the test split
        fitted = cg.Pipeline(steps).fit({modality: side.vectors for modality, side in other.items()}, cg.pair(**other))
        rows = fitted.transform({modality: side.vectors for modality, side in test.items()})
        share = cg.evaluate.retrieval(rows["image"], rows["text"], k=10, index="mixed")["image.same_modality_at_10"]
        gap = cg.geometry.modality_gap(rows["image"], rows["text"])
        score = cg.geometry.isoscore(rows["image"], unbiased=True)
        print(f"{steps:50} gap {gap:.3f}, IsoScore {score:.3f}, images among the ten nearest to an image {share:.0%}")
    # a repair of scores, not of rows
    repair = cg.search.make_repair("posterior").fit(cg.search.MixedIndex.of(other, "pairs").known())
    numbers = cg.search.search_index(cg.search.MixedIndex.of(test, "pairs"), repair)
    print(f"calibrated score: images among the ten nearest to an image {numbers['own_share.image'].value:.0%}")
    for language, prompt in LANGUAGES.items():  # image tower of scenes-trained, text tower of scenes-multilingual
        names = embedded(tower, language, prompt=prompt, language=language)["text"]
        classes = names.vectors[names.labels.argsort()]
        scores = cg.evaluate.zero_shot(test["image"].vectors, test["image"].labels, classes)
        print(f"{prompt:20} zero-shot accuracy {scores['top_1']:.1%} on {arguments.size} images")


if __name__ == "__main__":
    main()
