"""Which setting of an encoder explains the difference between its rows and served rows."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch

from clip_geometry.data.given import given_dataset, is_sequence
from clip_geometry.embedding.loop import embed
from clip_geometry.embeddings import Embeddings
from clip_geometry.encoders import load_encoder
from clip_geometry.encoders.base import Encoder, EncoderConfig, Tokens
from clip_geometry.encoders.hf import tokenize
from clip_geometry.encoders.hf.text import POOLINGS, TextEncoder
from clip_geometry.encoders.open_clip import OpenClipEncoder
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError, instance, listed, shown
from clip_geometry.rows.matrix import as_rows
from clip_geometry.search.monitoring.known import EDITED

if TYPE_CHECKING:
    from clip_geometry.display.table import Table

INPUTS = 50
BATCH = 8  # texts of similar length, with little padding
EQUAL = 3e-5  # relative difference that another batch size or library explains
FACTOR = 3  # by which each change has to reduce the difference
CLOSEST = 5  # number of single changes that are combined with all others
SHOWN = 8  # lines of the table
LIMITS = (16, 32, 48, 64, 77, 96, 100, 128, 192, 200, 256, 384, 512)  # in tokens
PROMPTS = (
    *("query: {}", "passage: {}", "search_query: {}", "search_document: {}", "clustering: {}", "classification: {}"),
    *("Represent this sentence for searching relevant passages: {}", "a photo of a {}", "a photo of a {}."),
    *("a photo of {}", "This is a photo of a {}", "This is a photo of a {}."),
)
Change = Callable[[Any], Encoder]
Setting = tuple[str, ...]  # names of changes, each KIND=VALUE


class Parity:
    """Result of `parity`: the setting of a reference encoder that gives the served rows.

    Attributes:
        kind: "same", "explained" or "unexplained".
        setting: The changes that explain the difference, such as "pooling=cls"; "" if there is no difference or no
            explanation.
        frame: The tried settings, best first, with the columns setting ("" for that of the reference), cosine (median
            over the inputs) and difference (largest over the inputs, relative to the length of the reference's row). A
            setting that the reference does not support, or that gives another number of columns, has NaN and inf.
        verdict: The answer in one sentence.
    """

    def __init__(self, measured: Mapping[Setting, tuple[float, float]], rounding: Mapping[str, float]):
        scores = {setting: max(measured[setting][1], EQUAL) * FACTOR ** len(setting) for setting in measured}
        order = sorted(scores, key=lambda setting: scores[setting])
        lines = [(", ".join(setting), *measured[setting]) for setting in order]
        self.frame = pd.DataFrame(lines, columns=["setting", "cosine", "difference"])
        best, cosine, difference = lines[0]
        own = measured[()][1]
        self.kind: Literal["same", "explained", "unexplained"] = "unexplained"
        self.setting = best if difference <= EDITED else ""
        # two programs round differently in 16 bits, by about as much as they differ from float32
        sizes = {name: size for name, size in rounding.items() if size / 2 <= own <= size * 2}
        precision = min(sizes, key=lambda name: measured[(name,)][1], default="")
        if own <= EQUAL:
            self.kind, self.verdict = "same", "Same: the served rows equal those of the reference."
        elif self.setting:
            others = [", ".join(setting) for setting in order[1:] if scores[setting] == scores[order[0]]]
            also = f" (or with {listed(others, 3)})" if others else ""
            about = f", up to rounding ({difference:.1g})" if difference > EQUAL else ""
            self.kind, self.verdict = "explained", f"The served rows equal the reference with {best}{also}{about}."
        elif precision and measured[(precision,)][1] < own:
            self.kind, self.setting = "explained", precision
            self.verdict = f"The served rows differ from the reference as by the rounding of {precision} ({own:.1g})."
        else:
            small = f", and rows differ by {own:.1g} at most, as after rounding" if own <= EDITED else ""
            closest = f"{best or 'that of the reference'} (median cosine {cosine:.3f})"
            self.verdict = f"No tried setting explains the difference; the closest is {closest}{small}."

    def table(self) -> "Table":
        """Return the best settings as a table, with the verdict."""
        from clip_geometry.display.table import Table, TableColumn

        lines = [[name or "as the reference", f"{c:.4f}", f"{d:.2g}"] for name, c, d in self.frame.to_numpy()[:SHOWN]]
        columns = [TableColumn("setting"), TableColumn("median cosine", "number"), TableColumn("difference", "number")]
        return Table(columns, {"": lines}, verdict=[self.verdict])

    def __str__(self) -> str:
        return str(self.table())


def _with(encoder: Any, **attributes: Any) -> Encoder:
    variant = copy(encoder)
    vars(variant).update(attributes)
    return variant


def _reloaded(encoder: Encoder, **options: Any) -> Encoder:
    return load_encoder(encoder.config.model_copy(update=options), str(encoder.device))


def _truncated(encoder: Any, limit: int) -> Encoder:
    if not isinstance(encoder, OpenClipEncoder):
        return _with(encoder, context_length=limit)

    def tokens(texts: Sequence[str]) -> Tokens:
        ids = encoder.tokenizer(list(texts), context_length=limit)
        padding = getattr(getattr(encoder.tokenizer, "tokenizer", None), "pad_token_id", 0)
        return Tokens(torch.nn.functional.pad(ids, (0, encoder.context_length - limit), value=padding), 0)

    return _with(encoder, tokenize=tokens)


def _padded(encoder: Any, padding: Literal["longest", "max_length"], *, attended: bool) -> Encoder:
    """Return a text encoder whose pooling includes padding, and also its attention if `attended`."""

    def tokens(texts: Sequence[str]) -> Tokens:
        prepared = [encoder.prepare(text) for text in texts]
        padded = tokenize(encoder.tokenizer, prepared, encoder.context_length, padding=padding)
        if attended:
            padded.inputs["attention_mask"].fill_(1)
        return padded

    return _with(encoder, tokenize=tokens, pool=lambda hidden, mask: encoder.pool(hidden, torch.ones_like(mask)))


def _prompted(encoder: Encoder, prompt: str) -> Encoder:
    return _with(encoder, tokenize=lambda texts: encoder.tokenize([prompt.format(text) for text in texts]))


def _changes(encoder: Encoder, modality: str) -> dict[str, Change]:
    """Return the changes that are tried, by name, in the order in which they are applied."""
    changes: dict[str, Change] = {f"precision={value}": partial(_reloaded, precision=value) for value in PRECISIONS}
    changes |= {f"pooling=features {value}": partial(_reloaded, features=value) for value in ("projected", "pooled")}
    if isinstance(encoder, TextEncoder):
        poolings = {**POOLINGS, "max": _max, "last token": _last}
        changes |= {f"pooling={name}": partial(_with, pool=pooling) for name, pooling in poolings.items()}
        changes["prompt=none"] = partial(_with, prepare=str)
    if modality == "text":
        changes |= {f"truncation={limit}": partial(_truncated, limit=limit) for limit in LIMITS}
    if isinstance(encoder, TextEncoder):
        for padding in ("longest", "max_length"):
            for where, attended in (("pooling", False), ("pooling and attention", True)):
                name = f"padding=to {padding}, in {where}"
                changes[name] = partial(_padded, padding=padding, attended=attended)
    if modality == "text":
        changes |= {f'prompt="{prompt}"': partial(_prompted, prompt=prompt) for prompt in PROMPTS}
    return changes


def _max(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return hidden.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)


def _last(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return POOLINGS["cls"](hidden.flip(1), mask.flip(1))


def _lengths(rows: np.ndarray) -> np.ndarray:
    return np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


PRECISIONS = ("fp32", "bf16", "fp16")
# changes of rows, given with the served ones
OF_ROWS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "normalization=unit length": lambda rows, served: rows / _lengths(rows),
    "normalization=other lengths": lambda rows, served: rows / _lengths(rows) * _lengths(served),
    "precision=rows in float16": lambda rows, served: rows.astype(np.float16).astype(np.float32),
}


def _compared(rows: np.ndarray, served: np.ndarray) -> tuple[float, float]:
    """Return the median cosine of the rows and their largest relative difference."""
    if rows.shape != served.shape or not np.isfinite(rows).all():
        return float("nan"), float("inf")
    cosines = (rows / _lengths(rows) * (served / _lengths(served))).sum(1)
    return float(np.median(cosines)), float((np.linalg.norm(served - rows, axis=1) / _lengths(rows)[:, 0]).max())


def _embedded(encoder: Encoder, modality: str, items: Sequence[Any], size: int) -> np.ndarray:
    """Embed the items in batches of this size, sorted by the length of the texts."""
    order = sorted(range(len(items)), key=lambda k: len(items[k]) if modality == "text" else 0)
    parts = []
    for start in range(0, len(order), size):
        batch = [items[k] for k in order[start : start + size]]
        if modality == "text":
            parts.append(encoder.text_features(encoder.tokenize(batch)))
        else:
            parts.append(encoder.image_features(torch.stack([encoder.preprocess(image) for image in batch])))
    return torch.cat(parts).numpy()[np.argsort(order)]


def _chosen(items: Sequence[Any]) -> list[int]:
    """Return the numbers of up to 50 inputs: half of them the longest texts, which truncation changes."""
    longest: list[int] = []
    if len(items) > INPUTS and isinstance(items[0], str):
        longest = sorted(range(len(items)), key=lambda k: -len(items[k]))[: INPUTS // 2]
    rest = np.setdiff1d(np.arange(len(items)), longest)
    even = np.linspace(0, len(rest) - 1, min(len(rest), INPUTS - len(longest))).astype(int)
    return sorted([*longest, *rest[even].tolist()])


def parity(reference: str | EncoderConfig, served: Any, inputs: Sequence[Any], *, device: str = "auto") -> Parity:
    """Find which setting of a reference encoder gives the rows of a served model.

    Up to 50 inputs are embedded by the reference with its own settings and with each of about 40 changes of pooling,
    padding, truncation, normalization, precision and prompt. If no change explains the served rows, pairs are tried. A
    change has to divide the largest difference by 3, and it explains the rows if they then differ by at most 3% of
    their length, as after rounding to 16 bits. Images are embedded with other features, precisions and lengths only.

    Args:
        reference: The encoder as it should be: a name, or a config from `resolve_encoder`.
        served: The rows that the served model returned, one per input, (n, d); or the served model, as for `embed`.
        inputs: The texts, a list of str; or the images, a list of PIL images or of `Path`. Of more than 50, a sample is
            used, half of it the longest texts. Padding that depends on the batch is recognized if all inputs were one
            batch, and there are at most 50.
        device: "auto" (a GPU if there is one), "cpu", "cuda", …

    Returns:
        A `Parity` with the tried settings, best first.

    Raises:
        InputError: The reference does not exist or does not embed the inputs, or rows and inputs do not match.

    Example:
        >>> import clip_geometry as cg
        >>> from clip_geometry.progress import quiet
        >>> model = "mclip:shipped/scenes-multilingual"
        >>> texts = ["a red circle", "two blue squares on a green triangle", "a small circle"]
        >>> sent = {"text": [f"query: {text}" for text in texts]}
        >>> served = cg.embed(model, sent, device="cpu", progress=quiet)["text"]
        >>> print(cg.search.parity(model, served, texts, device="cpu").verdict)
        The served rows equal the reference with prompt="query: {}".
    """
    encoder = load_encoder(instance(reference, str | EncoderConfig, "reference", "a model's name or config"), device)
    if isinstance(inputs, Mapping) or not is_sequence(inputs) or not len(inputs):
        raise InputError(f"inputs are {shown(inputs)}; expected a list of texts or images")
    modality = "text" if isinstance(inputs[0], str) else "image"
    encoder.require(modality)
    side = given_dataset({modality: list(inputs)}, keyed=False).sides[0]
    numbers = _chosen(inputs)
    items = [side.load(number) for number in numbers]
    if isinstance(served, Embeddings | list) or hasattr(served, "shape"):
        rows: Any = served.vectors if isinstance(served, Embeddings) else served
        rows = as_rows(np.asarray(rows) if isinstance(served, Embeddings) else rows, name="served", least=1)
        if len(rows) != len(inputs):
            raise InputError(f"there are {len(rows)} served rows for {len(inputs)} inputs; expected one per input")
        rows = rows[numbers].detach().float().cpu().numpy()
    else:
        rows = embed(served, {modality: items}, batch_size=INPUTS, progress=quiet)[modality].vectors
    own = _embedded(encoder, modality, items, BATCH)
    measured: dict[Setting, tuple[float, float]] = {}
    rounding: dict[str, float] = {}  # precision → how much it changes the rows of the reference
    changes = _changes(encoder, modality)

    def run(setting: Setting) -> None:
        variant = encoder
        size = INPUTS if any(name.startswith("padding") for name in setting) else BATCH
        try:
            for name in setting:
                variant = changes[name](variant)
            tried = _embedded(variant, modality, items, size) if setting else own
        except (InputError, RuntimeError):
            measured[setting] = float("nan"), float("inf")
            return
        effect = _compared(tried, own)[1]
        if setting and effect <= EQUAL / 10:
            return  # without an effect on these inputs
        if len(setting) == 1 and setting[0].startswith("precision"):
            rounding[setting[0]] = effect
        measured[setting] = _compared(tried, rows)
        if tried.shape == rows.shape:
            for name, change in OF_ROWS.items():
                measured[(*setting, name)] = _compared(change(tried, rows), rows)

    run(())
    if measured[()][1] <= EQUAL:
        return Parity(measured, rounding)
    for name in changes:
        run((name,))
    if Parity(measured, rounding).kind == "unexplained":
        singles = [name for name in changes if measured.get((name,), (np.nan,))[0] == measured.get((name,), (0,))[0]]
        closest = sorted(singles, key=lambda name: -measured[(name,)][0])[:CLOSEST]
        for one, other in combinations(singles, 2):
            if one.partition("=")[0] != other.partition("=")[0] and (one in closest or other in closest):
                run((one, other))
    return Parity(measured, rounding)
