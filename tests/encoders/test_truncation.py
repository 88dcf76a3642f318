"""Truncated texts are counted exactly: at the boundary, with either kind of tokenizer."""

import open_clip
import pytest

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.truncation import count_truncated

LENGTHS = [0, 1, 12, 13, 14, 15, 16, 40]  # words; two more tokens for start and end, context length 16
TEXTS = [" ".join(["cat"] * length) for length in LENGTHS]


@pytest.mark.parametrize("family", ["simple", "huggingface"])
def test_the_count_is_that_of_uncut_token_lists(family, model_folder):
    name, options = ("open_clip:tiny-vit/fresh", {})
    if family == "huggingface":
        name, options = f"local-dir:{model_folder}", {"fresh": True}
    encoder = load_encoder(resolve_encoder(name, **options), device="cpu")
    tokens = encoder.tokenize(TEXTS)
    assert tokens.truncated == sum(length + 2 > 16 for length in LENGTHS) == 3
    assert tokens.inputs.shape == (len(TEXTS), 16)
    assert [encoder.tokenize([text]).truncated for text in TEXTS] == [0, 0, 0, 0, 0, 1, 1, 1]


def test_an_exclamation_mark_has_the_id_of_padding():
    tokenizer = open_clip.get_tokenizer("tiny-vit")
    texts = ["cat " * 13 + "!", "cat " * 14 + "!", "cat " * 12 + "! ! !", "cat ! " * 7]
    lengths = [len(tokenizer.encode(text)) + 2 for text in texts]
    assert lengths == [16, 17, 17, 16]
    assert count_truncated(tokenizer, texts, tokenizer(texts), 16) == 2


def test_a_tokenizer_that_pads_with_its_end_token(tokenizer_folder):
    """T5's, as in SigLIP, ends and pads with token 1: a cut row looks like a padded one at its end."""
    tokenizer = open_clip.tokenizer.HFTokenizer(str(tokenizer_folder), context_length=16)
    tokenizer.tokenizer.pad_token = tokenizer.tokenizer.eos_token
    assert count_truncated(tokenizer, TEXTS, tokenizer(TEXTS), 16) == 3


def test_the_clips_mode_adds_a_class_token(tokenizer_folder):
    tokenizer = open_clip.tokenizer.HFTokenizer(str(tokenizer_folder), context_length=16, tokenizer_mode="clips")
    tokenizer.tokenizer.cls_token = "[BOS]"
    ids = tokenizer(TEXTS)
    kept = [int((row == tokenizer.tokenizer.convert_tokens_to_ids("cat")).sum()) for row in ids]
    direct = sum(count < length for count, length in zip(kept, LENGTHS, strict=True))
    assert count_truncated(tokenizer, TEXTS, ids, 16) == direct == 4
