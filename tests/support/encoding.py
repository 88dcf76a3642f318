"""Loads encoders on the CPU and embeds with them, as the tests of every family do."""

import torch

from clip_geometry.encoders import load_encoder


def load(model, **options):
    return load_encoder(model, device="cpu", **options)


def text_rows(model, texts, **options):
    encoder = load(model, **options)
    return encoder.text_features(encoder.tokenize(texts))


def pixels_of(encoder, images):
    return torch.stack([encoder.preprocess(image) for image in images])


def embed(encoder, images, captions):
    return encoder.image_features(pixels_of(encoder, images)), encoder.text_features(encoder.tokenize(captions))
