"""Models that were built, or texts that were prepared, in another way than in training."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from clip_geometry.search.checks import Findings, add_check, finding
from clip_geometry.search.checks.context import Context

CLIP_CONTEXT = 77  # tokens of a text, start and end included
# SHA-256 of the checkpoints that OpenAI published, from their addresses; all were trained with QuickGELU
OPENAI = {
    "afeb0e10f9e5a86da6080e35cf09123aca3b358a0c3e3b6c78a7b63bc04b6762": "RN50",
    "8fa8567bab74a42d41c5915025a8e4538c3bdbe8804a470a72f30b0d94fab599": "RN101",
    "7e526bd135e493cef0776de27d5f42653e6b4c8bf9e0f653bb11773263205fdd": "RN50x4",
    "52378b407f34354e150460fe41077663dd5b39c54cd0bfd2b27167a4a06ec9aa": "RN50x16",
    "be1cfb55d75a9666199fb2206c106743da0f6468c9d327f3e0d0a543a9919d9c": "RN50x64",
    "40d365715913c9da98579312b702a82c18be219cc2a73407c4526f58eba950af": "ViT-B/32",
    "5806e77cd80f8b59890b7e101eabd078d9fb84e6937f9e85e4ecb61988df416f": "ViT-B/16",
    "b8cca3fd41ae0c99ba7e8951adf17d267cdb84cd88be6f7c2e0eca1737a03836": "ViT-L/14",
    "3035c92b350959924f9f00213499208652fc7ea050643e8b385c2dac08641f02": "ViT-L/14@336px",
}


@add_check
def wrong_activation(context: Context) -> Findings:
    found: dict[tuple[str, str, str], list[str]] = {}
    for modality, each in context.sets.items():
        facts = each.provenance.get("encoder") or {}
        model, activation = str(each.provenance.get("model") or ""), str(facts.get("activation") or "")
        if not activation:
            context.skip("wrong_activation", "no manifest that names an activation", modality)
        if not activation or "/fresh" in model:
            continue
        expected = _trained_with(model, facts)
        if expected is not None and _is_quick(activation) != expected[0]:
            found.setdefault((model, activation, expected[1]), []).append(modality)
    for (model, activation, reason), modalities in found.items():
        quick = not _is_quick(activation)
        values = {"model": model, "activation": activation, "reason": reason, "quick": quick}
        yield finding("wrong_activation", "error", *modalities, **values)


@add_check
def wrong_context(context: Context) -> Findings:
    for modality, each in context.sets.items():
        facts = each.provenance.get("encoder")
        if modality == "image" and len(context.sets) > 1:
            continue
        if not isinstance(facts, dict):
            context.skip("wrong_context", "no manifest of the encoder", modality)
            continue
        model = str(each.provenance.get("model") or "")
        length, padding = facts.get("context_length"), str(facts.get("padding") or "")
        openai = (_trained_with(model, facts) or (False, ""))[1] if "/fresh" not in model else ""
        if "siglip" in model.casefold() and padding in ("longest", "True", "do_not_pad"):
            yield finding("wrong_context", "error", modality, model=model, padding=padding, length=length)
        elif "OpenAI" in openai and isinstance(length, int) and length != CLIP_CONTEXT:
            yield finding("wrong_context", "error", modality, model=model, padding="", length=length)


def _is_quick(activation: str) -> bool:
    return "quickgelu" in activation.casefold().replace("_", "")


def _trained_with(model: str, facts: Mapping[str, Any]) -> tuple[bool, str] | None:
    """Whether the weights were trained with QuickGELU, and how one knows; None where nothing tells."""
    weights = facts.get("weights")
    checksum = str(weights.get("sha256")) if isinstance(weights, Mapping) else ""
    if checksum in OPENAI:
        return True, f"their checksum is that of OpenAI's {OPENAI[checksum]}"
    family, _, rest = model.partition(":")
    if family == "hf-clip":
        return (True, "OpenAI's repositories have it") if re.match(r"openai/clip-vit", rest) else None
    if family == "open_clip" and "@" not in rest:
        name, _, tag = rest.rpartition("/")
        if tag == "openai":
            return True, "OpenAI's weights have it"
        from open_clip import get_pretrained_cfg

        settings = get_pretrained_cfg(name, tag)
        return (bool(settings.get("quick_gelu", False)), "open_clip's table says so") if settings else None
    if family == "open_clip" and "-quickgelu@" in rest:
        return True, "the architecture's name says so"
    return None


CONTEXT = 77  # tokens, start and end included: CLIP's, where no manifest says otherwise
SOME = 0.01


@add_check
def truncated_captions(context: Context) -> Findings:
    for modality, each in context.sets.items():
        facts = each.provenance.get("encoder")
        length = facts.get("context_length") if isinstance(facts, dict) else None
        counted = each.provenance.get("truncated")
        texts = each.metadata.get("text")
        if counted is None and texts is None and modality != "image":
            context.skip("truncated_captions", "neither texts nor a manifest that counts tokens", modality)
        most = (length if isinstance(length, int) else CONTEXT) - 2  # without start and end
        too_long = [] if texts is None else [k for k, text in enumerate(texts) if len(str(text).split()) > most]
        count = max(counted if isinstance(counted, int) else 0, len(too_long))
        if count:
            n = int(np.clip(each.provenance.get("n") or len(each), count, None))
            values = {"count": count, "n": n, "counted": bool(counted), "known": isinstance(length, int)}
            severity = "warning" if count > SOME * n else "note"
            yield finding("truncated_captions", severity, modality, **values, length=most + 2, rows=too_long)
