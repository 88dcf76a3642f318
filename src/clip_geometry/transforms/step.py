"""The grammar of pipelines: `normalize,whiten(128)[pooled],procrustes(completion=lapack)[text-to-image]`."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, did_you_mean, parts, shown
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
        known = signature(self.name)
        written = [
            _text(value) if key == "k" or known[key].default is inspect.Parameter.empty else f"{key}={_text(value)}"
            for key, value in self.parameters
        ]
        values, scope = f"({', '.join(written)})" if written else "", f"[{self.scope}]" if self.scope else ""
        return f"{self.name}{values}{scope}"

    @property
    def kind(self) -> type[Transform]:
        """The class of the transform."""
        return transforms[self.name]

    def make(self) -> Transform:
        """Return the transform, not yet fitted."""
        return self.kind(**dict(self.parameters))

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
    texts = parts(steps) if isinstance(steps, str) else [str(step).strip() for step in steps]
    return tuple(_parse_step(text) for text in texts if text)


def _parse_step(text: str) -> Step:
    """Parse one step, such as `whiten(128)[pooled]`, and check its values."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise InputError(f"pipeline step {shown(text)} is not of the form name, name(value, key=value) or name[scope]")
    name, scope = match["name"], match["scope"]
    if scope is not None:
        _check_scope(scope, text, transforms[name])
    step = Step(name, scope, tuple(_parameters(name, parts(match["values"] or ""), text)))
    step.make().check()
    return step


def _check_scope(scope: str, text: str, kind: type[Transform]) -> None:
    """Raises InputError where the brackets of a step hold no direction, or neither one of SCOPES nor a modality."""
    if not kind.fits or kind.joint:
        why = "is fitted on two modalities together" if kind.joint else "learns nothing"
        raise InputError(f"pipeline step {shown(kind.name)} {why} and takes no scope, but {shown(text)} was given")
    if kind.onto:
        names = scope.split("-to-")
        modalities = names[1:] if names[0] == "all" else names
        well = len(names) == 2 and names[0] != names[1]
        what, expected = "direction", "two modalities, as in text-to-image, or all-to-image for every other one"
    else:
        modalities, well = [] if scope in SCOPES else [scope], True
        what, expected = "scope", f"{', '.join(SCOPES)} or the name of a modality"
    try:
        for name in modalities:
            modality_name(name)
    except InputError:
        well = False
    if not well:
        raise InputError(f"pipeline step {shown(text)} has the unknown {what} {shown(scope)}; expected {expected}")


def usage(name: str) -> str:
    """Return how a step is written: `pca(k, center=true)`."""
    words = [
        key if parameter.default is inspect.Parameter.empty else f"{key}={_text(parameter.default)}"
        for key, parameter in signature(name).items()
    ]
    return f"{name}({', '.join(words)})" if words else name


def signature(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a transform in their order."""
    return inspect.signature(transforms[name]).parameters


def _parameters(name: str, values: Sequence[str], text: str) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that are given and differ from their defaults. Values without a name come first."""
    given = [[word.strip() for word in value.rpartition("=")] for value in values]
    unnamed = [value for key, _, value in given if not key]
    named = {key: value for key, _, value in given if key}
    try:
        bound = inspect.signature(transforms[name]).bind(*unnamed, **named)
    except TypeError as error:
        raise InputError(f"pipeline step {shown(text)}: {error}; write {usage(name)}") from None
    if len(unnamed) + len(named) < len(given) or any(key for key, *_ in given[: len(unnamed)]):
        raise InputError(f"pipeline step {shown(text)} has a value out of place or twice; write {usage(name)}")
    hints = get_type_hints(transforms[name].__init__)
    for key, written in bound.arguments.items():
        value = _value(written, hints[key], key, text)
        if value != bound.signature.parameters[key].default:
            yield key, value


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
