"""A small BERT, freshly initialised, with a vocabulary of whole words: what smoke runs and tests fine-tune."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
POSITIONS = 128


def tiny_bert(texts: Iterable[Sequence[str]], *, width: int, layers: int, seed: int) -> tuple[Any, Any]:
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
    """Lower-cased words and signs of punctuation, in the order of their first appearance; pairs as BERT has them."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    normalizer, splitter = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    words = dict.fromkeys(SPECIAL)
    for text in texts:
        words |= dict.fromkeys(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
