"""The grammar of pipelines: what is written is read, what is read is written the same way, mistakes are named."""

import re
from pathlib import Path

import pytest

from clip_geometry.config import read_yaml
from clip_geometry.registry import InputError
from clip_geometry.steps import Step, parse_pipeline, transforms, usage


def test_strings_and_lists_are_the_same():
    assert parse_pipeline("normalize, center[pooled]") == parse_pipeline(["normalize", "center[pooled]"])
    assert parse_pipeline("normalize,center[pooled]") == (Step("normalize"), Step("center", "pooled"))
    assert parse_pipeline("") == parse_pipeline([]) == parse_pipeline(" , ") == ()
    assert parse_pipeline([Step("center", "pooled"), "normalize"])[0] == Step("center", "pooled")


@pytest.mark.parametrize(
    ("text", "step", "written"),
    [
        ("center", Step("center"), "center"),
        ("whiten(128)[pooled]", Step("whiten", "pooled", (("k", 128),)), "whiten(128)[pooled]"),
        ("whiten( k = 128 ) [pooled]", Step("whiten", "pooled", (("k", 128),)), "whiten(128)[pooled]"),
        ("pca(90,center=True)[text]", Step("pca", "text", (("k", 90),)), "pca(90)[text]"),
        ("pca(90, false)", Step("pca", None, (("k", 90), ("center", False))), "pca(90, center=false)"),
        ("pca(center=false, k=9)", Step("pca", None, (("k", 9), ("center", False))), "pca(9, center=false)"),
        ("cluster_center(8,3)", Step("cluster_center", None, (("k", 8), ("seed", 3))), "cluster_center(8, seed=3)"),
        ("procrustes[text-to-image]", Step("procrustes", "text-to-image"), "procrustes[text-to-image]"),
        (
            "procrustes(completion='lapack')[image-to-text]",
            Step("procrustes", "image-to-text", (("completion", "lapack"),)),
            "procrustes(completion=lapack)[image-to-text]",
        ),
        ("least_squares(1e-6)", Step("least_squares", None, (("rcond", 1e-6),)), "least_squares(rcond=1e-06)"),
    ],
)  # fmt: skip
def test_steps_round_trip(text, step, written):
    (result,) = parse_pipeline(text)
    assert (result, str(result)) == (step, written)
    assert parse_pipeline(written) == (step,)
    assert result.make().get_params() == transforms[result.name](**dict(step.parameters)).get_params()


def test_commas_inside_parentheses_do_not_split():
    text = "normalize,pca(90, center=false)[text],cluster_center(8, seed=3)[each],normalize"
    steps = parse_pipeline(text)
    assert [step.name for step in steps] == ["normalize", "pca", "cluster_center", "normalize"]
    assert ",".join(map(str, steps)) == text


def test_usage_is_what_may_be_written():
    assert usage("normalize") == "normalize"
    assert usage("pca") == "pca(k=none, center=true)"
    assert usage("least_squares") == "least_squares(rcond=none)"


@pytest.mark.parametrize(("text", "said"), read_yaml(Path(__file__).with_name("wrong_pipelines.yaml")).items())
def test_mistakes(text, said):
    with pytest.raises(InputError, match=re.escape(said)):
        parse_pipeline(text)
