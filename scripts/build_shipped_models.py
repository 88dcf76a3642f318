"""Train the models that the package ships and write them with their model cards (15 minutes on two cores).

python scripts/build_shipped_models.py [--out src/clip_geometry/assets] [--runs runs] [--only NAME] [key=value …]

A killed build continues where it stopped. key=value overrides the configs for a trial; the model cards record it.
"""

import argparse
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import clip_geometry as cg
from clip_geometry.config import parse_overrides, read_yaml
from clip_geometry.encoders.hub import folder_of
from clip_geometry.files import sha256_of, write_atomically
from clip_geometry.results import Results
from clip_geometry_experiments.run.runner import run

ROOT = Path(__file__).parents[1]
ASSETS = folder_of("")
# Templates of the table of prompts that do not occur in the training, by language
OTHERS = {
    "en": ("a painting of the {}.", "a blurry photo of a {}.", "art of a {}.", "the origami {}.", "my {}", "I like {}"),
    "de": ("Zeichnung: {}.", "auf dem Bild: {}"),
    "fr": ("Dessin : {}.", "sur l'image : {}"),
    "ru": ("Рисунок: {}.", "на картинке: {}"),
}
DIGITS = 6  # of the shipped rows and vectors
BATCH = 256  # images
ITEMS = 4  # of each modality whose embeddings are recorded

Rows = list[dict[str, Any]]


class Shipped(NamedTuple):
    """A model to build.

    Attributes:
        config: Config of the training.
        family: Prefix of the model's name.
        weights: File name of the weights.
        heading: Heading of the model card.
        text: Text of the model card.
        languages: Languages of the recorded captions.
    """

    config: str
    family: str
    weights: str
    heading: str
    text: str
    languages: tuple[str, ...] = ("en",)


SHIPPED = {
    "scenes-trained": Shipped(
        "train_scenes.yaml",
        "local-dir",
        "open_clip_model.safetensors",
        "A small CLIP of drawn scenes",
        """\
Image tower: timm's `test_byobnet` behind open_clip; text tower: one transformer layer of width 128. It knows the data
set `scenes` (colored shapes on a background, 64 × 64 pixels) and nothing else: it is for studying the geometry of a
trained CLIP without a download, not for photographs. A share of its training captions, `class_captions` below, named
one of the 64 seen classes by one of the `training_prompts`; the 16 held-out classes (combinations of a shape and a
color) occurred in no training image, caption or prompt. The tokenizer knows no capital letters.""",
    ),
    "scenes-multilingual": Shipped(
        "train_multilingual.yaml",
        "mclip",
        "model.safetensors",
        "The texts of scenes-trained in four languages",
        """\
A text tower in Multilingual-CLIP's layout that learned by teacher learning (Carlsson et al. 2022) to give for an
English, German, French or Russian caption what scenes-trained gives for the English one. A share of its training
texts, `class_captions` below, named one of the 64 seen classes by one of the `training_prompts` of these languages;
the 16 held-out classes occurred in none. Images go through `local-dir:shipped/scenes-trained`.""",
        languages=("en", "de", "fr", "ru"),
    ),
}
LICENCE = """MIT, as the package, whose own drawings and captions are the training data. The tokenizer's vocabulary was
  trained in part on names from Unicode's CLDR (Unicode-3.0, licenses/Unicode-3.0.txt)."""
CARD = """# {heading}

`{name}`, wherever a model is named.

{text}

| zero-shot, 80 classes, unseen images | top 1 | n | chance |
|---|---|---|---|
{accuracies}

Of the same images, by the wording of the prompt:

| language | prompt | in the training | seen classes | held-out classes |
|---|---|---|---|---|
{prompts}

- Training: `{command}`, which is `clip-geometry run {config}` with the settings below;
  training.jsonl has the rows of that run, to six digits.
- Weights: {weights}, {size} in float16, sha256 `{sha256}`.
- embeddings.jsonl: embeddings of the first test scenes as these weights gave them; a test compares.
- Made with {versions}.
- Licence: {licence}

```yaml
{resolved}
```
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ASSETS, help="folder of the models")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the training runs")
    parser.add_argument("--only", choices=SHIPPED, help="build one of them; the second needs the first")
    parser.add_argument(
        "changes", nargs="*", metavar="key=value", help="overrides of both configs, as in clip-geometry run"
    )
    arguments = parser.parse_args()
    try:
        for name in [arguments.only] if arguments.only else SHIPPED:
            print(build(name, arguments.out, arguments.runs, parse_overrides(arguments.changes)))
    except cg.InputError as error:
        parser.error(str(error))


def build(name: str, out: Path, runs: Path, changes: Mapping[str, Any], *, smoke: bool = False) -> Path:
    """Trains a model and writes its folder: weights, model card, records of the training, some embeddings."""
    shipped = SHIPPED[name]
    own = {} if name == "scenes-trained" else {"teacher.model": f"local-dir:{place('scenes-trained', out)}"}
    trial = [f"{key}={value}" for key, value in changes.items()]
    command = shlex.join(["python", "scripts/build_shipped_models.py", "--only", name, *trial])
    report = run(ROOT / "configs" / shipped.config, {**changes, **own}, smoke=smoke, runs=runs, command=command)
    run_folder, folder = report.parent, out / name
    (model,) = (run_folder / "models").iterdir()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    if out.resolve() == ASSETS.resolve():  # where models share the tokenizer of scenes-clip
        for path in folder.glob("tokenizer*.json"):
            path.unlink()
    rows = [rounded(dict(row)) for row in Results(run_folder / "results.jsonl").read()]
    write_lines(folder / "training.jsonl", rows)
    write_lines(folder / "embeddings.jsonl", recorded(f"{shipped.family}:{place(name, out)}", shipped.languages))
    prompts = prompt_lines(shipped, f"{shipped.family}:{place(name, out)}", read_yaml(run_folder / "config.yaml"))
    config = (run_folder / "config.yaml").read_text(encoding="utf-8")
    write_atomically(folder / "README.md", card(shipped, folder, rows, prompts, config, command).encode())
    return folder


def place(name: str, out: Path) -> str:
    """Name of the built model; the public name if it goes into the package."""
    return f"shipped/{name}" if out.resolve() == ASSETS.resolve() else str(out / name)


# --- what is recorded beside the weights


def rounded(value: Any) -> Any:
    """Rounds floats to six digits, so that trajectories stay small."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return {key: rounded(each) for key, each in value.items()} if isinstance(value, dict) else value


