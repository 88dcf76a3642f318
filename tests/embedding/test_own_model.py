"""`embed` with the user's own model and data, nothing registered: kinds of both, a store's key, refusals."""

import functools

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import clip_geometry as cg
from clip_geometry.encoders.own import OwnEncoder
from clip_geometry.progress import quiet
from clip_geometry.registry import InputError

# Linear maps give the same float32 rows whatever the batch is, except for the order of summation
EXACT = {"rtol": 1e-5, "atol": 1e-6}
TEXTS = ["a cat", "a dog on the left", "two red buses", "", "a small blue circle"]


def pictures(count=5, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (count, 12, 10, 3), dtype=np.uint8)
    return [Image.fromarray(each).convert(mode) for each in pixels]


def pixels_of(images):
    return torch.stack([torch.tensor(np.asarray(image), dtype=torch.float32).flatten() for image in images]) / 255


def letters_of(texts):
    return torch.tensor([[text.count(chr(97 + k)) for k in range(26)] for text in texts], dtype=torch.float32)


class Both(nn.Module):
    """Takes a list of images or a list of texts; its dropout shows whether it is in eval mode."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.image, self.text, self.dropout = nn.Linear(360, 6), nn.Linear(26, 6), nn.Dropout(0.5)

    def forward(self, items):
        return self.dropout(self.texts(items) if isinstance(items[0], str) else self.images(items))

    def images(self, images):
        return self.image(pixels_of(images))

    def texts(self, texts):
        return self.text(letters_of(texts))


class Part(nn.Module):
    def __init__(self, whole, method):
        super().__init__()
        self.whole, self.method = whole, method

    def forward(self, items):
        return getattr(self.whole, self.method)(items)


class Pairs(Dataset):
    def __init__(self, rows, classes=None):
        self.rows, self.classes = rows, classes
        self.read = []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        self.read.append(k)
        if isinstance(self.rows[k], Exception):
            raise self.rows[k]
        return self.rows[k]


def embed(model, data, folder=None, **options):
    return cg.embed(model, data, folder, **{"progress": quiet, "batch_size": 2, **options})


def data(images=None, texts=TEXTS):
    return {"image": pictures() if images is None else images, "text": texts}


def close(rows, expected):
    np.testing.assert_allclose(rows, torch.as_tensor(expected).detach().numpy(), **EXACT)


# --- kinds of models


@pytest.mark.parametrize("kind", ["module", "mapping", "methods", "dict", "arrays", "lists"])
def test_a_module_or_functions_of_lists(kind):
    model = Both().train()
    given = {
        "module": model,
        "mapping": {"image": model.images, "text": lambda texts: model.texts(texts).double()},
        "dict": nn.ModuleDict({"text": Part(model, "texts"), "image": Part(model, "images")}),
        "methods": {"image": model.images, "text": model.texts},
        "arrays": {each: (lambda items: model(items).numpy()) for each in ("image", "text")},
        "lists": {each: (lambda items: list(model(items))) for each in ("image", "text")},
    }[kind]
    if kind in ("arrays", "lists"):
        model.eval()  # a function is not known to use it
    sets = embed(given, data())
    close(sets["image"].vectors, model.images(pictures()))
    close(sets["text"].vectors, model.texts(TEXTS))
    assert sets["image"].vectors.dtype == np.float32
    assert list(sets["text"].item_id) == list("01234") and list(sets["text"].metadata["text"]) == TEXTS
    assert model.training == (kind not in ("arrays", "lists")) == model.dropout.training  # as it was
    assert cg.pair(sets["image"], sets["text"])[0].tolist() == [0, 1, 2, 3, 4]


def test_an_open_clip_model_gives_the_rows_of_the_registered_encoder(tmp_path):
    folder = cg.encoders.resolve_encoder("scenes-clip/fresh", seed=3)
    encoder = cg.encoders.load_encoder(folder, device="cpu")
    images, texts = pictures(), [*TEXTS, "a red circle " * 60]
    images.append(images[0])
    own = embed(encoder.model, data(images, texts), preprocess=encoder.transform, tokenizer=encoder.tokenizer)
    for k, image in enumerate(images):
        image.save(tmp_path / f"{k}.png")
    listed = cg.data.load_dataset(tmp_path)
    named = cg.embed(folder, listed, tmp_path / "store", device="cpu", progress=quiet, batch_size=2)
    assert np.array_equal(own["image"].vectors, cg.read_store(tmp_path / "store")["image"].vectors)
    expected = encoder.text_features(encoder.tokenize(texts))
    close(own["text"].vectors, expected)
    assert own["text"].provenance["truncated"] == 1
    facts = own["image"].provenance["encoder"]
    same = ("dim", "parameters", "logit_scale", "preprocessing", "context_length")
    assert {key: facts[key] for key in same} == {key: named["encoder"][key] for key in same}


@pytest.mark.parametrize(
    ("kind", "own"), [(torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, False), (torch.float64, True)]
)
def test_inputs_have_the_precision_of_the_model(kind, own):
    """A preprocess gives float32 pixels, or its own precision, and a tokenizer may give floats, whatever the weights
    are."""
    exact, model = Both(), Both().to(kind)
    parts = {"image": model.image, "text": model.text}

    def flat(picture):
        pixels = pixels_of([picture])[0]
        return pixels.to(kind) if own else pixels

    sets = embed(parts, data(), preprocess=flat, tokenizer=letters_of)
    for modality, rows in (("image", exact.image(pixels_of(pictures()))), ("text", exact.text(letters_of(TEXTS)))):
        assert sets[modality].vectors.dtype == np.float32
        error = np.abs(sets[modality].vectors - rows.detach().numpy()).max() / rows.abs().max().item()
        assert error < 4 * max(torch.finfo(kind).eps, 1e-6), modality  # of the weights, the inputs and the result


def test_an_open_clip_model_of_low_precision(kind=torch.bfloat16):
    """open_clip's conversion leaves the norms, the positional embeddings and the first parameters in float32."""
    encoder = cg.encoders.load_encoder("scenes-clip/fresh", device="cpu", seed=3)
    options = {"preprocess": encoder.transform, "tokenizer": encoder.tokenizer}
    exact = embed(encoder.model, data(), **options)
    open_clip.model.convert_weights_to_lp(encoder.model, kind)
    assert {each.dtype for each in encoder.model.parameters()} == {torch.float32, kind}
    sets = embed(encoder.model, data(), **options)
    for modality, rows in sets.items():
        cosines = (
            cg.transforms.Normalize().transform(rows.vectors)
            * cg.transforms.Normalize().transform(exact[modality].vectors)
        ).sum(1)
        assert cosines.min() > 0.99, modality


