"""Checks of the model behind the rows: several models in one index, a wrong activation, truncated captions."""

from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry import catalog
from clip_geometry.embeddings import Embeddings
from clip_geometry.search.checks import Context, Findings, add_check, finding
from clip_geometry.search.checks.modalities import LEAST_OF_GROUP, foreign, foreign_numbers
from clip_geometry.search.checks.pairs import matching

CLIP_CONTEXT = 77  # tokens per text, including start and end, unless a manifest says otherwise
SOME = 0.01  # share of the texts
OPENAI: dict[str, str] = catalog.read_yaml(Path(__file__).with_name("openai.yaml"))  # SHA-256 → model


@add_check
def mixed_models(context: Context) -> Findings:
    for modality in context.sets:
        sample = context.sample(modality)
        minority = foreign(context, modality)
        if minority is None:
            if len(sample) < 4 * LEAST_OF_GROUP:
                context.skip("mixed_models", f"fewer than {4 * LEAST_OF_GROUP} rows", modality)
            continue
        rows = foreign_numbers(context, modality)
        first, last = int(rows[0]), int(rows[-1])
        block = len(sample[(sample >= first) & (sample <= last)]) < 1.1 * len(rows)
        values = {"count": len(rows), "n": len(sample), "sampled": len(sample) < context.valid(modality).sum()}
        values |= {"block": block, "first": first, "last": last, "span": last - first + 1}
        values |= {"overlap": minority.overlap.value, "mean_cosine": minority.mean_cosine, "rows": rows.tolist()}
        yield finding("mixed_models", "error", modality, kind="geometry", **values)
    for one, other in context.couples:
        differing = _differing(context.sets[one], context.sets[other])
        matched = matching(context, one, other)
        if differing and matched is not None:
            share = float((matched.corrected > 0.5).mean() * 2)
            severity = "error" if share > 0.5 else "note"
            yield finding("mixed_models", severity, one, other, kind="manifest", differing=differing, at_chance=share)


def _differing(one: Embeddings, other: Embeddings) -> dict[str, list[str]]:
    """Compare what two manifests say about their models: differing field → both values."""
    manifests = [{**each.provenance, "weights": _facts(each).get("weights")} for each in (one, other)]
    names = ["model", "features", "precision", "seed", "weights"]
    if any(_facts(each).get("image_model") for each in (one, other)):  # a text tower for another model's images
        names = names[1:-1]
    fields: dict[str, list[str]] = {}
    for name in names:
        values = [manifest.get(name) for manifest in manifests]
        if None not in values and values[0] != values[1]:
            fields[name] = [str(each.get("sha256", each) if isinstance(each, dict) else each) for each in values]
    return fields


def _facts(embeddings: Embeddings) -> dict[str, Any]:
    """Return what the manifest says about the encoder."""
    facts = embeddings.provenance.get("encoder")
    return facts if isinstance(facts, dict) else {}


@add_check
def wrong_activation(context: Context) -> Findings:
    mismatches: dict[tuple[str, str, str], list[str]] = {}
    for modality, embeddings in context.sets.items():
        activation = str(_facts(embeddings).get("activation") or "")
        if not activation:
            context.skip("wrong_activation", "no manifest that names the activation", modality)
            continue
        quick, reason = _trained_with(embeddings)
        if reason and _is_quick(activation) != quick:
            mismatches.setdefault((str(embeddings.provenance.get("model")), activation, reason), []).append(modality)
    for (model, activation, reason), modalities in mismatches.items():
        values = {"model": model, "activation": activation, "reason": reason, "quick": not _is_quick(activation)}
        yield finding("wrong_activation", "error", *modalities, **values)


def _is_quick(activation: str) -> bool:
    return "quickgelu" in activation.casefold().replace("_", "")


def _trained_with(embeddings: Embeddings) -> tuple[bool, str]:
    """Return whether the weights were trained with QuickGELU and the evidence for the answer; "" if there is none."""
    model = str(embeddings.provenance.get("model") or "")
    weights = _facts(embeddings).get("weights")
    checksum = str(weights.get("sha256")) if isinstance(weights, dict) else ""
    family, _, rest = model.partition(":")
    name, _, tag = rest.rpartition("/")
    if "/fresh" in model:
        return False, ""
    if checksum in OPENAI:
        return True, f"their checksum is that of OpenAI's {OPENAI[checksum]}"
    if family == "hf-clip" and rest.startswith("openai/clip-vit"):
        return True, "OpenAI's models were trained with it"
    if family == "open_clip" and "-quickgelu@" in rest:
        return True, "the architecture's name says so"
    if family != "open_clip" or "@" in rest:
        return False, ""
    from open_clip import get_pretrained_cfg

    settings = get_pretrained_cfg(name, tag)
    return bool((settings or {}).get("quick_gelu")), "open_clip's table says so" if settings else ""


@add_check
def truncated_captions(context: Context) -> Findings:
    for modality, embeddings in context.sets.items():
        length = _facts(embeddings).get("context_length")
        counted = embeddings.provenance.get("truncated")
        texts = embeddings.metadata.get("text")
        if counted is None and texts is None and modality != "image":
            context.skip("truncated_captions", "neither texts nor a manifest that counts truncated texts", modality)
        limit = (length if isinstance(length, int) else CLIP_CONTEXT) - 2  # without start and end
        too_long = [] if texts is None else [k for k, text in enumerate(texts) if len(str(text).split()) > limit]
        count = max(counted if isinstance(counted, int) else 0, len(too_long))
        if count:
            n = int(np.clip(embeddings.provenance.get("n") or len(embeddings), count, None))
            values = {"count": count, "n": n, "counted": bool(counted), "known": isinstance(length, int)}
            severity = "warning" if count > SOME * n else "note"
            yield finding("truncated_captions", severity, modality, **values, length=limit + 2, rows=too_long)
