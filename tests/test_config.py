from itertools import pairwise

import pytest

from clip_geometry.config import Config, digest, parse_overrides, read_yaml, validate
from clip_geometry.io.reading import parse_yaml
from clip_geometry.registry import InputError


class Inner(Config):
    depth: int = 1


class Outer(Config):
    name: str
    sizes: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    inner: Inner = Inner()


def test_plain_values_become_a_config():
    found = validate(Outer, {"name": "a", "sizes": [3], "rate": 1, "inner": {"depth": 2}}, "here")
    assert found == Outer(name="a", sizes=(3,), rate=1.0, inner=Inner(depth=2))


class Several(Config):
    inners: tuple[Inner, ...] = ()


def test_a_key_inside_a_list_of_sections_names_its_neighbors():
    with pytest.raises(InputError, match=r"unknown key 'inners\.1\.dept'; did you mean 'depth'"):
        validate(Several, {"inners": [{"depth": 1}, {"dept": 1}]}, "here")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nam": "a"}, "here: key 'name' is missing"),
        ({"name": "a", "sise": [1]}, "here: unknown key 'sise'; did you mean 'sizes'?"),
        ({"name": "a", "inner": {"dept": 1}}, "here: unknown key 'inner.dept'; did you mean 'depth'?"),
        ({"name": "a", "zzz": 1}, "here: unknown key 'zzz'; known are inner, name, rate, sizes"),
        ({"name": 1}, "here: key 'name' is 1: input should be a valid string"),
        ({"name": "a", "sizes": ["1"]}, "here: key 'sizes.0' is '1': input should be a valid integer"),
        ({"name": "a", "rate": "fast"}, "here: key 'rate' is 'fast': input should be a valid number"),
    ],
)
def test_mistakes_are_one_sentence(values, message):
    with pytest.raises(InputError) as error:
        validate(Outer, values, "here")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


BOMB = "a: &a [1, 1]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnop"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!python/object:os.system x", "line 1: could not determine a constructor for the tag"),
        ("a: !mine 1", "could not determine a constructor"),
        ("a: [1, 2", "line"),
        ("a: 1\na: 2", "line 1: key 'a' appears twice"),
        ("b:\n  a: 1\n  a: 2", "key 'a' appears twice"),
        ("a: &a [*a]", "its aliases .* expand to more than"),
        (BOMB, "expand to"),
        ("a: " + "[" * 500, "maximum recursion depth"),
        ("{" * 500, "maximum recursion depth"),
        ("? [1]\n: 2", "a key is .1.; a name was expected"),
        ("a: 2020-13-45", "month must be in"),
        ("- 1", "holds list; a YAML mapping was expected"),
        ("", "is empty"),
    ],
)
def test_unusable_yaml(tmp_path, text, message):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_yaml(path)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file in UTF-8"):
        read_yaml(tmp_path / "binary.yaml")


def test_overrides_are_yaml():
    found = parse_overrides(["seed=1", "model.zero_bias=true", "pipeline=[normalize, center]", "name=a=b"])
    assert found == {"seed": 1, "model.zero_bias": True, "pipeline": ["normalize", "center"], "name": "a=b"}
    for wrong, message in [
        ("seed", "not of the form key=value"),
        ("=1", "not of the form"),
        ("a=[1", "not plain YAML"),
    ]:
        with pytest.raises(InputError, match=message):
            parse_overrides([wrong])


def test_digest_depends_on_every_field_and_not_on_the_order():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest(Outer(name="a")) != digest(Outer(name="a", inner=Inner(depth=2)))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-.5", -0.5),
        ("2.", 2.0),
        ("1_000", 1000),
        ("0x1F", 31),
        (".inf", float("inf")),
        ("1:30", "1:30"),
        (":".join(["1"] * 100_000), ":".join(["1"] * 100_000)),  # in base 60, this takes minutes
        ("9" * 6000, "9" * 6000),  # int refuses more than 4,300 digits with a traceback
    ],
)
def test_numbers_are_those_of_yaml_1_2(text, value):
    found = parse_yaml(f"a: {text}", "x")["a"]
    assert (found, type(found)) == (value, type(value))
