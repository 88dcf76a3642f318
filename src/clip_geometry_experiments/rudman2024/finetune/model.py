"""The config of the fine-tuning experiment, and its model: a checkpoint or a small fresh BERT, with a head."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, model_validator
from torch import Tensor, nn

from clip_geometry.config import Config, digest
from clip_geometry.encoders import encoder_revision, resolve_encoder, sentence
from clip_geometry.encoders.base import EncoderConfig
from clip_geometry.encoders.hf import HFConfig, build, load_model, load_tokenizer, read_settings
from clip_geometry.encoders.hf import text as hf_text
from clip_geometry.encoders.hf.text import POOLINGS
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import RunConfig, Seeds
from clip_geometry_experiments.tasks import TaskConfig, resolve_task

TINY = "bert/fresh"
# names of the dropout before a transformer's own head, and of the dropout of its layers, used if the former is missing
OF_CLASSES = ("classifier_dropout_prob", "classifier_dropout", "seq_classif_dropout")
OF_SPANS = ("qa_dropout",)
OF_LAYERS = ("hidden_dropout_prob", "dropout")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
POSITIONS = 128


class TransformerConfig(Config):
    """Config of a transformer and how it is used.

    Args:
        model: hf-text:ORG/NAME or PATH; sentence:NAME or PATH, to use its transformer; all-MiniLM-L6-v2, the bare name
            of a model that is installed as a wheel; or bert/fresh, a freshly initialized BERT with two attention heads
            whose vocabulary is the words of the training sentences.
        layers: Use only the first N layers; null uses all (bert/fresh: two).
        pooling: Sentence embedding: "cls" for the first token, [CLS], or "mean" for the mean over the tokens.
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
        """Return the encoder config that locates the files. Raises InputError for other families of encoders."""
        name = self.model
        bare = name.removeprefix("hf-text:")
        if bare in sentence.WHEELS and not Path(bare).is_dir():
            name = f"sentence:{bare}"
        if not name.startswith(("hf-text:", "sentence:")):
            raise InputError(
                f"model {self.model!r} cannot be fine-tuned here; expected hf-text:ORG/NAME or PATH, sentence:NAME or "
                f"PATH, {', '.join(sentence.WHEELS)} or {TINY}"
            )
        return resolve_encoder(name)

    def revision(self) -> str:
        """Identify weights and tokenizer; for bert/fresh, the versions that its initial weights depend on."""
        if self.is_fresh:
            return digest({"torch": torch.__version__, "kind": TINY})
        return encoder_revision(self.encoder())

    def options(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, for the `model_options` of records."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"model"})


def load_transformer(config: TransformerConfig, texts: Sequence[Sequence[str]]) -> tuple[Any, Any]:
    """Return the transformer and its tokenizer; the vocabulary of bert/fresh is the words of `texts`."""
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
            raise InputError(
                f"{config.model} has only {settings.num_hidden_layers} layers, but layers = {config.layers}"
            )
        settings.num_hidden_layers = config.layers
    if isinstance(encoder, HFConfig):
        model, _ = build(AutoModel, root, weights, encoder, settings)
    else:
        model = load_model(AutoModel, root, config.model, settings)
    return model, load_tokenizer(root)


def tiny_bert(texts: Iterable[Sequence[str]], *, width: int = 32, layers: int, seed: int = 0) -> tuple[Any, Any]:
    """Return a BERT with two attention heads and `width` columns, and a tokenizer that knows the words of the texts."""
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
    """Return a BERT tokenizer of lower-case words and punctuation marks, in the order of first appearance."""
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
    """Output of `FineTuned`.

    Args:
        hidden: Hidden states of each layer, (b, t, d), without the embeddings below them.
        sentences: Sentence embeddings, (b, d), as the head receives them (for spans, as it would receive them).
        scores: Outputs of the head, (b, k), or (b, t, 2) for spans.
    """

    hidden: tuple[Tensor, ...]
    sentences: Tensor
    scores: Tensor


def head_dropout(settings: Any, *, spans: bool) -> float:
    """Return the dropout of the family's own head, if set (ALBERT, DistilBERT), else of the layers, else 0.1."""
    rates = (getattr(settings, name, None) for name in (*(OF_SPANS if spans else OF_CLASSES), *OF_LAYERS))
    return next((rate for rate in rates if rate is not None), 0.1)


class FineTuned(nn.Module):
    """A transformer with dropout and a linear head on the sentence embedding or, for spans, on every token.

    Once `post_process` has set weights and shift, rows are mapped to rows @ weights + shift before the head.
    """

    head: nn.Linear
    weights: Tensor | None
    shift: Tensor | None

    def __init__(self, transformer: Any, *, outputs: int, spans: bool, pooling: str, seed: int):
        super().__init__()
        settings = transformer.config
        self.transformer = transformer
        self.spans = spans
        self.pool = POOLINGS[pooling]
        self.dropout = nn.Dropout(head_dropout(settings, spans=spans))
        self.head = nn.utils.skip_init(nn.Linear, settings.hidden_size, outputs)  # pyright: ignore
        generator = torch.Generator().manual_seed(seed)  # on the CPU, so the weights are the same on every device
        with torch.no_grad():
            self.head.weight.normal_(0, 0.02, generator=generator)
            self.head.bias.zero_()
        self.register_buffer("weights", None)
        self.register_buffer("shift", None)

    def post_process(self, weights: Float[Tensor, "d d"], shift: Float[Tensor, " d"]) -> None:
        """Apply an affine map to the rows before the head."""
        device = self.head.weight.device
        self.weights = weights.float().to(device)
        self.shift = shift.float().to(device)

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


# --- the config

NONE, I_STAR, COSREG, TOP = "none", "i_star", "cosreg", "all_but_the_top"
FORMS = f"{I_STAR}(λ), {COSREG}(λ), {TOP}(k), {NONE}"
AnyTask = Annotated[SerializeAsAny[TaskConfig], BeforeValidator(resolve_task)]
Transformer = Annotated[
    TransformerConfig, BeforeValidator(lambda value: {"model": value} if isinstance(value, str) else value)
]


@dataclass(frozen=True)
class Method:
    """A method, written in a config as none, i_star(-1), cosreg(1) or all_but_the_top(3).

    Args:
        name: "none", "i_star", "cosreg" or "all_but_the_top".
        value: λ of the penalty; for all_but_the_top, the number of components removed; for none, 0.
    """

    name: str
    value: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name == NONE else f"{self.name}({self.value:g})"

    def at(self) -> dict[str, object]:
        """Return the method for the `at` of records."""
        if self.name == TOP:
            return {"method": self.name, "components": int(self.value)}
        return {"method": self.name, "lambda": self.value}


def parse_method(text: str) -> Method:
    """Parse a method written as `name(value)`.

    With λ = 0 a penalty adds nothing, so i_star(0) and cosreg(0) become none. Raises InputError for any text that is
    not in FORMS.
    """
    pattern = rf"{NONE}|({I_STAR}|{COSREG})\((-?[\d.]+)\)|({TOP})\(([1-9]\d*)\)"
    match = re.fullmatch(pattern, text.strip())
    if match is None:
        raise InputError(f"unknown method {text!r}; expected one of {FORMS}")
    value = float(match[2] or match[4] or 0)
    return Method(match[1] or match[3], value) if value else Method(NONE)


MethodText = Annotated[str, AfterValidator(lambda text: str(parse_method(text)))]


class FinetuneOptimizerConfig(Config):
    """Config of the optimizer and the penalty.

    Args:
        epochs: Passes over the training examples, at least 1.
        batch_size: Windows per step, at least 1.
        lr: Learning rate of AdamW, > 0.
        warmup: Share of the steps in which the rate rises from 0, in [0, 1); afterwards it falls to 0.
        weight_decay: Weight decay of matrices; biases and the weights of layer norms do not decay.
        clip: Maximum gradient norm, > 0; null does not clip.
        zeta: Shrinkage of IsoScore*, in [0, 1].
        refresh_sample: Number of training tokens from which C_0 of IsoScore* is recomputed before every epoch.
        precision: Precision of the forward pass, "fp32" or "bf16"; parameters and penalties are float32.
    """

    epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=2e-5, gt=0)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)
    zeta: float = Field(default=0.2, ge=0, le=1)
    refresh_sample: int = Field(default=10_000, ge=2)
    precision: Literal["fp32", "bf16"] = "fp32"


