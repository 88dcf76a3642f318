"""Modality inversion: pseudo-tokens of one tower whose feature matches a row of the other (Mistretta et al. 2025)."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from clip_geometry.config import Config
from clip_geometry.encoders.base import Encoder
from clip_geometry.encoders.open_clip import OpenClipEncoder
from clip_geometry.encoders.runtime import inference
from clip_geometry.registry import InputError, shown

PLACE = "the"  # a word that is a single token in tokenizers; its embeddings are replaced
START = 0.02  # standard deviation of the initial pseudo-tokens
# (layer whose output is replaced, input of its tower, width of the pseudo-tokens, function that inserts them)
InsertionPoint: TypeAlias = tuple[Any, Tensor, int, Callable[[Tensor, Tensor], Tensor]]


class Inversion(Config):
    """Settings of `invert`.

    Args:
        pseudo_tokens: Number of pseudo-tokens, at least 1. The paper uses 1, and 4 for images with ViT-L/14.
        steps: Number of AdamW steps, at least 1. The paper uses 150 for texts (OTI) and 1000 for images (OVI).
        lr: Learning rate, > 0.
        weight_decay: Weight decay, ≥ 0.
        template: Prompt with one placeholder {} for the pseudo-words; not used for images.
        batch_size: Number of rows to invert at a time; they do not depend on each other.

    Example:
        >>> Inversion(steps=1000).lr
        0.02
    """

    pseudo_tokens: int = Field(default=1, ge=1)
    steps: int = Field(default=150, ge=1)
    lr: float = Field(default=0.02, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    template: str = Field(default="a photo of {}", pattern=r"^[^{}]*\{\}[^{}]*$")
    batch_size: int = Field(default=64, ge=1)


class Inverted(NamedTuple):
    """Result of `invert`.

    Args:
        rows: Features of the pseudo-tokens in the target modality, (n, d).
        cosines: Cosine of each feature with the row that it was optimized to match, (n,).

    Example:
        >>> Inverted._fields
        ('rows', 'cosines')
    """

    rows: Float[Tensor, "n d"]
    cosines: Float[Tensor, " n"]


def invert(encoder: Encoder, rows: Any, into: Literal["text", "image"], how: Inversion, *, seed: int = 0) -> Inverted:
    """Find the features of one modality that match rows of the other most closely, by optimizing pseudo-tokens.

    Inversion into texts (OTI) optimizes the embeddings of pseudo-words in a prompt. Inversion into images (OVI)
    optimizes pseudo-patches that replace the output of the patch embedding, or of the stem of a convolutional tower;
    each one is repeated for a run of patches. AdamW minimizes 1 − cos with all weights fixed.

    Args:
        encoder: An open_clip model with features=projected.
        rows: Rows of the other modality, (n, d), as the encoder returns them; an array or a tensor.
        into: Target modality, "text" or "image".
        how: Settings; the paper uses one pseudo-token, 150 steps into texts and 1000 into images.
        seed: Seed of the initial pseudo-tokens.

    Returns:
        An `Inverted`, on the CPU.

    Raises:
        InputError: If the encoder is not an open_clip model with features=projected, or if pseudo-tokens cannot be
            inserted into its tower.

    Example:
        >>> import clip_geometry as cg
        >>> encoder = cg.encoders.load_encoder("scenes-clip/fresh", "cpu")
        >>> red = encoder.text_features(encoder.tokenize(["a red circle"]))
        >>> before, after = (invert(encoder, red, "image", Inversion(steps=k)).cosines for k in (1, 20))
        >>> bool(after > before)
        True
    """
    if not isinstance(encoder, OpenClipEncoder) or encoder.config.features != "projected":
        name = encoder.config.model
        raise InputError(f"{name} cannot be inverted; expected a model of open_clip with features=projected")
    model = encoder.model
    rows = torch.as_tensor(rows).float()
    stem, tower_input, width, replaced = (_pseudo_words if into == "text" else _pseudo_patches)(encoder, how)
    encode = model.encode_text if into == "text" else model.encode_image
    generator = torch.Generator().manual_seed(seed)
    initial = START * torch.randn(len(rows), how.pseudo_tokens, width, generator=generator)
    features_by_batch, cosines = [], []
    with inference(), torch.enable_grad():
        for start, targets in zip(initial.split(how.batch_size), rows.split(how.batch_size), strict=True):
            batch = tower_input.expand(len(start), *tower_input.shape[1:])

            def features(tokens: Tensor, batch: Tensor = batch) -> Tensor:
                with _replacing(stem, lambda output: replaced(output, tokens)):
                    return encode(batch, normalize=False).float()

            best = _optimized(features, start.to(encoder.device), targets.to(encoder.device), how).cpu()
            features_by_batch.append(best)
            cosines.append(cosine_similarity(best, targets.cpu()))
    return Inverted(torch.cat(features_by_batch), torch.cat(cosines))


def _optimized(
    features: Callable[[Tensor], Tensor], start: Float[Tensor, "b k c"], targets: Float[Tensor, "b d"], how: Inversion
) -> Float[Tensor, "b d"]:
    """Optimize tokens so that their features have the highest cosine with the targets, and return these features."""
    tokens = start.requires_grad_()
    optimizer = torch.optim.AdamW([tokens], lr=how.lr, weight_decay=how.weight_decay)
    for _ in range(how.steps):
        loss = (1 - cosine_similarity(features(tokens), targets)).sum()
        (tokens.grad,) = torch.autograd.grad(loss, tokens)  # only for the tokens: the weights get no .grad
        optimizer.step()
    with torch.no_grad():
        return features(tokens)


@contextmanager
def _replacing(module: nn.Module, change: Callable[[Any], Tensor | None]):
    """Pass the output of a module to `change` and, unless that returns None, replace the output by its result."""
    handle = module.register_forward_hook(lambda _module, _given, output: change(output))
    try:
        yield
    finally:
        handle.remove()


def _pseudo_words(encoder: OpenClipEncoder, how: Inversion) -> InsertionPoint:
    """Return where pseudo-words enter the text tower: the embedding layer, a prompt, the width, and how to insert."""
    tower = getattr(encoder.model, "text", encoder.model)
    embedding = getattr(tower, "token_embedding", None)
    embedding = tower.transformer.get_input_embeddings() if embedding is None else embedding

    def prompt_of(count: int) -> Tensor:
        return encoder.tokenize([how.template.format(" ".join([PLACE] * count))]).inputs

    two, prompt = prompt_of(2), prompt_of(how.pseudo_tokens)
    repeated = (two[0, :-1] == two[0, 1:]).nonzero()  # where the token of PLACE follows itself
    places = (prompt[0] == two[0, repeated[0]]).nonzero()[:, 0] if len(repeated) else prompt.new_empty(0)
    if len(places) != how.pseudo_tokens:
        raise InputError(
            f"the tokenizer of {encoder.config.model} has no single token for each of {how.pseudo_tokens} pseudo-words "
            f"in {shown(how.template)}; give a template without {PLACE!r}, or fewer pseudo_tokens"
        )

    def replaced(output: Tensor, tokens: Tensor) -> Tensor:
        return output.index_copy(1, places.to(output.device), tokens.to(output.dtype))

    return embedding, prompt.to(encoder.device), embedding.weight.shape[1], replaced


def _pseudo_patches(encoder: OpenClipEncoder, how: Inversion) -> InsertionPoint:
    """Return where pseudo-patches enter the image tower: the stem, an image, the width, and how to insert."""
    visual = encoder.model.visual
    trunk = getattr(visual, "trunk", None)
    # a ModifiedResNet pools after the three convolutions of its stem
    axes = {"avgpool": 1, "conv1": 1} if trunk is None else {"patch_embed": -1, "stem": 1}
    stems = [(getattr(visual if trunk is None else trunk, name, None), axis) for name, axis in axes.items()]
    stem, axis = next(((module, axis) for module, axis in stems if isinstance(module, nn.Module)), (None, 0))
    if stem is None:
        raise InputError(
            f"the image tower of {encoder.config.model} has neither a patch embedding nor a stem for pseudo-patches"
        )
    size = visual.image_size
    side = (size, size) if isinstance(size, int) else tuple(size)
    weight = next(visual.parameters())
    pixels = torch.zeros(1, 3, *side, dtype=weight.dtype, device=weight.device)
    outputs: list[Tensor] = []
    with torch.no_grad(), _replacing(stem, outputs.append):  # append returns None, which replaces nothing
        encoder.model.encode_image(pixels)

    def replaced(output: Tensor, tokens: Tensor) -> Tensor:
        # repeat each token for a run of patches, in the shape of the output: (b, c, h, w), (b, patches, c), …
        patches = output.shape[1:].numel() // output.shape[axis]
        runs = torch.arange(patches, device=output.device) * tokens.shape[1] // patches
        repeated = tokens[:, runs].to(output.dtype)
        return (repeated if axis == -1 else repeated.transpose(1, 2)).reshape(output.shape)

    return stem, pixels, outputs[0].shape[axis], replaced
