"""ruCLIP: its tokenizer, preprocessing and towers against independent statements of each."""

import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision.transforms import Compose, Normalize, RandomResizedCrop, ToTensor

from clip_geometry.encoders import resolve_encoder
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.ruclip import RuClipTokenizer, read_bpe
from support.encoder_files import *  # noqa: F403
from support.encoding import embed, load, pixels_of

# --- the tokenizer


def random_vocabulary(rng):
    """(token of each character, rules, token of unknown characters), with rules on rules, all texts distinct."""
    alphabet = ["▁", *rng.sample("abcабвё", rng.randint(1, 5))]
    ids = iter(rng.sample(range(4, 200), 60))
    tokens = {next(ids): char for char in alphabet}
    characters, rules = {char: token for token, char in tokens.items()}, []
    for _ in range(rng.randint(0, 40)):
        left, right = rng.choice(list(tokens)), rng.choice(list(tokens))
        text = tokens[left] + tokens[right]
        if text not in tokens.values() and len(text) < 9:
            rules.append((left, right, next(ids)))
            tokens[rules[-1][2]] = text
    return characters, rules, 1


def write(path, characters, rules, unknown):
    lines = [f"{len(characters)} {len(rules)}", *(f"{ord(char)} {token}" for char, token in characters.items())]
    lines += [" ".join(map(str, rule)) for rule in rules]
    path.write_text("\n".join([*lines, f"{unknown} 0 2 3"]) + "\n")
    return path


def by_definition(text, characters, rules, unknown):
    """YouTokenToMe's tokens: of each word, rule by rule, every occurrence from left to right."""
    ids = []
    for word in re.findall("[^ \t\n\v\f\r▁]+", text):
        tokens = [characters["▁"]]
        for char in word:
            token = characters.get(char)
            if token is not None or tokens[-1] is not None:
                tokens.append(token)
        for left, right, merged in rules:
            k = 0
            while k + 1 < len(tokens):
                if tokens[k : k + 2] == [left, right]:
                    tokens[k : k + 2] = [merged]
                k += 1
        ids += [unknown if token is None else token for token in tokens]
    return ids


def test_tokens_are_those_of_the_definition(tmp_path):
    rng, merges = random.Random(0), 0
    for _ in range(150):
        vocabulary = random_vocabulary(rng)
        tokenizer = RuClipTokenizer(read_bpe(write(tmp_path / "bpe.model", *vocabulary)), 12)
        for _ in range(20):
            text = "".join(rng.choices("aaabbcаабвёХ Бд▁\t\u00a0 ", k=rng.choice([0, 1, 3, 10, 40])))
            expected = by_definition(text.lower(), *vocabulary)
            assert tokenizer.encode(text) == expected, (text, vocabulary)
            row = [2, *expected[:10], 3]
            assert tokenizer([text]).tolist() == [row + [0] * (12 - len(row))]
            merges += sum(token not in vocabulary[0].values() for token in expected)
    assert merges > 3000


# --- preprocessing


@pytest.mark.parametrize("size", [(32, 32), (50, 40), (40, 53), (7, 80), (90, 31)])
def test_pixels_are_those_of_the_random_crop_that_is_not_random(ruclip_folder, size):
    encoder = load(f"ruclip:{ruclip_folder}")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    crop = RandomResizedCrop(32, scale=(1.0, 1.0), ratio=(1.0, 1.0))
    expected = Compose([crop, ToTensor(), Normalize([0.5, 0.4, 0.3], [0.2, 0.25, 0.3])])(image)
    assert torch.equal(encoder.preprocess(image), expected)
    assert encoder.pixels is not None
    assert torch.equal(encoder.pixels.normalize(encoder.pixels.cut(image)), expected)


# --- the towers


def transformed(x, take, heads, mask):
    """A pre-norm transformer of two layers with QuickGELU, in plain operations on (items, tokens, width)."""
    for layer in range(2):
        part = f"transformer.resblocks.{layer}"
        y = F.layer_norm(x, x.shape[-1:], take(f"{part}.ln_1.weight"), take(f"{part}.ln_1.bias"))
        q, k, v = F.linear(y, take(f"{part}.attn.in_proj_weight"), take(f"{part}.attn.in_proj_bias")).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (heads, -1)).transpose(1, 2) for each in (q, k, v))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask).softmax(dim=-1)
        y = (weights @ v).transpose(1, 2).flatten(-2)
        x = x + F.linear(y, take(f"{part}.attn.out_proj.weight"), take(f"{part}.attn.out_proj.bias"))
        y = F.layer_norm(x, x.shape[-1:], take(f"{part}.ln_2.weight"), take(f"{part}.ln_2.bias"))
        y = F.linear(y, take(f"{part}.mlp.c_fc.weight"), take(f"{part}.mlp.c_fc.bias"))
        y = F.linear(y * (1.702 * y).sigmoid(), take(f"{part}.mlp.c_proj.weight"), take(f"{part}.mlp.c_proj.bias"))
        x = x + y
    return x


def test_features_are_those_of_the_published_model(ruclip_folder, images, captions):
    state = torch.load(ruclip_folder / "pytorch_model.bin", weights_only=True)
    unused = set(state)

    def text(name):
        unused.discard(name)
        return state[name]

    def vision(name):
        return text(f"visual.{name}")

    encoder = load(f"ruclip:{ruclip_folder}")
    ids = encoder.tokenize([*captions, "", "cat " * 30]).inputs
    ends = (ids == 3).nonzero()
    assert ends[:, 0].tolist() == list(range(len(ids))) and len(set(ends[:, 1].tolist())) > 2
    assert (ids.argmax(dim=1) != ends[:, 1]).any()  # where OpenAI's end would be
    mask = torch.full((14, 14), -torch.inf).triu(1)
    x = transformed(text("token_embedding.weight")[ids] + text("positional_embedding"), text, 2, mask)
    x = F.layer_norm(x, x.shape[-1:], text("ln_final.weight"), text("ln_final.bias"))
    pooled = {"text": x[ends[:, 0], ends[:, 1]]}

    x = F.conv2d(pixels_of(encoder, images), vision("conv1.weight"), stride=8).flatten(2).transpose(1, 2)
    x = torch.cat([vision("class_embedding").expand(len(x), 1, -1), x], dim=1) + vision("positional_embedding")
    x = F.layer_norm(x, x.shape[-1:], vision("ln_pre.weight"), vision("ln_pre.bias"))
    x = transformed(x, vision, 128 // 64, torch.zeros(17, 17))[:, 0]
    pooled["image"] = F.layer_norm(x, x.shape[-1:], vision("ln_post.weight"), vision("ln_post.bias"))
    projected = {"text": pooled["text"] @ text("text_projection"), "image": pooled["image"] @ vision("proj")}
    assert unused == {"logit_scale"}
    assert encoder.describe()["logit_scale"] == pytest.approx(state["logit_scale"].exp().item())

    for features, expected in (("projected", projected), ("pooled", pooled)):
        ours = embed(load(f"ruclip:{ruclip_folder}", features=features), images, [*captions, "", "cat " * 30])
        for rows, modality in zip(ours, ("image", "text"), strict=True):
            torch.testing.assert_close(rows, expected[modality], rtol=1e-4, atol=1e-4)


def test_a_folder_of_another_kind_is_refused(hf_clip_folder):
    with pytest.raises(InputError, match="lacks embed_dim; the config of a ruCLIP model was expected"):
        resolve_encoder(f"ruclip:{hf_clip_folder}")
