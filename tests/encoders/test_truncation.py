"""Truncated texts are counted exactly: at the boundary, with either kind of tokenizer."""

import open_clip

from clip_geometry.encoders.open_clip import count_truncated

LENGTHS = [0, 1, 12, 13, 14, 15, 16, 40]  # words; two more tokens for start and end, context length 16
TEXTS = [" ".join(["cat"] * length) for length in LENGTHS]


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
