"""A transformer of transformers with a head on it: the first layers of a checkpoint, or a fresh small one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from clip_geometry.config import Config, digest
from clip_geometry.encoders import encoder_revision, resolve_encoder, sentence
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf import text as hf_text
from clip_geometry.encoders.hf.loading import HFConfig, build, load_model, load_tokenizer, read_settings
from clip_geometry.encoders.text_encoder import POOLINGS
from clip_geometry.registry import InputError

TINY = "bert/fresh"
# how the config of a transformer calls the dropout before its own head, and those that hold where it says nothing
OF_CLASSES = ("classifier_dropout_prob", "classifier_dropout", "seq_classif_dropout")
OF_SPANS = ("qa_dropout",)
OF_LAYERS = ("hidden_dropout_prob", "dropout")


class TransformerConfig(Config):
    """model: hf-text:ORG/NAME or PATH; sentence:NAME or PATH, whose transformer is taken; the bare name of a model
    that comes as a wheel, all-MiniLM-L6-v2; or bert/fresh, a fresh BERT of `width` columns, two heads and two layers
    that knows the words of the training sentences.

    layers: the first so many, null: all. pooling: the row of a sentence, its first token [CLS] or the mean over its
    tokens. fresh: initialise an hf-text: model instead of loading its weights. seed: of fresh weights.
    """

    model: str
    layers: int | None = Field(default=None, ge=1)
    pooling: Literal["cls", "mean"] = "cls"
    fresh: bool = False
    seed: int = Field(default=0, ge=0, lt=2**63)
    width: int = Field(default=32, ge=2, multiple_of=2)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.model != TINY:
            if "width" in self.model_fields_set and self.width != 32:
                raise InputError(f"width is that of {TINY}; {self.model} has its own")
            self.encoder()
        return self

    @property
    def is_fresh(self) -> bool:
        return self.fresh or self.model == TINY

    def encoder(self) -> EncoderConfig:
        """The config by which its files are found. Raises InputError for other families of encoders."""
        name = self.model.removeprefix("hf-text:")
        if name in sentence.WHEELS and not Path(name).is_dir():
            name = f"sentence:{name}"
        else:
            name = self.model
        if not name.startswith(("hf-text:", "sentence:")):
            raise InputError(
                f"model {self.model!r} cannot be fine-tuned here; expected hf-text:ORG/NAME or PATH, sentence:NAME or "
                f"PATH, {', '.join(sentence.WHEELS)} or {TINY}"
            )
        if name.startswith("sentence:") and (self.fresh or self.seed):
            raise InputError("fresh and seed are for hf-text: models; sentence: models have weights")
        options = {"fresh": True, "seed": self.seed} if self.fresh else {"seed": self.seed} if self.seed else {}
        return resolve_encoder(name, **options)

    def revision(self) -> str:
        """Identifies its weights and its tokenizer; of bert/fresh the versions that its first weights depend on."""
        if self.model == TINY:
            return digest({"torch": torch.__version__, "kind": TINY})
        return encoder_revision(self.encoder())

    def options(self) -> dict[str, Any]:
        """What is not the default, for the `model_options` of rows."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"model"})


def _settings(folder: Path, layers: int | None, name: str) -> Any:
    """Those of the folder's config, with the first so many layers only."""
    settings = read_settings(folder, name)
    if layers is not None:
        if layers > settings.num_hidden_layers:
            raise InputError(f"{name} has {settings.num_hidden_layers} layers, but layers = {layers}")
        settings.num_hidden_layers = layers
    return settings


def load_transformer(config: TransformerConfig, texts: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """(the transformer, its tokenizer). texts: whose words bert/fresh is to know."""
    if config.model == TINY:
        from clip_geometry.experiments.rudman2024.finetune.tiny import tiny_bert

        return tiny_bert(texts, width=config.width, layers=config.layers or 2, seed=config.seed)
    from transformers import AutoModel

    encoder = config.encoder()
    if isinstance(encoder, HFConfig):
        root, weights = hf_text.find(encoder)  # pyright: ignore[reportArgumentType]
    else:
        folder, modules, files = sentence.find(encoder)
        root, weights = folder / modules[0].path, files[0]
    settings = _settings(root, config.layers, config.model)
    if isinstance(encoder, HFConfig):
        model, _ = build(AutoModel, root, weights, encoder, settings)
    else:
        model = load_model(AutoModel, root, config.model, settings)
    return model, load_tokenizer(root)


class Output(NamedTuple):
    """hidden: of each layer, (b, t, d), the embeddings below them not among them. sentences: (b, d), as they go into
    the head or would. scores: (b, k), or (b, t, 2) of spans.
    """

    hidden: tuple[Tensor, ...]
    sentences: Tensor
    scores: Tensor


def head_dropout(settings: Any, *, spans: bool) -> float:
    """That of the family's own head, which ALBERT and DistilBERT have apart; else that of the layers; else .1."""
    rates = (getattr(settings, name, None) for name in (*(OF_SPANS if spans else OF_CLASSES), *OF_LAYERS))
    return next((rate for rate in rates if rate is not None), 0.1)


class FineTuned(nn.Module):
    """A linear head, after dropout, on the row of a sentence or (spans) on every token. weights, shift: rows go through
    rows @ weights + shift before the head, once they are set."""

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
        """From now on rows go through this affine map before the head."""
        device = self.head.weight.device
        self.weights, self.shift = weights.float().to(device), shift.float().to(device)

    def rows(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """The row of each sentence before it is post-processed."""
        return self.pool(hidden, mask).float()

    def processed(self, rows: Tensor) -> Tensor:
        if self.weights is None or self.shift is None:
            return rows
        with torch.autocast(rows.device.type, enabled=False):
            return rows @ self.weights + self.shift

    def forward(self, inputs: Mapping[str, Tensor]) -> Output:
        hidden = self.transformer(**inputs, output_hidden_states=True).hidden_states[1:]
        sentences = self.processed(self.rows(hidden[-1], inputs["attention_mask"]))
        rows = self.processed(hidden[-1].float()) if self.spans else sentences
        return Output(tuple(hidden), sentences, self.head(self.dropout(rows)))
