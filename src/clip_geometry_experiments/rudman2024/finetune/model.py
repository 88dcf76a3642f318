"""The transformer with a head on it: the first layers of a checkpoint, or a small fresh BERT."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from clip_geometry.config import Config, digest
from clip_geometry.encoders import encoder_revision, resolve_encoder, sentence
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf import HFConfig, build, load_model, load_tokenizer, read_settings
from clip_geometry.encoders.hf import text as hf_text
from clip_geometry.encoders.hf.text import POOLINGS
from clip_geometry.registry import InputError

TINY = "bert/fresh"
# names of the dropout before a transformer's own head, and of its layers' dropout, which holds if the first is missing
OF_CLASSES = ("classifier_dropout_prob", "classifier_dropout", "seq_classif_dropout")
OF_SPANS = ("qa_dropout",)
OF_LAYERS = ("hidden_dropout_prob", "dropout")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
POSITIONS = 128


class TransformerConfig(Config):
    """A transformer and how it is used.

    Args:
        model: hf-text:ORG/NAME or PATH; sentence:NAME or PATH, for its transformer; the bare name of a model that is
            installed as a wheel, all-MiniLM-L6-v2; or bert/fresh, a fresh BERT with two heads that knows the words of
            the training sentences.
        layers: use only the first N layers, null for all (bert/fresh: two).
        pooling: the row of a sentence: its first token [CLS], or the mean over its tokens.
    """

    model: str
    layers: int | None = Field(default=None, ge=1)
    pooling: Literal["cls", "mean"] = "cls"

    @model_validator(mode="after")
    def _known(self) -> Self:
        if not self.is_fresh:
            self.encoder()
        return self

    @property
    def is_fresh(self) -> bool:
        return self.model == TINY

    def encoder(self) -> EncoderConfig:
        """The config by which its files are found. Raises InputError for other families of encoders."""
        name, bare = self.model, self.model.removeprefix("hf-text:")
        if bare in sentence.WHEELS and not Path(bare).is_dir():
            name = f"sentence:{bare}"
        if not name.startswith(("hf-text:", "sentence:")):
            raise InputError(
                f"model {self.model!r} cannot be fine-tuned here; expected hf-text:ORG/NAME or PATH, sentence:NAME or "
                f"PATH, {', '.join(sentence.WHEELS)} or {TINY}"
            )
        return resolve_encoder(name)

    def revision(self) -> str:
        """Identifies weights and tokenizer; for bert/fresh the versions that its first weights depend on."""
        if self.is_fresh:
            return digest({"torch": torch.__version__, "kind": TINY})
        return encoder_revision(self.encoder())

    def options(self) -> dict[str, Any]:
        """Settings that are not the default, for the `model_options` of records."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"model"})


def load_transformer(config: TransformerConfig, texts: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """(the transformer, its tokenizer). texts: bert/fresh knows their words."""
    if config.is_fresh:
        return tiny_bert(texts, layers=config.layers or 2)
    from transformers import AutoModel

    encoder = config.encoder()
    if isinstance(encoder, HFConfig):
        root, weights = hf_text.find(encoder)  # pyright: ignore[reportArgumentType]
    else:
        folder, modules, files = sentence.find(encoder)
        root, weights = folder / modules[0].path, files[0]
    settings = read_settings(root, config.model)
    if config.layers is not None:
        if config.layers > settings.num_hidden_layers:
            raise InputError(f"{config.model} has {settings.num_hidden_layers} layers, but layers = {config.layers}")
        settings.num_hidden_layers = config.layers
    if isinstance(encoder, HFConfig):
        model, _ = build(AutoModel, root, weights, encoder, settings)
    else:
        model = load_model(AutoModel, root, config.model, settings)
    return model, load_tokenizer(root)


def tiny_bert(texts: Iterable[Sequence[str]], *, width: int = 32, layers: int, seed: int = 0) -> tuple[Any, Any]:
    """(a BERT of two heads and `width` columns, its tokenizer, which knows the words of the texts)."""
    from transformers import BertConfig, BertModel

    tokenizer = word_tokenizer(text for group in texts for text in group)
    settings = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return BertModel(settings, add_pooling_layer=False), tokenizer


def word_tokenizer(texts: Iterable[str]) -> Any:
    """A BERT tokenizer of lower-cased words and signs of punctuation, in the order of their first appearance."""
    from transformers import BertTokenizer

    splitter: Any = BertTokenizer().backend_tokenizer
    words = dict.fromkeys(SPECIAL)
    for text in texts:
        normalized = splitter.normalizer.normalize_str(text)
        words |= dict.fromkeys(word for word, _ in splitter.pre_tokenizer.pre_tokenize_str(normalized))
    vocabulary = {word: number for number, word in enumerate(words)}
    unused: Any = None
    return BertTokenizer(vocab=vocabulary, mask_token=unused, model_max_length=POSITIONS)


class Output(NamedTuple):
    """What `FineTuned` returns.

    Args:
        hidden: (b, t, d) for each layer, without the embeddings below them.
        sentences: (b, d), as they go into the head or would.
        scores: (b, k), or (b, t, 2) for spans.
    """

    hidden: tuple[Tensor, ...]
    sentences: Tensor
    scores: Tensor


def head_dropout(settings: Any, *, spans: bool) -> float:
    """Dropout of the family's own head, which ALBERT and DistilBERT set apart; else of the layers; else 0.1."""
    rates = (getattr(settings, name, None) for name in (*(OF_SPANS if spans else OF_CLASSES), *OF_LAYERS))
    return next((rate for rate in rates if rate is not None), 0.1)


class FineTuned(nn.Module):
    """A transformer with a linear head, after dropout, on the row of a sentence or (spans) on every token. Once
    `post_process` has set weights and shift, rows go through rows @ weights + shift before the head."""

    head: nn.Linear
    weights: Tensor | None
    shift: Tensor | None

    def __init__(self, transformer: Any, *, outputs: int, spans: bool, pooling: str, seed: int):
        super().__init__()
        settings = transformer.config
        self.transformer, self.spans, self.pool = transformer, spans, POOLINGS[pooling]
        self.dropout = nn.Dropout(head_dropout(settings, spans=spans))
        self.head = nn.utils.skip_init(nn.Linear, settings.hidden_size, outputs)  # pyright: ignore
        generator = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
        with torch.no_grad():
            self.head.weight.normal_(0, 0.02, generator=generator)
            self.head.bias.zero_()
        self.register_buffer("weights", None)
        self.register_buffer("shift", None)

    def post_process(self, weights: Float[Tensor, "d d"], shift: Float[Tensor, " d"]) -> None:
        """Puts an affine map before the head."""
        device = self.head.weight.device
        self.weights, self.shift = weights.float().to(device), shift.float().to(device)

    def processed(self, rows: Tensor) -> Tensor:
        if self.weights is None or self.shift is None:
            return rows
        with torch.autocast(rows.device.type, enabled=False):
            return rows @ self.weights + self.shift

    def forward(self, inputs: Mapping[str, Tensor]) -> Output:
        hidden = self.transformer(**inputs, output_hidden_states=True).hidden_states[1:]
        sentences = self.processed(self.pool(hidden[-1], inputs["attention_mask"]).float())
        rows = self.processed(hidden[-1].float()) if self.spans else sentences
        return Output(tuple(hidden), sentences, self.head(self.dropout(rows)))
