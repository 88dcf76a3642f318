"""The grammar of pipelines: `normalize,whiten(128)[pooled],procrustes(completion=lapack)[text-to-image]`."""

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, did_you_mean, shown
from clip_geometry.transforms.base import Transform, transforms

SCOPES = ("pooled", "each")  # or the name of a modality
_STEP = re.compile(r"(?P<name>[\w-]+)\s*(\((?P<values>[^()]*)\))?\s*(\[(?P<scope>[^\[\]]*)\])?")
_WORDS = {"true": True, "false": False, "none": None}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}


@dataclass(frozen=True)
class Step:
    """One step as written: `center`, `whiten(128)[pooled]`, `procrustes[text-to-image]`, …

    Attributes:
        name: Of the transform.
        scope: The set a step is fitted on: a modality ("image") or "pooled" fit one map for all sets, "each" one per
            set. None also fits one per set, but then measures across sets are refused. Steps that map one set onto
            another have a direction instead ("text-to-image") and change only its source; "all-to-image" maps every
            other modality onto images. isoclip, which is fitted on two sets together, has None.
        parameters: Those that differ from their defaults, in the transform's order.
    """

    name: str
    scope: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        signature = _signature(self.name)
        written = [
            _text(value) if key == "k" or signature[key].default is inspect.Parameter.empty else f"{key}={_text(value)}"
            for key, value in self.parameters
        ]
        values, scope = f"({', '.join(written)})" if written else "", f"[{self.scope}]" if self.scope else ""
        return f"{self.name}{values}{scope}"

    def make(self) -> Transform:
        """Return the transform, not yet fitted."""
        return transforms[self.name](**dict(self.parameters))

    def sides(self) -> tuple[str, str]:
        """Return (source, target) of a step that maps one set onto another; raise InputError without a direction."""
        if self.scope is None:
            raise InputError(
                f"{self} maps one modality onto the other: write {self}[text-to-image] or {self}[image-to-text]"
            )
        source, _, target = self.scope.partition("-to-")
        return source, target


def parse_pipeline(steps: str | Sequence[str | Step]) -> tuple[Step, ...]:
    """Parse a pipeline.

    Args:
        steps: Such as "normalize,whiten(128)[pooled]", or a list of steps; an empty one leaves the rows as they are.

    Returns:
        The steps, parsed.

    Raises:
        InputError: For unknown names, scopes and parameters, and for wrong values.

    Example:
        >>> from clip_geometry import parse_pipeline
        >>> for step in parse_pipeline("normalize, pca(90, center=false)[text]"):
        ...     print(step.name, step.scope, step.parameters)
        normalize None ()
        pca text (('k', 90), ('center', False))
    """
    if not isinstance(steps, str | list | tuple):
        raise InputError(f"steps = {shown(steps)}; expected a pipeline such as 'normalize,center[each]', or its steps")
    parts = _split(steps) if isinstance(steps, str) else steps
    return tuple(parse_step(str(part)) for part in parts if str(part).strip())


def parse_step(text: str) -> Step:
    """Parse one step, such as `whiten(128)[pooled]`, and check its values."""
    match = _STEP.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"pipeline step {shown(text.strip())} is not of the form name, name(value, key=value) or name[scope]"
        )
    name, scope = match["name"], match["scope"]
    entry = transforms[name]
    if scope is not None and not entry.fits:
        raise InputError(f"pipeline step {shown(name)} learns nothing and takes no scope, but {shown(text)} was given")
    if scope is not None:
        if entry.joint:
            raise InputError(
                f"pipeline step {shown(name)} is fitted on two modalities together and takes no scope, but "
                f"{shown(text.strip())} was given"
            )
        _check(scope, text.strip(), onto=entry.onto)
    step = Step(name, scope, tuple(_parameters(name, match["values"] or "", text.strip())))
    step.make().check()
    return step


def _check(scope: str, text: str, *, onto: bool) -> None:
    """Raises InputError where the brackets of a step hold no direction, or neither one of SCOPES nor a modality."""
    names = scope.split("-to-") if onto else [scope]
    every = names[:1] == ["all"] if onto else scope in SCOPES
    try:
        for name in names[every:]:
            modality_name(name)
        well = len(names) == 2 and names[0] != names[1] if onto else True
    except InputError:
        well = False
    if not well and onto:
        raise InputError(
            f"pipeline step {shown(text)} has the unknown direction {shown(scope)}; expected two modalities, as in "
            "text-to-image, or all-to-image for every other one"
        )
    if not well:
        raise InputError(
            f"pipeline step {shown(text)} has the unknown scope {shown(scope)}; expected {', '.join(SCOPES)} or the "
            "name of a modality"
        )


def usage(name: str) -> str:
    """Return how a step is written: `pca(k, center=true)`."""
    words = [
        key if parameter.default is inspect.Parameter.empty else f"{key}={_text(parameter.default)}"
        for key, parameter in _signature(name).items()
    ]
    return f"{name}({', '.join(words)})" if words else name


def _split(text: str) -> Iterator[str]:
    """Yield the parts between commas that are not inside parentheses."""
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
    parameters = inspect.signature(transforms[name]).parameters.values()
    return {each.name: each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD}


def _parameters(name: str, values: str, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that are given and differ from their defaults. Values without a name come first."""
    signature = _signature(name)
    known, given = list(signature), dict[str, str]()
    parts = [part.strip() for part in values.split(",")] if values.strip() else []
    if parts and not known:
        raise InputError(f"{name} takes no parameters, but {shown(text)} was given")
    for position, part in enumerate(parts):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            if position >= len(known) or list(given) != known[:position]:
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
    hints = get_type_hints(transforms[name].__init__)
    for key, parameter in signature.items():
        if key in given:
            value = _value(given[key], hints[key], key, text)
            if value != parameter.default:
                yield key, value
        elif parameter.default is inspect.Parameter.empty:
            raise InputError(f"pipeline step {shown(text)} lacks {key}: write {usage(name)} with a value for it")


def _value(text: str, hint: Any, key: str, step: str) -> Any:
    """Return `text` as one of the types that the annotation allows."""
    value = _WORDS.get(text.casefold(), text.strip("'\""))
    try:
        # a number may be a string here; true, false and none may not stand for one, nor other words for them
        return TypeAdapter(hint).validate_python(value, strict=hint is bool or not isinstance(value, str))
    except ValidationError:
        options = [str(_KINDS.get(option, option)) for option in get_args(hint) or (hint,)]
        near = did_you_mean(text, options)
        raise InputError(
            f"{key} of pipeline step {shown(step)} is {shown(text)}; expected {' or '.join(options)}{near}"
        ) from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | NoneType) else str(value)
