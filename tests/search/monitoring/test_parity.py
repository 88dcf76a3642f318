"""`parity` names planted differences between a served model and its reference, and explains nothing by chance."""

import numpy as np
import pytest
import torch

import clip_geometry as cg
from clip_geometry.progress import quiet
from clip_geometry.search.monitoring.parity import EQUAL, _chosen
from support.minilm import minilm

SHIPPED = "mclip:shipped/scenes-multilingual"
CLIP = "local-dir:shipped/scenes-trained"
SHAPES = ["a red circle", "two blue squares", "a small green triangle on the left of a large yellow star", "nothing"]
TEXTS = [*SHAPES, *(f"{one} above {other}" for one in SHAPES for other in SHAPES), " and ".join(SHAPES * 4)]
REAL = [
    "A man plays a guitar in front of an audience.",
    "Two dogs run over a wet meadow.",
    "The stock market fell sharply, and nobody knows why.",
    "Please send the invoice to the address below.",
    "An old lighthouse stands on the rocks; waves break below it, gulls circle above it, and in the evening its lamp "
    "still turns, although no ship has needed it for twenty years and the keeper has long since moved to the town.",
]


def served(encoder, texts=TEXTS, *, pooling="mean", limit=None, padding="longest", masked=True):
    """The rows of a text model by a few lines of torch, as another program computes them in one batch."""
    options = {"padding": padding, "truncation": True, "max_length": limit or encoder.context_length}
    tokens = encoder.tokenizer(texts, return_tensors="pt", **options)
    mask = tokens["attention_mask"] if masked else torch.ones_like(tokens["attention_mask"])
    with torch.no_grad():
        hidden = encoder.transformer(input_ids=tokens["input_ids"], attention_mask=mask).last_hidden_state
        weights = mask[..., None].float()
        rows = {
            "mean": lambda: (hidden * weights).sum(1) / weights.sum(1),
            "cls": lambda: hidden[:, 0],
            "max": lambda: torch.where(weights > 0, hidden, -torch.inf).amax(1),
            "all": lambda: hidden.mean(1),
        }[pooling]()
        return encoder.head(rows).numpy()


@pytest.fixture(scope="module")
def encoder():
    return cg.encoders.load_encoder(SHIPPED, "cpu")


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def found(reference, rows, inputs):
    return cg.search.parity(reference, rows, inputs, device="cpu")


def test_equal_rows_are_the_same_whatever_their_batches(encoder):
    result = found(SHIPPED, served(encoder), TEXTS)
    assert result.kind == "same" and result.setting == "" and result.verdict.startswith("Same")
    assert found(SHIPPED, SHIPPED, TEXTS).kind == "same"


PLANTED = {
    "pooling=cls": lambda e: served(e, pooling="cls"),
    "pooling=max": lambda e: served(e, pooling="max"),
    "truncation=16": lambda e: served(e, limit=16),
    "normalization=unit length": lambda e: unit(served(e)),
    "normalization=other lengths": lambda e: 20 * served(e),
    "precision=rows in float16": lambda e: served(e).astype(np.float16),
    'prompt="query: {}"': lambda e: served(e, [f"query: {text}" for text in TEXTS]),
    "pooling=cls, normalization=unit length": lambda e: unit(served(e, pooling="cls")),
    "pooling=cls, truncation=16": lambda e: served(e, pooling="cls", limit=16),
    'truncation=16, prompt="a photo of {}"': lambda e: served(e, [f"a photo of {t}" for t in TEXTS], limit=16),
}


@pytest.mark.parametrize("setting", PLANTED)
def test_planted_differences_are_found(encoder, setting):
    result = found(SHIPPED, PLANTED[setting](encoder), TEXTS)
    assert (result.kind, result.setting) == ("explained", setting)
    assert f"with {setting}" in result.verdict and setting in str(result)
    best = result.frame.iloc[0]
    assert best.setting == setting and best.cosine > 1 - 1e-6 and best.difference <= EQUAL
    assert result.frame.difference[result.frame.setting == ""].item() > EQUAL


PADDED = {
    "padding=to longest, in pooling": {"pooling": "all"},
    "padding=to max_length, in pooling": {"pooling": "all", "padding": "max_length"},
    "padding=to longest, in pooling and attention": {"masked": False},
    "padding=to max_length, in pooling and attention": {"masked": False, "padding": "max_length"},
}


@pytest.mark.parametrize("setting", PADDED)
def test_padding_that_enters_the_rows_is_found(encoder, setting):
    texts = TEXTS[:-1]  # none of which fills the context
    assert found(SHIPPED, served(encoder, texts, **PADDED[setting]), texts).setting == setting


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_the_precision_of_a_served_model_is_found(precision):
    config = cg.encoders.resolve_encoder(SHIPPED, precision=precision)
    assert found(SHIPPED, config, TEXTS).setting == f"precision={precision}"


