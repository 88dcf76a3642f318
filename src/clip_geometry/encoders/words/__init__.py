"""Word vectors from a file: each "text" is one word, looked up exactly as it is written, case included."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clip_geometry.config import digest
from clip_geometry.data import path_of
from clip_geometry.encoders.base import Encoder, EncoderConfig, EncoderEntry, Tokens, encoders
from clip_geometry.encoders.runtime import DTYPES
from clip_geometry.encoders.words.files import WordVectors, find_files, read_words
from clip_geometry.files import sha256_of
from clip_geometry.registry import InputError


class WordsConfig(EncoderConfig):
    """words:PATH: PATH.npy with the words in PATH.json or PATH.txt; PATH.bin of word2vec; any other is text, of
    word2vec or GloVe. ~ and $VARIABLE in PATH are put in. There is no projection: features=pooled are the same rows.
    """


def find(config: EncoderConfig) -> list[Path]:
    """The file with the vectors and, for .npy, that with the words."""
    return find_files(path_of(config.model.partition(":")[2]))


def check(config: EncoderConfig) -> None:
    find(config)


def revision(config: EncoderConfig) -> str:
    return digest([sha256_of(path) for path in find(config)])


def load(config: EncoderConfig, device: torch.device) -> "WordEncoder":
    files = find(config)
    return WordEncoder(config, read_words(files), {"name": files[0].name, "sha256": sha256_of(files[0])}, device)


class WordEncoder(Encoder):
    """Looks words up. An unknown word is an error: a row of zeros would be a plausible point."""

    modalities = frozenset({"text"})

    def __init__(self, config: EncoderConfig, words: WordVectors, weights: Mapping[str, Any], device: torch.device):
        self.config = config
        self.device = device
        self.words = words
        self._weights = weights

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        unknown = [text for text in texts if text not in self.words.index]
        if unknown:
            first = ", ".join(map(repr, unknown[:5]))
            raise InputError(
                f"{len(unknown)} of {len(texts)} words at hand have no vector in {self._weights['name']}: {first}"
                f"{', …' if len(unknown) > 5 else ''}; words are looked up as they are written, case included: leave "
                "them out or write them as the file does"
            )
        return Tokens(torch.tensor([self.words.index[text] for text in texts], dtype=torch.long), truncated=0)

    def text_features(self, tokens: Tokens) -> Tensor:
        places = tokens.inputs.tolist()
        rows = torch.from_numpy(self.words.rows(places)).to(DTYPES[self.config.precision]).float()
        finite = torch.isfinite(rows).all(1)
        if not finite.all():
            place = places[int((~finite).nonzero()[0, 0])]
            word = next(word for word, at in self.words.index.items() if at == place)
            raise InputError(
                f"the vector of {word!r} in {self._weights['name']} has NaN or infinity in {self.config.precision}; "
                "leave the word out or repair the file"
            )
        return rows

    def describe(self) -> Mapping[str, Any]:
        return {
            "weights": dict(self._weights),
            "dim": {"text": self.words.dim},
            "parameters": len(self.words.index) * self.words.dim,
            "activation": "",
            "preprocessing": None,
            "tokenizer": "a text is one word, looked up exactly",
            "context_length": None,
            "logit_scale": None,
            "logit_bias": None,
        }


encoders.add(
    "words",
    EncoderEntry(
        config=WordsConfig,
        load=load,
        revision=revision,
        pattern="words:PATH",
        summary="word vectors: word2vec (text, .bin), GloVe, .npy with a list of words beside it",
        check=check,
    ),
)
