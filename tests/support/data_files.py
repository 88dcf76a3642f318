import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

CIFAR_NAMES = {
    "label": ["airplane", "automobile", "bird", "cat", "deer"],
    "fine_label": ["apple", "bed", "lawn_mower", "otter", "pine_tree"],
    "coarse_label": ["animals", "large_things"],
}


@pytest.fixture
def write_image():
    """Writes a small random image and returns its pixels (exact only in lossless formats)."""

    def write(path: Path, seed: int = 0, size: tuple[int, int] = (7, 5)) -> np.ndarray:
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return pixels

    return write


@pytest.fixture
def cifar_rows() -> dict:
    rng = np.random.default_rng(3)
    return {
        "pixels": rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8),
        "fine_label": (fine := [int(k) for k in rng.integers(0, 5, 12)]),
        "coarse_label": [int(k) for k in rng.integers(0, 2, 12)],
        "label": fine,
    }


@pytest.fixture
def cifar_parquet(tmp_path, cifar_rows) -> Path:
    """The Hugging Face layout."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    write_cifar_parquet(folder / "test-00000-of-00001.parquet", cifar_rows, "fine_label", "coarse_label")
    return folder


@pytest.fixture
def cifar10_parquet(tmp_path, cifar_rows) -> Path:
    folder = tmp_path / "parquet10"
    (folder / "plain_text").mkdir(parents=True)
    write_cifar_parquet(folder / "plain_text/test-00000-of-00001.parquet", cifar_rows, "label")
    return folder


def write_cifar_parquet(path: Path, rows: dict, *kinds: str) -> None:
    order = np.random.default_rng(4).permutation(len(rows["pixels"]))
    images = [{"bytes": png(rows["pixels"][k]), "path": None} for k in order]
    table = pa.table({"img": images, **{kind: [rows[kind][k] for k in order] for kind in kinds}})
    features = {kind: {"names": CIFAR_NAMES[kind], "_type": "ClassLabel"} for kind in kinds}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


LANGUAGES = ("en", "de", "fr", "es", "it", "ru", "pl", "tr", "ko", "zh", "jp")
THINGS = ("cat", "dog", "bus")


@pytest.fixture
def photographs() -> tuple[str, ...]:
    return tuple(f"{thing}.png" for thing in THINGS)


def write_captions(path: Path, languages: Iterable[str], *, names: bool = True) -> None:
    columns = {language: [f"{thing} ({language})" for thing in THINGS] for language in languages}
    images = {"image": [f"{thing}.png" for thing in THINGS]} if names else {}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns | images), path)


@pytest.fixture
def multi30k_folder(tmp_path) -> Path:
    """No Czech in the test set of 2017, no image names of the train set."""
    folder = tmp_path / "multi30k"
    write_captions(folder / "multi30k_train.parquet", ("en", "de", "fr", "cs"), names=False)
    write_captions(folder / "multi30k_test_2016_flickr.parquet", ("en", "de", "fr", "cs"))
    write_captions(folder / "multi30k_test_2017_mscoco.parquet", ("de", "en", "fr"))
    return folder


@pytest.fixture
def xtd10_folder(tmp_path) -> Path:
    write_captions(tmp_path / "xtd10" / "xtd10.parquet", sorted(LANGUAGES))
    return tmp_path / "xtd10"


@pytest.fixture
def wikicaps_folder(tmp_path) -> Path:
    """As wikicaps_v1.0.tar.gz unpacks; the captions of a pair say which pair it is."""
    root = tmp_path / "wikicaps" / "wikicaps_v1.0"
    root.mkdir(parents=True)
    for other in ("de", "fr", "ru"):
        for split in ("dev", "test"):
            lines = [f'{thing}.png\t" {thing} ({other})\t{thing} (en of {other}, {split})\n' for thing in THINGS]
            (root / f"img_{other}-en.tok.lc.filtered.{split}").write_text("".join(lines))
    return root.parent
