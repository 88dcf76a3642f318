"""Models that were built, or texts that were prepared, in another way than in training."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import catalog
from clip_geometry.search.checks import Findings, add_check, finding
from clip_geometry.search.checks.context import Context

CLIP_CONTEXT = 77  # tokens of a text, start and end included, where no manifest says otherwise
SOME = 0.01  # of the texts
OPENAI: dict[str, str] = catalog.read_yaml(Path(__file__).with_name("openai.yaml"))  # SHA-256 → model


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


@add_check
def truncated_captions(context: Context) -> Findings:
    for modality, each in context.sets.items():
        facts = each.provenance.get("encoder")
        length = facts.get("context_length") if isinstance(facts, dict) else None
        counted = each.provenance.get("truncated")
        texts = each.metadata.get("text")
        if counted is None and texts is None and modality != "image":
            context.skip("truncated_captions", "neither texts nor a manifest that counts tokens", modality)
        most = (length if isinstance(length, int) else CLIP_CONTEXT) - 2  # without start and end
        too_long = [] if texts is None else [k for k, text in enumerate(texts) if len(str(text).split()) > most]
        count = max(counted if isinstance(counted, int) else 0, len(too_long))
        if count:
            n = int(np.clip(each.provenance.get("n") or len(each), count, None))
            values = {"count": count, "n": n, "counted": bool(counted), "known": isinstance(length, int)}
            severity = "warning" if count > SOME * n else "note"
            yield finding("truncated_captions", severity, modality, **values, length=most + 2, rows=too_long)
