"""Rows of two models, or two revisions of one, in one index."""

from collections.abc import Iterator

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding
from clip_geometry.diagnosis.spaces import LEAST
from clip_geometry.embeddings import Embeddings


@add_check
def mixed_models(context: Context) -> Iterator[Finding]:
    for modality in context.sets:
        found = context.foreign(modality)
        if found is None:
            if len(context.sample(modality)) < 4 * LEAST:
                context.skip("mixed_models", f"fewer than {4 * LEAST} rows", modality)
            continue
        sample, rows = context.sample(modality), context.foreign_numbers(modality)
        span = int(rows[-1] - rows[0] + 1)
        block = len(sample[(sample >= rows[0]) & (sample <= rows[-1])]) < 1.1 * len(rows)
        yield finding(
            "mixed_models",
            "error",
            modality,
            kind="geometry",
            count=len(rows),
            n=len(sample),
            sampled=len(sample) < context.valid(modality).sum(),
            block=block,
            first=int(rows[0]),
            last=int(rows[-1]),
            span=span,
            overlap=found.overlap.value,
            mean_cosine=found.mean_cosine,
            rows=rows.tolist(),
        )
    for one, other in context.couples:
        differing = _differing(context.sets[one], context.sets[other])
        matching = context.matching(one, other)
        if differing and matching is not None:
            share = float((matching.corrected > 0.5).mean() * 2)
            severity = "error" if share > 0.5 else "note"
            yield finding("mixed_models", severity, one, other, kind="manifest", differing=differing, at_chance=share)


def _differing(one: Embeddings, other: Embeddings) -> dict[str, list[str]]:
    """What two manifests say otherwise of their models: field → both values."""
    fields: dict[str, list[str]] = {}
    for name in ("model", "features", "precision", "seed"):
        both = [each.provenance.get(name) for each in (one, other)]
        if None not in both and both[0] != both[1]:
            fields[name] = list(map(str, both))
    weights = [_facts(each).get("weights") for each in (one, other)]
    if None not in weights and weights[0] != weights[1]:
        fields["weights"] = [str(each.get("sha256", each)) if isinstance(each, dict) else str(each) for each in weights]
    image_model = [_facts(each).get("image_model") for each in (one, other)]
    if any(image_model):  # a text tower that was trained to meet another model's images
        fields = {name: both for name, both in fields.items() if name not in ("model", "weights")}
    return fields


def _facts(each: Embeddings) -> dict:
    facts = each.provenance.get("encoder")
    return facts if isinstance(facts, dict) else {}