@pytest.mark.parametrize("options", [{"features": "pooled"}, {"precision": "bf16"}])
def test_images_and_a_clip_have_fewer_settings(options):
    scenes = cg.data.load_dataset("scenes", size=20)
    assert scenes.image is not None
    images = [scenes.image.load(k) for k in range(20)]
    ((name, value),) = options.items()
    expected = {"features": f"pooling=features {value}", "precision": f"precision={value}"}[name]
    result = found(CLIP, cg.encoders.resolve_encoder(CLIP, **options), images)
    assert (result.kind, result.setting) == ("explained", expected)


def test_a_truncated_clip_is_found():
    encoder = cg.encoders.load_encoder(CLIP, "cpu")
    ids = encoder.tokenizer(TEXTS, context_length=16)
    padding = encoder.tokenizer.tokenizer.pad_token_id
    full = torch.full((len(TEXTS), encoder.context_length), padding)
    full[:, :16] = ids
    rows = encoder.text_features(cg.encoders.Tokens(full, 0))
    assert found(CLIP, rows, TEXTS).setting == "truncation=16"


@pytest.mark.parametrize("other", [CLIP, f"{CLIP}, fresh", f"{SHIPPED}, noise"])
def test_another_model_is_not_explained(encoder, other):
    """CLIP is the teacher of the shipped text encoder, whose rows it nearly gives."""
    model, _, change = other.partition(", ")
    if change == "noise":
        rows = served(encoder)
        rows = rows + 0.1 * rows.std() * np.random.default_rng(0).normal(size=rows.shape)
    else:
        config = cg.encoders.resolve_encoder(model, **({"fresh": True} if change else {}))
        rows = cg.embed(config, {"text": TEXTS}, device="cpu", progress=quiet)["text"]
    result = found(SHIPPED, rows, TEXTS)
    assert (result.kind, result.setting) == ("unexplained", "")
    assert result.verdict.startswith("No tried setting explains the difference; the closest is ")


def test_another_number_of_columns_is_not_explained(encoder):
    result = found(SHIPPED, served(encoder)[:, :100], TEXTS)
    assert result.kind == "unexplained" and np.isinf(result.frame.difference).all()


def test_a_small_unexplained_difference_is_called_rounding(encoder):
    rows = served(encoder)
    rows = rows * (1 + 1e-3 * np.random.default_rng(0).normal(size=rows.shape))
    result = found(SHIPPED, rows, TEXTS)
    assert result.kind == "unexplained" and "as after rounding" in result.verdict


def test_half_of_the_sample_are_the_longest_texts(encoder):
    texts = [f"{k} a red circle" for k in range(150)]
    texts[77] = " and ".join(SHAPES * 4)
    numbers = _chosen(texts)
    assert len(numbers) == len(set(numbers)) == 50 and 77 in numbers
    assert found(SHIPPED, served(encoder, texts, limit=16), texts).setting == "truncation=16"


@pytest.mark.parametrize(
    "setting", ["pooling=cls", "truncation=32", "normalization=other lengths", 'prompt="query: {}"']
)
def test_planted_differences_of_minilm_are_found(setting):
    sentence_transformers = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    folder = minilm()
    if setting in ("pooling=cls", "normalization=other lengths"):
        pooling = "cls" if setting == "pooling=cls" else "mean"
        config = cg.encoders.resolve_encoder(f"hf-text:{folder}", pooling=pooling)
        rows = cg.embed(config, {"text": REAL}, device="cpu", progress=quiet)["text"].vectors
        rows = unit(rows) if setting == "pooling=cls" else rows
    else:
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        model.max_seq_length = 32 if setting == "truncation=32" else 256
        texts = [f"query: {text}" for text in REAL] if setting.startswith("prompt") else REAL
        rows = model.encode(texts, show_progress_bar=False)
    result = found(f"sentence:{folder}", rows, REAL)
    assert result.kind == "explained" and setting in result.verdict


@pytest.mark.parametrize(
    ("reference", "rows", "inputs", "expected"),
    [
        (SHIPPED, np.ones((2, 256)), SHAPES, "2 served rows for 4 inputs"),
        (SHIPPED, np.ones((4, 256)), [], "expected a list of texts or images"),
        (SHIPPED, np.ones((4, 256)), {"text": SHAPES}, "expected a list of texts or images"),
        (SHIPPED, np.ones((4, 256)), "a text", "expected a list of texts or images"),
        (SHIPPED, np.full((4, 256), np.nan), SHAPES, "served"),
        (None, np.ones((4, 256)), SHAPES, "reference"),
        ("no model", np.ones((4, 256)), SHAPES, "family|FAMILY"),
    ],
)
def test_wrong_arguments_are_one_sentence(reference, rows, inputs, expected):
    with pytest.raises(cg.InputError, match=expected):
        cg.search.parity(reference, rows, inputs)
