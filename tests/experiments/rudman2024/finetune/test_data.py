"""Examples of any task as texts and targets, what is held out, and batches of tokens."""

import json

import numpy as np
import pytest
import torch

from clip_geometry.registry import InputError
from clip_geometry_experiments.rudman2024.finetune.model import tiny_bert, word_tokenizer
from clip_geometry_experiments.rudman2024.finetune.training import (
    Examples,
    encode,
    hold_out,
    load_examples,
    require_cls,
)
from clip_geometry_experiments.tasks import resolve_task


def pairs(n=40, shared=4):
    """n pairs; each run of `shared` has one first sentence."""
    texts = tuple((f"first {k // shared}", f"second number {k}") for k in range(n))
    return Examples("pairs", "class", texts, np.arange(n) % 2, ("a", "b"), "r", "train")


def encoded(examples, **options):
    model, tokenizer = tiny_bert(examples.texts, width=8, layers=1, seed=0)
    return encode(
        examples, tokenizer, model, **{"name": "tiny", "max_length": None, "overlap": 8, **options}
    ), tokenizer


# --- examples


def test_a_task_with_classes_is_its_sentences_and_labels(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("one\ttwo\tlabel\nx\ty\tno\ny\tz\tyes\nx\tz\tno\n")
    found = load_examples(resolve_task({"name": "table", "path": str(path), "text": ["one", "two"]}))
    assert found.texts == (("x", "y"), ("y", "z"), ("x", "z")) and found.targets.tolist() == [0, 1, 0]
    assert (found.kind, found.classes, found.outputs, len(found)) == ("class", ("no", "yes"), 2, 3)


def test_scores_and_spans_are_examples_too(tmp_path):
    (tmp_path / "s.tsv").write_text("sentence1\tsentence2\tlabel\na\tb\t2.5\nc\td\t5.0\n")
    found = load_examples(resolve_task({"name": "stsb", "path": str(tmp_path / "s.tsv")}))
    assert (found.kind, found.outputs, found.targets.tolist()) == ("score", 1, [2.5, 5.0])
    row = {"question": "Who?", "context": "It was Ada.", "answers": {"text": ["Ada"], "answer_start": [7]}}
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    found = load_examples(resolve_task({"name": "squad", "path": str(tmp_path / "q.jsonl")}))
    assert (found.kind, found.outputs, found.targets.tolist(), found.answers) == ("span", 2, [7], (("Ada",),))
    assert found.texts == (("Who?", "It was Ada."),)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_sentence_is_on_both_sides(seed):
    examples = pairs()
    train, held = hold_out(examples, 0.25, seed)
    assert len(train) + len(held) == 40 and len(held) == 8  # two groups of four, the most within a quarter
    assert not {text for each in train.texts for text in each} & {text for each in held.texts for text in each}
    assert held.split == "train, 0.25 held out" and train.split == "train"
    for part in (train, held):
        where = [examples.texts.index(texts) for texts in part.texts]
        assert part.targets.tolist() == examples.targets[where].tolist()
    assert hold_out(examples, 0.25, seed)[1].texts == held.texts


def test_what_cannot_be_held_out_says_why():
    with pytest.raises(InputError, match=r"held_out = 0\.05 of 40 examples holds out none, because the smallest"):
        hold_out(pairs(shared=20), 0.05, 0)


# --- tokens


def test_scores_are_numbers_and_long_texts_are_cut():
    texts = (("a " * 40, "b"), ("a", "b"))
    inputs, _ = encoded(Examples("stsb", "score", texts, np.array([1.5, 4.0]), (), "r", "train"), max_length=20)
    assert inputs.targets.dtype == torch.float32 and inputs.targets.tolist() == [1.5, 4.0]
    assert inputs.lengths.tolist() == [20, 5]


def test_texts_without_a_cls_in_front_are_refused():
    from tokenizers import processors

    tokenizer = word_tokenizer(["a b"])
    require_cls(tokenizer, "m", "do")
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("[CLS]", "[SEP]")]
    last = processors.TemplateProcessing(single="$A [SEP] [CLS]", pair="$A $B", special_tokens=special)
    tokenizer.backend_tokenizer.post_processor = last  # as XLNet has it
    with pytest.raises(InputError, match=r"^m has no \[CLS\]; do$"):
        require_cls(tokenizer, "m", "do")
    tokenizer = word_tokenizer(["a b"])
    tokenizer.cls_token = None  # the first token is one of every text, but that of decoders sees nothing of the rest
    with pytest.raises(InputError, match="has no"):
        require_cls(tokenizer, "m", "do")