def test_a_model_that_normalizes_by_default_is_not_normalized():
    """As CoCa does."""

    class Normalizing(Both):
        def encode_image(self, pixels, normalize=True):
            rows = self.image(pixels)
            return rows / rows.norm(dim=1, keepdim=True) if normalize else rows

    model = Normalizing()
    rows = embed(model, {"image": pictures()}, preprocess=lambda image: pixels_of([image])[0])["image"].vectors
    close(rows, model.images(pictures()))


def test_a_sentence_transformer_gives_what_its_encode_gives():
    sentence_transformers = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    from support.minilm import minilm

    model = sentence_transformers.SentenceTransformer(str(minilm()), device="cpu")
    texts = ["a cat", "two dogs on a sofa", "bus " * 300]
    sets = embed(model, data(pictures(3), texts))
    assert sets.keys() == {"text"} and sets["text"].provenance["truncated"] == 1
    # batches are padded to their longest text, which moves the last bits
    np.testing.assert_allclose(sets["text"].vectors, model.encode(texts), atol=1e-6)
    with pytest.raises(InputError, match="takes images and texts; leave out preprocess and tokenizer"):
        embed(model, {"text": texts}, tokenizer=len)
    part = embed({"text": model}, {"text": texts})
    assert np.array_equal(part["text"].vectors, sets["text"].vectors)
    assert part["text"].provenance["truncated"] == 1


def test_a_registered_model_and_data_may_be_named(tmp_path):
    pictures()[0].save(tmp_path / "a.png")
    by_name = embed("scenes-clip/fresh", str(tmp_path), device="cpu")
    config = cg.encoders.resolve_encoder("scenes-clip/fresh")
    dataset = cg.data.load_dataset(tmp_path)
    embed(config, dataset, tmp_path / "store", device="cpu")
    assert np.array_equal(by_name["image"].vectors, cg.read_store(tmp_path / "store")["image"].vectors)
    assert by_name["image"].item_id.tolist() == ["a.png"] and "source" not in by_name["image"].provenance
    given = embed(config, {"image": [tmp_path / "a.png"], "text": ["a red circle"]}, device="cpu")
    assert np.array_equal(given["image"].vectors, by_name["image"].vectors) and len(given["text"]) == 1


# --- kinds of data


def test_images_are_pil_images_of_any_mode_or_paths(tmp_path):
    images = pictures(mode="L")
    for k in (0, 3):
        images[k].save(tmp_path / f"{k}.png")
    mixed = [str(tmp_path / "0.png"), *images[1:3], tmp_path / "3.png", images[4]]
    model = Both()
    sets = embed(model, {"image": mixed})
    close(sets["image"].vectors, model.images([image.convert("RGB") for image in images]))


