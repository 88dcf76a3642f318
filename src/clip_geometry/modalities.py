"""Names of modalities: their validation and their plural in a sentence."""

import re
from typing import Any

from clip_geometry.registry import InputError, shown

# names that pipelines, records and tables use for several sets at once
RESERVED = ("all", "any", "both", "each", "pooled")
_NAME = re.compile(r"[^\W\d](?:[\w .]|-(?!to-))*", re.ASCII)


def modality_name(name: Any, what: str = "modality") -> str:
    """Return a name that is valid in pipelines and records; raise InputError for any other name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip():
        raise InputError(
            f"{what} {shown(name)} is not a modality name; expected letters, then also digits, spaces, _ . -"
        )
    if name in RESERVED:
        raise InputError(f"{what} {shown(name)} is not a modality name: [{name}] stands for several; choose another")
    return name


def plural(name: str) -> str:
    """Return the plural for several rows of a modality: "images", "texts", "audio rows"."""
    return f"{name}s" if name in ("image", "text", "caption", "sound", "point cloud") else f"{name} rows"
