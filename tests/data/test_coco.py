import json

import numpy as np
import pytest

import clip_geometry as cg
from clip_geometry.cli.stores import left_out
from clip_geometry.data import load_dataset
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError
from support import oracles_two_sided

IMAGES = [{"id": 42, "file_name": "000000000042.png"}, {"id": 9, "file_name": "000000000009.png"}]
ANNOTATIONS = [{"id": 100 - k, "image_id": 42 if k % 2 else 9, "caption": f"caption {100 - k}"} for k in range(10)]


@pytest.fixture
def coco(tmp_path):
    path = tmp_path / "annotations/captions_val2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"images": IMAGES, "annotations": ANNOTATIONS}))
    return path


def _load(path, **options):
    return load_dataset("coco", path=path, **options)


def _texts(dataset):
    return [dataset.text.load(k) for k in range(len(dataset.text))]


def test_captions_by_image_and_annotation_id(coco):
    dataset = _load(coco)
    assert dataset.text is not None
    assert list(dataset.text.item_id) == ["42"] * 5 + ["9"] * 5
    assert _texts(dataset) == [f"caption {k}" for k in (91, 93, 95, 97, 99, 92, 94, 96, 98, 100)]
    assert dataset.image is None


def test_the_first_captions_only(coco):
    assert _texts(_load(coco, captions_per_image=1)) == ["caption 91", "caption 92"]
    assert _texts(_load(coco, captions_per_image=2)) == ["caption 91", "caption 93", "caption 92", "caption 94"]
    with pytest.raises(InputError, match="key 'captions_per_image' is 0"):
        _load(coco, captions_per_image=0)


@pytest.mark.parametrize("place", ["val2017", "images/val2017", "images", "annotations/val2017", "annotations/images"])
def test_images_are_found_beside_the_annotations(coco, tmp_path, write_image, place):
    pixels = [write_image(tmp_path / place / entry["file_name"], seed) for seed, entry in enumerate(IMAGES)]
    image = _load(coco).image
    assert image is not None
    assert list(image.item_id) == ["42", "9"]
    assert all(np.array_equal(image.load(k), pixels[k]) for k in range(2))


@pytest.mark.parametrize(("kept", "dropped"), [(None, 0), (5, 6)])
def test_from_the_file_to_the_numbers_of_clip_benchmark(tmp_path, write_image, kept, dropped):
    """Of 14 images with five to seven captions: all are queries, or it is said how many are left out."""
    counts = [5 + (k % 5 == 0) + (k % 5 == 1) * (k // 5 < 2) + (k == 10) for k in range(14)]
    images = [{"id": k, "file_name": f"{k}.png"} for k in range(14)]
    rng = np.random.default_rng(0)  # no two captions alike, whose order CLIP_benchmark leaves open
    captions = [
        {
            "id": 100 * k + c,
            "image_id": k,
            "caption": " ".join(rng.choice(["red", "green", "blue", "circle", "square"], 9)),
        }
        for k, count in enumerate(counts)
        for c in range(count)
    ]
    assert sum(counts) == 76 and max(counts) == 7
    path = tmp_path / "annotations/captions_val2017.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"images": images, "annotations": captions}))
    for k in range(14):
        write_image(tmp_path / "val2017" / f"{k}.png", k, (32, 32))
    data = _load(path, captions_per_image=kept)
    model = cg.encoders.resolve_encoder("scenes-clip/fresh")
    manifest = cg.embed(model, data, tmp_path / "store", device="cpu", progress=quiet)
    said = f" ({dropped} more captions of these images left out by captions_per_image)" if dropped else ""
    assert left_out(manifest["sides"]["text"]) == said
    result = cg.measure(tmp_path / "store", measures="retrieval", blocks=0)
    image, text = (cg.read_store(tmp_path / "store")[name] for name in ("image", "text"))
    assert len(np.unique(text.vectors, axis=0)) == len(text)
    assert len(text) == 76 - dropped
    of = text.item_id.astype(int)
    for way, expected in oracles_two_sided.clip_benchmark(image.vectors, text.vectors, of, 5).items():
        assert result[f"retrieval.{way}.r_at_5", "both"].value == pytest.approx(expected, abs=1e-15)
    notes = {record.note for record in result.records}
    assert notes == {f"14 images and {76 - dropped} texts are queries, each correct if it finds any of its pairs"}
    remark = f"{dropped} more captions of these items are not among the text rows: captions_per_image left them out"
    assert (remark in str(result)) == bool(dropped) == (remark in result.records[0].get("remarks", ()))


def test_images_from_a_named_folder(coco, tmp_path, write_image):
    write_image(tmp_path / "photos" / IMAGES[1]["file_name"])
    image = _load(coco, images=tmp_path / "photos").image
    assert image is not None
    assert image.load(1).size == (7, 5)
    with pytest.raises(FileNotFoundError):
        image.load(0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{", "is not readable JSON"),
        ("[" * 100_000, "is not readable JSON .*recursion limit"),
        ("[]", "input should be a valid object; a COCO"),
        ({"annotations": ANNOTATIONS}, "lacks images; a COCO"),
        ({"images": IMAGES, "annotations": []}, "^annotations of .* should have at least 1 item"),
        ({"images": IMAGES, "annotations": 3}, "^annotations of .* should be a valid list"),
        ({"images": [{"id": 1}], "annotations": ANNOTATIONS}, "lacks images.0.file_name"),
        ({"images": [{"id": "1", "file_name": "x"}], "annotations": ANNOTATIONS}, "^images.0.id of "),
        (
            {"images": [{"id": 1, "file_name": "\ud800"}], "annotations": ANNOTATIONS},
            "is not readable JSON .*hex escape",
        ),
        ({"images": [7], "annotations": ANNOTATIONS}, "^images.0 of .* is 7: input should be a valid object;"),
        ({"images": IMAGES, "annotations": [{"id": 1, "image_id": 9}]}, "lacks annotations.0.caption"),
        (
            {"images": IMAGES[:1], "annotations": ANNOTATIONS},
            "has a caption of image 9, which is missing from",
        ),
        ({"images": [*IMAGES, IMAGES[0]], "annotations": ANNOTATIONS}, "lists an image id twice"),
    ],
)
def test_broken_annotations(coco, content, message):
    coco.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InputError, match=message):
        _load(coco)
