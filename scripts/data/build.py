"""Build the folder CLIP_GEOMETRY_DATA from public sources; run in the folder, after scripts/data/download.sh.

Needs torchvision, and nltk and datasets for the texts. The folder is described in docs/data.md. The downloads were not
tested, and no result was compared with the folder that the tests use.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from torchvision.datasets import CIFAR10, CIFAR100

from clip_geometry.data.tables import read_lines


def table(columns, path):
    pd.DataFrame({name: read_lines(file) for name, file in columns.items()}).to_parquet(path)


def captions():
    clone = Path("clones/Cross-lingual-Test-Dataset-XTD10")
    folders = {"en": "MIC", "de": "MIC", "fr": "MIC", "jp": "STAIR"}
    columns = {
        language: clone / folders.get(language, "XTD10") / f"test_1kcaptions_{language}.txt"
        for language in ("en", "de", "fr", "es", "it", "ru", "pl", "tr", "ko", "zh", "jp")
    }
    table({**columns, "image": clone / "XTD10/test_image_names.txt"}, "captions/xtd10.parquet")
    for split in ("train", "val", "test_2016_flickr"):
        raw = Path("clones/dataset/data/task1/raw")
        columns = {language: raw / f"{split}.{language}.gz" for language in ("en", "de", "fr", "cs")}
        table(columns, f"captions/multi30k_{split}.parquet")


def embeddings():
    for name, source in {"": "features_clip", "-random-init": "features_clip_random"}.items():
        pair = np.load(f"clones/Modality-Gap/Figure_1_Modality_Gap/{source}.npy")  # (2, 500, 512)
        for modality, rows in zip(("image", "text"), pair, strict=True):
            np.save(f"embeddings/coco500-clip-vit-b16{name}/{modality}.npy", rows)

    folder, clone = Path("embeddings/cifar10-500-clip-vit-b32"), Path("clones/clip-cifar10-search")
    cifar10 = CIFAR10("downloads", train=False, download=True)
    np.save(folder / "image.npy", torch.load(clone / "image_embeddings.pt", weights_only=True).numpy())
    np.save(folder / "labels.npy", np.load(clone / "image_labels.npy"))
    np.save(folder / "pixels.npy", cifar10.data[:500])
    (folder / "classes.json").write_text(json.dumps(cifar10.classes))

    folder, metadata = Path("embeddings/class-names-clip-vit-b32"), Path("clones/Detic/datasets/metadata")
    for name, source in {"lvis": "lvis_v1", "openimages": "oid", "coco80": "coco"}.items():
        np.save(folder / f"{name}.npy", np.load(metadata / f"{source}_clip_a+cname.npy"))
    features = torch.load(
        "clones/Images-Search-using-Clip/cifar100_text_features.pt", weights_only=True, map_location="cpu"
    )
    np.save(folder / "cifar100.npy", features.float().numpy())
    (folder / "cifar100.json").write_text(json.dumps(CIFAR100("downloads", download=True).classes))


def tagged(sentences):
    kept = [[(word, tag) for word, tag in sentence if tag != "-NONE-"] for sentence in sentences]
    return pd.DataFrame({"tokens": [[w for w, _ in s] for s in kept], "tags": [[t for _, t in s] for s in kept]})


def texts_and_words():
    import nltk  # neither is a dependency of the package
    from datasets import load_dataset

    for name in ("brown", "treebank", "sentence_polarity"):
        nltk.download(name)
    from nltk.corpus import brown, sentence_polarity, treebank

    rows = [
        (" ".join(words), k) for k, c in enumerate(("neg", "pos")) for words in sentence_polarity.sents(categories=c)
    ]
    pd.DataFrame(rows, columns=["text", "label"]).to_parquet("text/sentence_polarity.parquet")

    tagged(treebank.tagged_sents()).to_parquet("text/treebank_sample.parquet")
    frame = pd.concat(
        [tagged(brown.tagged_sents(file)).assign(file=file) for file in brown.fileids()], ignore_index=True
    )
    frame["tags"] = frame["tags"].map(lambda tags: [tag.lower() for tag in tags])  # as in the files
    frame.to_parquet("text/brown.parquet")
    for name in ("cola", "mrpc", "rte", "sst2", "wnli"):
        load_dataset("nyu-mll/glue", name, split="train").remove_columns("idx").to_parquet(
            f"text/glue/{name}_train.parquet"
        )

    rows = [line.split("\t") for line in Path("clones/rmib/data/snli/dev.txt").read_text("utf-8").splitlines()]
    frame = pd.DataFrame(rows, columns=["premise", "hypothesis", "label"])
    frame.astype({"label": int}).to_parquet("text/snli_dev.parquet")

    script = Path("clones/word2vecjson/data/wordvecs1000.js").read_text()
    vectors = json.loads(script[script.index("{") : script.rindex("}") + 1])
    np.save("words/word2vec1000.npy", np.array(list(vectors.values()), dtype=np.float32))
    Path("words/word2vec1000.json").write_text(json.dumps(list(vectors)))

    senses = {}
    for file in sorted(Path("clones/english-wordnet/src/yaml").glob("noun.*.yaml")):
        synsets = yaml.safe_load(file.read_text("utf-8")).values()
        members = {word for synset in synsets for word in synset.get("members") or synset["entries"]}
        for word in members & vectors.keys():
            senses.setdefault(word, []).append(file.stem)
    order = [word for word in vectors if word in senses]
    Path("words/supersenses.json").write_text(json.dumps({word: senses[word] for word in order}))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    captions()
    embeddings()
    texts_and_words()
