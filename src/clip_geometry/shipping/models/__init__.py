"""Models in folders that transformers and sentence-transformers load without this package."""

import re
import shutil
from pathlib import Path
from typing import Any

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.hf.text import TextEncoder
from clip_geometry.encoders.hub import model_path
from clip_geometry.encoders.open_clip.encoder import OpenClipEncoder
from clip_geometry.encoders.open_clip.source import CONFIG_FILE
from clip_geometry.files import new_folder
from clip_geometry.paths import expanded
from clip_geometry.reading import read_json
from clip_geometry.registry import InputError, shown
from clip_geometry.report.words import render
from clip_geometry.shipping.models.layout import Exported
from clip_geometry.versions import library_versions

CARD = Path(__file__).with_name("card.md.j2")
FAMILIES = ("open_clip", "local-dir", "hf-hub", "scenes-clip", "mclip")


def export_model(model: str | Path | Encoder, out: str | Path, *, license: str | None = None) -> Path:
    """Write a model as a folder that transformers and sentence-transformers load.

    A CLIP of open_clip becomes a CLIPModel, or a VisionTextDualEncoderModel where timm has its image tower; a text
    tower of Multilingual-CLIP becomes a transformer with Pooling and Dense. Weights are float32, and rows are compared
    with the source's before anything is kept.

    Args:
        model: A name as for `resolve_encoder`, the folder of a model (such as `runs/…/models/…`), or a loaded encoder.
        out: The new folder.
        license: Of the weights, for the model card, such as "mit".

    Returns:
        The folder: config, weights, tokenizer, image processor, modules.json, and README.md, the model card.

    Raises:
        InputError: `out` has files, transformers has no such architecture, or its rows would differ.

    Example:
        >>> import clip_geometry as cg
        >>> folder = cg.export_model("scenes-clip/fresh", "scenes-hf")
        >>> from transformers import CLIPModel
        >>> CLIPModel.from_pretrained(folder).config.projection_dim
        512
    """
    name = model.config.model if isinstance(model, Encoder) else _named(model)
    if re.split("[:/]", name, maxsplit=1)[0] not in FAMILIES:
        raise InputError(
            f"{name} is no model of open_clip and no text tower of Multilingual-CLIP, which are exported; a folder for "
            "hf-clip:, hf-text: or sentence: is one that transformers or sentence-transformers loads already"
        )
    encoder = model if isinstance(model, Encoder) else load_encoder(resolve_encoder(name), "cpu")
    config = encoder.config
    device, plain = encoder.device, config.precision == "fp32" and config.features == "projected"
    if not plain or config.depends_on_batch or device.type != "cpu":
        raise InputError(
            f"{name} is loaded with precision={config.precision} and features={config.features} on {device}; expected "
            "fp32, projected rows that depend on no batch, and cpu"
        )
    with new_folder(expanded(out)) as folder:
        written = _write(encoder, folder)
        facts = {**encoder.describe(), "size": encoder.pixels and encoder.pixels.size, "fresh": config.is_fresh}
        facts |= {"training": "", "versions": library_versions()}
        source = model_path(config.name)
        run = source.parent.parent
        of_run = source.parent.name == "models" and (run / "results.jsonl").is_file()
        says, copied = (run / "config.yaml", "training.yaml") if of_run else (source / "README.md", "SOURCE.md")
        if source.is_dir() and says.is_file():  # what the source says of its training
            facts["training"] = copied
            shutil.copyfile(says, folder / copied)
        card = render(CARD, name=name, written=written, license=license, **facts)
        (folder / "README.md").write_text(card, encoding="utf-8")
    return expanded(out)


def _write(encoder: Encoder, folder: Path) -> Exported:
    if isinstance(encoder, OpenClipEncoder):
        from clip_geometry.shipping.models.clip import export_clip

        return export_clip(encoder, folder)
    from clip_geometry.shipping.models.text_tower import export_text_tower

    assert isinstance(encoder, TextEncoder)
    return export_text_tower(encoder, folder)


def _named(model: str | Path) -> str:
    """The full name of a model, which a folder tells by its files."""
    folder = expanded(model)
    if not folder.is_dir():
        if isinstance(model, Path):
            raise InputError(f"{shown(model)} is no folder; expected that of a model, or a name such as mclip:PATH")
        return model
    if (folder / CONFIG_FILE).is_file():
        return f"local-dir:{folder}"
    config = folder / "config.json"
    if config.is_file() and read_json(config, "the config of a model", dict[str, Any]).get("model_type") == "M-CLIP":
        return f"mclip:{folder}"
    raise InputError(
        f"{shown(folder)} is no model of open_clip, with {CONFIG_FILE}, and no text tower of Multilingual-CLIP, with a "
        "config.json that says so; others, transformers loads as they are"
    )
