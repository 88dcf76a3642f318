"""The grammar of a pipeline: `normalize,whiten(128)[pooled],procrustes(completion=lapack)[text-to-image]`."""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from clip_geometry.registry import InputError, did_you_mean, shown
from clip_geometry.transforms.base import Transform, transforms

SCOPES = ("image", "text", "pooled", "each")
DIRECTIONS = ("text-to-image", "image-to-text", "source-to-target")
_STEP = re.compile(r"(?P<name>[\w-]+)\s*(\((?P<values>[^()]*)\))?\s*(\[(?P<scope>[^\[\]]*)\])?")
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}


@dataclass(frozen=True)
class Step:
    """One step as written: `center`, `whiten(128)[pooled]`, `procrustes[text-to-image]`, …

    scope: what a fitted step is fitted on: "image", "text" or "pooled" fit one object for all sets, "each" one per
    set. Without a scope each set is fitted by itself too, but measures across sets are then refused. Steps that map
    one set onto another have a direction instead, and only its first side is moved.
    parameters: those that are not left at their defaults, in the transform's order.
    """

    name: str
    scope: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        signature = _signature(self.name)
        written = [
            _text(value) if signature[key].default is inspect.Parameter.empty else f"{key}={_text(value)}"
            for key, value in self.parameters
        ]
        values, scope = f"({', '.join(written)})" if written else "", f"[{self.scope}]" if self.scope else ""
        return f"{self.name}{values}{scope}"

    def make(self) -> Transform:
        """The transform, not yet fitted."""
        return transforms[self.name].make(**dict(self.parameters))

    def sides(self) -> tuple[str, str]:
        """(source, target) of a step that maps one set onto the other; InputError where it does not say."""
        if self.scope is None:
            raise InputError(
                f"{self} maps one modality onto the other: write {self}[text-to-image] or {self}[image-to-text]"
            )
        source, _, target = self.scope.partition("-to-")
        return source, target


def parse_pipeline(steps: str | Sequence[str | Step]) -> tuple[Step, ...]:
    """`"normalize,whiten(128)[pooled]"` or a list of steps; an empty string or list is the raw rows."""
    if not isinstance(steps, str | list | tuple):
        raise InputError(f"steps = {shown(steps)}; expected a pipeline such as 'normalize,center[each]', or its steps")
    parts = _split(steps) if isinstance(steps, str) else steps
    return tuple(parse_step(str(part)) for part in parts if str(part).strip())


def parse_step(text: str) -> Step:
    """`whiten(128)[pooled]` as a Step; unknown names, scopes and parameters are InputErrors, wrong values too."""
    match = _STEP.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"pipeline step {shown(text.strip())} is not of the form name, name(value, key=value) or name[scope]"
        )
    name, scope = match["name"], match["scope"]
    entry = transforms[name]
    if scope is not None and not entry.fits:
        raise InputError(f"pipeline step {shown(name)} learns nothing and takes no scope, but {shown(text)} was given")
    known = DIRECTIONS if entry.paired else SCOPES
    if scope is not None and scope not in known:
        raise InputError(
            f"pipeline step {shown(text)} has the unknown {'direction' if entry.paired else 'scope'} {shown(scope)}"
            f"{did_you_mean(scope, known) or '; known are ' + ', '.join(known)}"
        )
    step = Step(name, scope, tuple(_parameters(name, match["values"] or "", text.strip())))
    step.make().check()
    return step


def usage(name: str) -> str:
    """How a step is written: `pca(k, center=true)`."""
    words = [
        key if parameter.default is inspect.Parameter.empty else f"{key}={_text(parameter.default)}"
        for key, parameter in _signature(name).items()
    ]
    return f"{name}({', '.join(words)})" if words else name


def _split(text: str) -> Iterator[str]:
    """The parts between commas that stand in no parentheses."""
    depth = start = 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth < 0:
            raise InputError(
                f"pipeline {shown(text)} closes a parenthesis that was not opened, at {shown(text[position:])}"
            )
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth:
        raise InputError(f"pipeline {shown(text)} has a parenthesis that is not closed")
    yield text[start:]


def _signature(name: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(transforms[name].make).parameters.values()
    return {each.name: each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}


def _parameters(name: str, values: str, text: str) -> Iterator[tuple[str, Any]]:
    """What is given for each parameter and is not its default."""
    signature = _signature(name)
    given = _assigned(name, values, text, list(signature))
    hints = get_type_hints(transforms[name].make.__init__) if signature else {}
    for key, parameter in signature.items():
        required = parameter.default is inspect.Parameter.empty
        if key not in given and required:
            raise InputError(f"pipeline step {shown(text)} lacks {key}: write {usage(name)} with a value for it")
        if key in given:
            value = _value(given[key], hints[key], key, text)
            if required or value != parameter.default:
                yield key, value


def _assigned(name: str, values: str, text: str, known: list[str]) -> dict[str, str]:
    """Parameter → its text. Values without a name come first, in the transform's order."""
    given: dict[str, str] = {}
    parts = [part.strip() for part in values.split(",")] if values.strip() else []
    if parts and not known:
        raise InputError(f"{name} takes no parameters, but {shown(text)} was given")
    for position, part in enumerate(parts):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            if position >= len(known) or len(given) < position or list(given) != known[:position]:
                raise InputError(
                    f"pipeline step {shown(text)} has the value {shown(part)} out of place: write {usage(name)}"
                )
            key, value = known[position], part
        if key not in known:
            raise InputError(
                f"pipeline step {shown(text)} has the unknown parameter {shown(key)}"
                f"{did_you_mean(key, known) or '; ' + name + ' takes ' + ', '.join(known)}"
            )
        if key in given:
            raise InputError(f"pipeline step {shown(text)} gives {key} twice")
        given[key] = value
    return given


def _value(text: str, hint: Any, key: str, step: str) -> Any:
    """`text` as one of the types that the annotation allows."""
    options = (hint,) if get_origin(hint) in (None, Literal) else get_args(hint)
    literals = [choice for option in options if get_origin(option) is Literal for choice in get_args(option)]
    for option in (*options, *literals):
        found, value = _converted(text, option)
        if found:
            return value
    expected = literals + [_KINDS[option] for option in options if option in _KINDS]
    near = did_you_mean(text, literals)
    raise InputError(f"{key} of pipeline step {shown(step)} is {shown(text)}; expected {' or '.join(expected)}{near}")


def _converted(text: str, option: Any) -> tuple[bool, Any]:
    word = text.casefold()
    if option is bool and word in ("true", "false"):
        return True, word == "true"
    if option is NoneType and word == "none":
        return True, None
    if isinstance(option, str) and text.strip("'\"") == option:
        return True, option
    if option in (int, float):
        try:
            return True, option(text)
        except ValueError:
            return False, None
    return False, None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | NoneType) else str(value)
