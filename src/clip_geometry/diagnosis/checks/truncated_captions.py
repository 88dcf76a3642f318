"""Texts with more tokens than the model reads."""

from collections.abc import Iterator

import numpy as np

from clip_geometry.diagnosis.checks import add_check
from clip_geometry.diagnosis.context import Context
from clip_geometry.diagnosis.finding import Finding, finding

CONTEXT = 77  # tokens, start and end included: CLIP's, where no manifest says otherwise
SOME = 0.01


@add_check
def truncated_captions(context: Context) -> Iterator[Finding]:
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
            yield finding(
                "truncated_captions",
                "warning" if count > SOME * n else "note",
                modality,
                count=count,
                n=n,
                counted=bool(counted),
                length=most + 2,
                known=isinstance(length, int),
                rows=too_long,
            )
