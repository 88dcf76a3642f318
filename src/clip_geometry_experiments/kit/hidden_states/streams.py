"""Where the stream between the blocks of CLIP's towers is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from clip_geometry.registry import InputError


@dataclass(frozen=True, eq=False)
class Stream:
    """What enters or leaves a module."""

    module: Any
    is_input: bool = False

    def hook(self, keep: Callable[[Tensor], None]) -> Any:
        """Calls `keep` with the stream in every forward pass, until the returned handle is removed."""
        if self.is_input:
            return self.module.register_forward_pre_hook(lambda _, given: keep(given[0]))
        return self.module.register_forward_hook(lambda _, __, out: keep(out))


def streams_of(model: Any, modality: str, name: str) -> list[Stream]:
    """The stream before the first block and after each, of a tower of open_clip's CLIP.

    Raises InputError for a tower of another kind.
    """
    visual, text = model.visual, getattr(model, "text", model)
    if modality == "image" and hasattr(visual, "attnpool"):
        raise InputError("its image tower is a ResNet, which has no patches of one width")
    if modality == "image" and getattr(visual, "attn_pool", 1) is None and visual.pool_type in ("tok", "avg"):
        return _after(Stream(visual.ln_pre), visual.transformer.resblocks)
    blocks = getattr(getattr(text, "transformer", None), "resblocks", None)
    if modality == "image" or blocks is None:
        raise InputError(
            f"the {modality} tower of {name} cannot be followed layer by layer; known are the transformers of open_clip"
        )
    return _after(Stream(blocks[0], is_input=True), blocks)


def _after(start: Stream, blocks: Sequence[Any]) -> list[Stream]:
    return [start, *map(Stream, blocks)]
