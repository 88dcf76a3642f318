"""transformers' CLIP from a folder made here: its own features, its own preprocessing, and refusals."""

import torch

from clip_geometry.encoders import load_encoder
from support.encoding import pixels_of


def load(folder, **options):
    return load_encoder(f"hf-clip:{folder}", device="cpu", **options)


def rows_of(features):
    return features if isinstance(features, torch.Tensor) else features.pooler_output


def test_features_are_those_of_transformers(hf_clip_folder, images, captions):
    from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

    model = CLIPModel.from_pretrained(hf_clip_folder).eval()
    pixels = AutoImageProcessor.from_pretrained(hf_clip_folder)(images=images, return_tensors="pt")
    inputs = AutoTokenizer.from_pretrained(hf_clip_folder)(captions, padding=True, return_tensors="pt")
    ids = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        image, text = rows_of(model.get_image_features(**pixels)), rows_of(model.get_text_features(**ids))
        pooled = [model.vision_model(**pixels).pooler_output, model.text_model(**ids).pooler_output]

    encoder = load(hf_clip_folder)
    own_pixels = pixels_of(encoder, images)
    torch.testing.assert_close(encoder.image_features(own_pixels), image)
    torch.testing.assert_close(encoder.text_features(encoder.tokenize(captions)), text)
    assert image.shape == (4, 20) and text.shape == (3, 20)

    before = load(hf_clip_folder, features="pooled")
    own = [before.image_features(own_pixels), before.text_features(before.tokenize(captions))]
    torch.testing.assert_close(own, pooled)
    with torch.no_grad():
        torch.testing.assert_close(model.visual_projection(own[0]), image)
        torch.testing.assert_close(model.text_projection(own[1]), text)


def test_the_processor_that_transformers_saves_today_is_read(hf_clip_folder, tmp_path, images, captions):
    from transformers import CLIPImageProcessor, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

    folder = tmp_path / "model"
    CLIPModel.from_pretrained(hf_clip_folder).save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(hf_clip_folder, model_max_length=14)
    CLIPProcessor(CLIPImageProcessor.from_pretrained(hf_clip_folder), tokenizer).save_pretrained(folder)
    assert not (folder / "preprocessor_config.json").exists()
    ours, theirs = load(folder), load(hf_clip_folder)
    assert torch.equal(*(each.image_features(pixels_of(each, images)) for each in (ours, theirs)))
    assert torch.equal(*(each.text_features(each.tokenize(captions)) for each in (ours, theirs)))
