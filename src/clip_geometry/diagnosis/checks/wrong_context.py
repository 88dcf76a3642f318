"""Texts that were cut or padded in another way than in training, as the manifest tells."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.checks.wrong_activation import OPENAI, trained_with
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

CLIP_CONTEXT = 77


@add_check(
    "wrong_context",
    "texts cut or padded in another way than in training",
    threshold="The manifest of OpenAI's weights has another context length than 77, or that of a SigLIP model says "
    "that texts were padded to the longest of the batch: it was trained with full padding and reads the padding.",
)
def wrong_context(context: Context) -> Iterator[Finding]:
    for modality, each in context.sets.items():
        facts = each.provenance.get("encoder")
        if modality == "image" and len(context.sets) > 1:
            continue
        if not isinstance(facts, dict):
            context.skip("wrong_context", "no manifest of the encoder", modality)
            continue
        model = str(each.provenance.get("model") or "")
        length, padding = facts.get("context_length"), str(facts.get("padding") or "")
        openai = (trained_with(model, facts) or (False, ""))[1] if "/fresh" not in model else ""
        if "siglip" in model.casefold() and padding in ("longest", "True", "do_not_pad"):
            yield finding("wrong_context", "error", modality, model=model, padding=padding, length=length)
        elif "OpenAI" in openai and isinstance(length, int) and length != CLIP_CONTEXT and OPENAI:
            yield finding("wrong_context", "error", modality, model=model, padding="", length=length)
