"""Saved maps and repairs that were changed: with a checksum that no longer holds, or with one that does."""

import json

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clip_geometry.transforms.map_file import checksum


def rewritten(path, change):
    """The file with its tensors and metadata changed, the checksum left as it was."""
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors, metadata)
    save_file(tensors, path, metadata)


def with_facts(_change=lambda facts, tensors: None, **changes):
    """Facts and tensors that somebody else wrote, whose checksum holds."""

    def change(tensors, metadata):
        ((key, text),) = metadata.items()
        facts = {**json.loads(text), **changes}
        del facts["checksum"]
        _change(facts, tensors)
        metadata[key] = json.dumps({**facts, "checksum": checksum(facts, tensors)})

    return change
