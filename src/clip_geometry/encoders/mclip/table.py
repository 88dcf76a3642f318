"""Which image model each text tower of Multilingual-CLIP was trained to match."""

from clip_geometry.encoders.hf.loading import read_config
from clip_geometry.encoders.shipped import model_path
from clip_geometry.registry import InputError

B32, L14, RN50X4 = "ViT-B-32-quickgelu/openai", "ViT-L-14-quickgelu/openai", "RN50x4-quickgelu/openai"

# README of FreddeFrallan/Multilingual-CLIP, both tables ("Vision Model"). OpenAI's weights want QuickGELU. The model
# card of M-BERT-Base-ViT-B says Res50x4, copied from its neighbour: the README, and its 512 columns, say ViT-B/32.
PAIRS = {
    "M-CLIP/XLM-Roberta-Large-Vit-B-16Plus": "ViT-B-16-plus-240/laion400m_e32",
    "M-CLIP/XLM-Roberta-Large-Vit-B-32": B32,
    "M-CLIP/XLM-Roberta-Large-Vit-L-14": L14,
    "M-CLIP/LABSE-Vit-L-14": L14,
    "M-CLIP/M-BERT-Distil-40": RN50X4,
    "M-CLIP/M-BERT-Base-69": RN50X4,
    "M-CLIP/M-BERT-Base-ViT-B": B32,
    "M-CLIP/Swedish-500k": RN50X4,
    "M-CLIP/Swedish-2M": RN50X4,
}


def paired_image_model(model: str) -> str:
    """The image model of an mclip: tower: "mclip:M-CLIP/LABSE-Vit-L-14" → "open_clip:ViT-L-14-quickgelu/openai".

    A folder states its own as "image_model" in its config.json. InputError where there is none.
    """
    prefix, _, name = model.partition(":")
    if prefix != "mclip":
        raise InputError(f"{model} has no paired image model: only towers of Multilingual-CLIP, mclip:…, have one")
    folder = model_path(name)
    if folder.is_dir():
        stated = read_config(folder, "a text tower of Multilingual-CLIP", key=None).get("image_model")
        if isinstance(stated, str) and stated:
            return stated
        raise InputError(
            f'{model} names no image model: add "image_model": "open_clip:NAME/TAG" to its config.json, '
            "the one whose space it was trained to share"
        )
    if name not in PAIRS:
        raise InputError(f"no image model is known for {model}; it is for mclip: and one of {', '.join(PAIRS)}")
    return f"open_clip:{PAIRS[name]}"
