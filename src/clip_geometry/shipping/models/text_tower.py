"""Text towers of Multilingual-CLIP, distilled ones among them, in the layout of sentence-transformers."""

from pathlib import Path
from typing import Any

from clip_geometry.encoders import load_encoder, resolve_encoder
from clip_geometry.encoders.hf import quiet
from clip_geometry.encoders.hf.text import TextEncoder
from clip_geometry.shipping.models.layout import TEXTS, Exported, difference, require_same, save_modules, save_tokenizer


def export_text_tower(encoder: TextEncoder, folder: Path) -> Exported:
    """Write the transformer, which `AutoModel` loads without the rest, the mean over its tokens and the linear layer.

    The encoder `sentence:` must give the same rows of the folder.
    """
    from safetensors.torch import save_file

    parts, length = encoder.parts, encoder.context_length
    linear: Any = parts.head[0]
    with quiet():
        parts.transformer.save_pretrained(folder)
    save_tokenizer(parts.tokenizer, folder, length)
    dense = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True}
    modules = {
        "Transformer": {"max_seq_length": length, "do_lower_case": False},
        "Pooling": {"word_embedding_dimension": parts.width, "pooling_mode_mean_tokens": True},
        "Dense": dense | {"activation_function": "torch.nn.modules.linear.Identity"},
    }
    save_modules(folder, modules)
    state = {f"linear.{name}": value.detach().contiguous() for name, value in linear.state_dict().items()}
    save_file(state, folder / "2_Dense" / "model.safetensors")
    again = load_encoder(resolve_encoder(f"sentence:{folder}"), "cpu")
    found = {"texts": difference(*(each.text_features(each.tokenize(TEXTS)) for each in (encoder, again)))}
    require_same(found, encoder.config.model, "sentence-transformers")
    return Exported(type(parts.transformer).__name__, found, ("text",))