def recorded(model: str, languages: Sequence[str]) -> list[dict[str, Any]]:
    """Embeddings of the first test scenes and their captions, in float32 on the CPU."""
    encoder = cg.encoders.load_encoder(model, "cpu")
    rows = []
    for language in languages:
        scenes = cg.data.load_dataset("scenes", split="test", size=ITEMS, language=language)
        for side in (each for each in scenes.sides if each.modality in encoder.modalities):
            items: list[Any] = [side.load(k) for k in range(ITEMS)]
            if side.modality == "image":
                vectors = encoder.image_features(torch.stack([encoder.preprocess(item) for item in items]))
            else:
                vectors = encoder.text_features(encoder.tokenize(items))
            at = {"modality": side.modality, "language": language if side.modality == "text" else None}
            rows += [{**at, "item": k, "vector": rounded(vector.tolist())} for k, vector in enumerate(vectors.double())]
    return rows


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(path, text.encode())


# --- the card


def card(shipped: Shipped, folder: Path, rows: Rows, prompts: Sequence[str], config: str, command: str) -> str:
    weights = folder / shipped.weights
    versions = ", ".join(f"{name} {version}" for name, version in rows[-1]["versions"].items())
    return CARD.format(
        heading=shipped.heading,
        text=shipped.text,
        name=f"{shipped.family}:shipped/{folder.name}",
        accuracies="\n".join(accuracies(rows)),
        prompts="\n".join(prompts),
        command=command,
        config=f"configs/{shipped.config}",
        resolved=config.strip(),
        weights=weights.name,
        size=f"{weights.stat().st_size / 1e6:.2f} MB",
        sha256=sha256_of(weights),
        versions=versions,
        licence=LICENCE,
    )


def accuracies(rows: Rows) -> list[str]:
    """Table rows: zero-shot accuracy of the saved model on images that are used nowhere else."""
    lines = []
    for row in rows:
        at = row["at"]
        if row["measure"] == "zero_shot.top_1" and at.get("pictures") == "tested" and at.get("tower") != "teacher":
            of = f"{at['classes']} classes" + (f", {at['language']} prompts" if "language" in at else "")
            error, chance = row["standard_error"], row["null_value"]
            lines.append(f"| {of} | {row['value']:.4f} ± {error:.4f} | {row['n']} | {chance:.4f} |")
    return lines


def prompt_lines(shipped: Shipped, model: str, config: Mapping[str, Any]) -> list[str]:
    """Table rows: zero-shot accuracy with one prompt, of the training or another, on the images of `tested`."""
    tower = cg.encoders.load_encoder(config["teacher"]["model"] if "teacher" in config else model, "cpu")
    encoder = cg.encoders.load_encoder(model, "cpu")
    scenes = {key: config["tested"][key] for key in ("split", "size", "seed")}
    data = cg.data.load_dataset("scenes", **scenes).image
    known = cg.data.load_dataset("scenes", **{k: config["data"][k] for k in ("split", "size", "classes")})
    seen = np.isin(data.labels, np.unique(known.image.labels))
    batches = [range(k, min(k + BATCH, len(data))) for k in range(0, len(data), BATCH)]
    image = torch.cat(
        [tower.image_features(torch.stack([tower.preprocess(data.load(k)) for k in batch])) for batch in batches]
    )
    lines = []
    trained = config["training_prompts"] or config["prompts"]
    for language in shipped.languages:
        own = trained[language] if isinstance(trained, Mapping) else trained
        for prompt in (*own, *OTHERS[language]):
            names = cg.data.load_dataset("scenes", prompt=prompt, language=language).text
            text = encoder.text_features(encoder.tokenize([names.load(k) for k in range(len(names))]))
            top_1 = [
                cg.evaluate.zero_shot(image[torch.from_numpy(part)], data.labels[part], text)["top_1"]
                for part in (seen, ~seen)
            ]
            lines.append(
                f"| {language} | {prompt} | {'yes' if prompt in own else 'no'} | {top_1[0]:.3f} | {top_1[1]:.3f} |"
            )
    return lines


if __name__ == "__main__":
    main()