def test_an_item_may_have_several_texts():
    model = Both()
    sets = embed(model, data(pictures(3), [["a", "b"], "c", ("d", "e", "f")]))
    assert list(sets["text"].item_id) == list("001222") and list(sets["text"].metadata["text"]) == list("abcdef")
    close(sets["text"].vectors, model.texts(list("abcdef")))
    assert len(embed(model, data(pictures(3), [["a", "b"], "c", "d"]), limit=1)["text"]) == 2


@pytest.mark.parametrize(
    "rows",
    [
        [(image, text) for image, text in zip(pictures(), TEXTS, strict=True)],
        [{"image": image, "caption": [text]} for image, text in zip(pictures(), TEXTS, strict=True)],
    ],
    ids=["pairs", "mappings"],
)
@pytest.mark.parametrize("wrap", [Pairs, list])
def test_a_torch_dataset_or_a_list_of_pairs(rows, wrap):
    model = Both()
    sets = embed(model, wrap(rows))
    close(sets["image"].vectors, model.images(pictures()))
    close(sets["text"].vectors, model.texts(TEXTS))
    given = wrap(rows)
    assert len(embed(model, given, limit=2)["text"]) == 2
    assert wrap is list or set(given.read) == {0, 1}  # no more is read than the limit


def test_class_numbers_are_labels():
    dataset = Pairs([(image, k % 2) for k, image in enumerate(pictures())], classes=["cat", "dog"])
    sets = embed(Both(), dataset)
    assert sets.keys() == {"image"} and sets["image"].labels.tolist() == [0, 1, 0, 1, 0]
    assert sets["image"].provenance["class_names"] == ["cat", "dog"]


