"""The checks that a model's config in open_clip's format passes before open_clip sees it.

Sizes are limited, and keyword arguments that open_clip passes on to other libraries are whitelisted: `tokenizer_kwargs`
reach AutoTokenizer.from_pretrained, where trust_remote_code would run the folder's own modules. All other keys are left
to open_clip, which refuses unknown ones.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

Size = Annotated[int, Field(ge=1, le=2**20)]
Layers = Annotated[int, Field(ge=0, le=1000)]


def _sides(value: Any) -> Any:
    sides = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not all(side is None or (isinstance(side, int) and 1 <= side <= 2**14) for side in sides):
        raise ValueError("sides of 1 to 16384 pixels were expected")
    return value


Sides = Annotated[Any, AfterValidator(_sides)]  # of an image: one number, a list, or a dictionary
# per channel, in pixels from 0 to 1; open_clip divides by the standard deviations
Mean = Annotated[list[Annotated[FiniteFloat, Field(ge=-1000, le=1000)]], Field(min_length=3, max_length=3)]
StandardDeviation = Annotated[list[Annotated[FiniteFloat, Field(ge=1e-6, le=1e6)]], Field(min_length=3, max_length=3)]


class _Listed(BaseModel):
    """A whitelist of keyword arguments."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Tokenizer(_Listed):
    clean: Literal["canonicalize", "lower", "whitespace"] = "whitespace"
    strip_sep_token: bool = False
    language: str | None = None


class _Activation(_Listed):
    approximate: Literal["none", "tanh"] = "none"


class _Normalization(_Listed):
    eps: Annotated[FiniteFloat, Field(gt=0)] = 1e-5


class _Tower(BaseModel):
    width: Size = 1
    layers: Layers | list[Layers] = 1
    act_kwargs: _Activation | None = None
    norm_kwargs: _Normalization | None = None


class _Vision(_Tower):
    image_size: Sides = 1
    # a name only: timm would also take hf-hub:ORG/NAME and local-dir:PATH, and read keyword arguments there
    timm_model_name: Annotated[str, Field(pattern=r"^[\w.]*$")] | None = None


class _Text(_Tower):
    context_length: Annotated[int, Field(ge=1, le=2**17)] = 1
    vocab_size: Size = 1
    hf_model_name: str | None = None
    hf_tokenizer_name: str | None = None
    tokenizer_mode: Literal["clips"] | None = None
    tokenizer_kwargs: _Tokenizer | None = None


class Architecture(BaseModel):
    """model_cfg."""

    embed_dim: Size
    vision_cfg: _Vision
    text_cfg: _Text
    multimodal_cfg: _Tower | None = None


class _Preprocessing(BaseModel):
    """preprocess_cfg."""

    size: Sides = None
    mean: Mean | None = None
    std: StandardDeviation | None = None
    interpolation: Literal["bicubic", "bilinear", "random"] | None = None
    resize_mode: Literal["shortest", "longest", "squash"] | None = None
    fill_color: Annotated[int, Field(ge=0, le=255)] | None = None


class OpenClipFile(BaseModel):
    """open_clip_config.json."""

    model_config = ConfigDict(protected_namespaces=())

    model_cfg: Architecture
    preprocess_cfg: _Preprocessing | None = None