class FinetuneConfig(RunConfig, FinetuneOptimizerConfig):
    """Config of the experiment `finetune`.

    Args:
        model: A transformer and its settings: a name, or a section of `TransformerConfig`.
        task: The task to fine-tune on.
        held_out: Share of the examples of `task` to validate on, in [0, 1); no sentence occurs in both sets. 0 uses the
            entire split "validation" of `task`, regardless of the limit of `task`.
        methods: Methods to compare: none, i_star(λ), cosreg(λ), all_but_the_top(k). The last is fitted on all training
            examples or, for spans, on about 20,000 of their tokens.
        seeds: Seeds of the head, the batches and the dropout; `seed` is the seed of the samples and the held-out split.
        max_length: Maximum number of tokens per input (default 128); longer inputs are truncated. For questions with
            passages, the number of tokens per window (default 384).
        overlap: Number of tokens that consecutive windows share.
    """

    model: Transformer
    task: AnyTask
    held_out: float = Field(default=0.0, ge=0, lt=1)
    methods: tuple[MethodText, ...] = Field(default=(NONE, "i_star(-1)", "i_star(1)"), min_length=1)
    seeds: Seeds = (0, 1, 2, 3, 4)
    max_length: int | None = Field(default=None, ge=8)
    overlap: int = Field(default=64, ge=0)

    @model_validator(mode="after")
    def _something_to_validate_on(self) -> Self:
        if not self.held_out:
            self.validation_task()
        return self

    @property
    def each_method(self) -> tuple[Method, ...]:
        return tuple(map(parse_method, self.methods))

    def validation_task(self) -> TaskConfig:
        """Return the split "validation" of the task. Raises InputError if the task has no other split."""
        task = self.task
        path = getattr(task, "path", None)
        if "validation" not in task.SPLITS or task.split == "validation" or (path is not None and path.is_file()):
            raise InputError(
                f"the task {task.name} has only one set of examples here; set held_out to the share of examples to "
                "validate on"
            )
        # a limit keeps trainings short; on the validation split it would only make the numbers less certain
        values: Mapping[str, Any] = task.model_dump(mode="json", serialize_as_any=True, exclude={"limit"})
        return resolve_task({**values, "split": "validation"})
