import pytest

from clip_geometry_experiments.published.comparing import flat, matches

ROW = {
    "measure": "isotropy_i1[rows]",
    "value": 0.8,
    "standard_error": None,
    "n": 500,
    "pipeline": ["normalize", "whiten(128)[each]"],
    "model": "open_clip:ViT-B-32/fresh",
    "model_options": {"seed": 1, "zero_bias": True, "image": {"batch_norm": "eval"}},
    "at": {"modality": "text", "layer": None},
}


@pytest.mark.parametrize(
    "where",
    [
        {},
        {"measure": "isotropy_i1[rows]", "at.modality": "text"},  # brackets are no pattern
        {"pipeline": "normalize,whiten(128)[each]"},
        {"pipeline": ("normalize", "normalize,*")},
        {"model": "*:ViT-B-32/*", "n": 500},
        {"model_options.zero_bias": True, "model_options.image.batch_norm": "eval"},
        {"standard_error": None, "at.layer": None, "at.split": (None, "test")},
    ],
)
def test_fulfilled(where):
    assert matches(flat(ROW), where)


@pytest.mark.parametrize(
    "where",
    [
        {"measure": "isotropy_i1"},
        {"at.modality": ("image", None)},
        {"pipeline": "normalize"},
        {"pipeline": ""},
        {"model": "ViT-B-32*"},
        {"model_options.seed": True},  # 1 is not true
        {"model_options.zero_bias": 1},
        {"n": "500"},
        {"at.split": "test"},
        {"measure": "isotropy_i1[rows]", "n": 501},
    ],
)
def test_not_fulfilled(where):
    assert not matches(flat(ROW), where)


def test_raw_rows_have_an_empty_pipeline():
    assert matches(flat({"pipeline": []}), {"pipeline": ""}) and matches(flat({}), {"pipeline": ""})