def test_unreadable_images_are_counted(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    images = [*pictures(4), tmp_path / "broken.png"]
    with pytest.raises(InputError, match="1 of 5 image items of given cannot be read"):
        embed(Both(), data(images))
    sets = embed(Both(), data(images), max_corrupt=0.2)
    assert (len(sets["image"]), len(sets["text"])) == (4, 5)
    rows = [*((image, "a") for image in pictures(4)), OSError("truncated")]
    sets = embed(Both(), Pairs(rows), tmp_path / "store", max_corrupt=0.2)
    assert sets["sides"]["image"]["n"] == 4 and len(sets["sides"]["image"]["skipped"]) == 1


# --- stores


def test_a_store_continues_and_its_key_sees_weights_structure_and_data(tmp_path):
    manifest = embed(Both(), data(), tmp_path)
    assert manifest["recipe"]["encoder"]["model"] == "own:Both" and manifest["recipe"]["dataset"]["name"] == "given"
    called = []

    class Counting(Both):
        def forward(self, items):
            called.append(items)
            return super().forward(items)

    Counting.__name__ = Counting.__qualname__ = "Both"
    assert embed(Counting(), data(), tmp_path) == manifest and called == []
    (tmp_path / "image" / "record-00000.json").unlink()
    embed(Counting(), data(), tmp_path)
    assert len(called) == 3

    def differs(model, given, what, **options):
        with pytest.raises(InputError, match=rf"holds other embeddings: .*{what} is .* there and .* now") as caught:
            embed(model, given, tmp_path, **options)
        assert "\n" not in str(caught.value)

    differs(Both(seed=1), data(), "encoder_revision")
    other = Both()
    other.dropout = nn.Identity()
    differs(other, data(), "encoder_revision")
    differs(Both(), data(), r"encoder\.model", name="mine")
    differs(Both(), data(), "encoder_revision", revision="2")
    differs(Both(), data(pictures()[::-1]), "dataset_revision")
    differs(Both(), data(texts=[*TEXTS[:4], "other"]), "dataset_revision")
    differs(Both(), data(), r"dataset\.name", data_name="mine")


def test_functions_need_a_revision(tmp_path):
    def lengths(texts):
        return np.array([[len(text), 1.0] for text in texts])

    given = {"text": TEXTS}
    with pytest.raises(InputError, match=r"lengths' is not a torch module whose weights identify it; give revision=…"):
        embed(lengths, given, tmp_path)
    with pytest.raises(InputError, match="is not a torch module"):
        embed(functools.partial(Both().texts), given, tmp_path)
    manifest = embed(lambda texts: lengths(texts), given, tmp_path, name="lengths", revision="1")
    assert manifest["recipe"]["encoder"]["model"] == "own:lengths"
    assert manifest["recipe"]["encoder_revision"] == "1" and manifest["sides"]["text"]["d"] == 2
    assert embed(lengths, given, tmp_path, name="lengths", revision="1") == manifest
    with pytest.raises(InputError, match="holds other embeddings"):
        embed(lengths, given, tmp_path, name="lengths", revision="2")
    assert embed(lambda texts: lengths(texts), given)["text"].vectors.shape == (5, 2)


def test_weights_of_any_dtype_are_hashed():
    revisions = set()
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        model = Both().to(kind)
        model.register_buffer("count", torch.tensor(3))
        revisions |= {OwnEncoder(each, ["text"]).config.revision for each in (model, {"text": model.texts})}
    assert len(revisions) == 6
    with pytest.raises(InputError, match=r"the weights 'image\.bias' of the model cannot be read; give revision="):
        OwnEncoder(Both().to("meta"), ["text"])


# --- refusals


class Numbers(nn.Module):
    def forward(self, items):
        return [1.0] * len(items)


class Iterable(IterableDataset):
    def __iter__(self):
        yield pictures(1)[0], "a"


@pytest.mark.parametrize(
    ("model", "given", "sentence"),
    [
        (3, {"text": ["a"]}, "the model is 3; expected a function or module of lists"),
        ({"audio": len}, {"text": ["a"]}, "the model has the parts ['audio']; expected 'image', 'text' or both"),
        (
            {"text": {"text": len}},
            {"text": ["a"]},
            "the model is {'text': <built-in function len>}; expected a function",
        ),
        ({"image": len}, {"text": ["a"]}, "has no modality that this model embeds: own:len embeds image only"),
        (Numbers(), {"text": ["a"]}, "the model 'own:Numbers' returned list for a list of 1 (text); a tensor or array"),
        (lambda x: np.zeros((3, 2)), {"text": ["a"]}, "returned torch.float64 of shape (3, 2) for a list of 1 (text)"),
        (lambda x: np.zeros((1, 0)), {"text": ["a"]}, "returned torch.float64 of shape (1, 0) for a list of 1 (text)"),
        (
            lambda x: np.zeros((1, 2), int),
            {"text": ["a"]},
            "returned torch.int64 of shape (1, 2) for a list of 1",
        ),
        (
            lambda x: np.zeros((len(x), len(x[0]))),
            {"text": ["a", "b", "cc"]},
            "returned 2 columns for some texts",
        ),
        (lambda x: np.full((len(x), 2), np.nan), {"text": ["a"]}, "returns NaN or infinity for the text '0'"),
        (Both(), ["a", "b"], "item 0 of the data is 'a'; expected a data set, its name or path, {'image'"),
        (Both(), Iterable(), "expected a data set, its name or path, {'image'"),
        (Both(), {}, "the data are {}; expected a data set, its name or path, {'image'"),
        (Both(), {"text": []}, "the data have no items"),
        (Both(), {"text": "a cat"}, "the data are {'text': 'a cat'}; expected a data set, its name or path, {'image'"),
        (Both(), {"text": [3]}, "the text of item 0 is 3; a text or a list of texts was expected"),
        (Both(), {"image": [np.zeros((4, 4, 3))]}, "image 0 of the data is ndarray; a PIL image or a path was"),
        (Both(), {"image": pictures(2), "text": ["a"]}, "there are 2 images and 1 texts; expected as many images as"),
        (Both(), [(torch.zeros(3, 4, 4), "a")], "image 0 of the data is Tensor; a PIL image or a path was expected"),
    ],
)
def test_what_is_no_model_or_no_data_is_one_sentence(model, given, sentence):
    with pytest.raises(InputError) as caught:
        embed(model, given)
    assert sentence in str(caught.value)


def test_options_that_do_not_fit_the_model(tmp_path):
    encoder = cg.encoders.load_encoder("scenes-clip/fresh", device="cpu")
    with pytest.raises(InputError, match=r"CLIP\.encode_image takes the output of a preprocess; give preprocess="):
        embed(encoder.model, data())
    with pytest.raises(InputError, match=r"encode_text takes the output of a tokenizer; give tokenizer="):
        embed(encoder.model, data(), preprocess=encoder.transform)
    with pytest.raises(InputError, match="preprocess returned Image for an image; a tensor was expected"):
        embed(encoder.model, data(), preprocess=lambda image: image, tokenizer=encoder.tokenizer)
    with pytest.raises(InputError, match="device 'meta' was requested, but own:Both is on cpu; move it first"):
        embed(Both(), data(), device="meta")
    with pytest.raises(
        InputError, match="name, preprocess cannot be given for scenes-clip/fresh, which is described by its config"
    ):
        embed("scenes-clip/fresh", data(), name="mine", preprocess=len)
    with pytest.raises(InputError, match="data_revision cannot be given for the data set scenes"):
        embed("scenes-clip/fresh", "scenes", data_revision="2")
    with pytest.raises(InputError, match="limit = 0; expected a whole number from 1 on"):
        embed(Both(), data(), limit=0)
