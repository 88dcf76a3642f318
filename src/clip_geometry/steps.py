"""Parsing of pipelines, such as `normalize,whiten(128)[pooled]`."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, Registry, did_you_mean, parts, shown

# transforms are imported when a step other than normalize is used: scikit-learn's base classes take almost a second
transforms: Registry[type[Any]] = Registry(
    "pipeline step", "clip-geometry list transforms", more=("clip_geometry.transforms",)
)
NORMALIZE = "normalize"
SCOPES = ("pooled", "each")  # a scope may also be the name of a modality
ANY = "any"  # name of a set of no particular modality, whose chain applies to all modalities

_STEP = re.compile(r"(?P<name>[\w-]+)\s*(\((?P<values>[^()]*)\))?\s*(\[(?P<scope>[^\[\]]*)\])?")
_WORDS = {"true": True, "false": False, "none": None}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "none"}


@dataclass(frozen=True)
class Step:
    """A step of a pipeline: `center`, `whiten(128)[pooled]`, `procrustes[text-to-image]`, …

    Attributes:
        name: Name of the transform.
        scope: The sets on which the step is fitted. A modality ("image") or "pooled" fits one map for all sets; "each"
            fits one map per set. None also fits one map per set, but then measures across sets raise an error. Steps
            that map one set onto another have a direction instead ("text-to-image") and change only the source;
            "all-to-image" maps every other modality onto images. isoclip, which is fitted on two sets jointly, has
            None.
        parameters: (name, value) of the parameters that differ from their defaults, in the transform's order.

    Raises:
        InputError: The name is unknown, the transform does not take this scope, or a value is wrong.
    """

    name: str
    scope: str | None = None
    parameters: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self):
        if self.scope is not None:
            _check_scope(self, self.scope)
        if self.name != NORMALIZE or self.parameters:
            self.make().check()

    def __str__(self) -> str:
        arguments = []
        for key, value in self.parameters:
            is_positional = key == "k" or signature(self.name)[key].default is inspect.Parameter.empty
            arguments.append(_text(value) if is_positional else f"{key}={_text(value)}")
        values = f"({', '.join(arguments)})" if arguments else ""
        scope = f"[{self.scope}]" if self.scope else ""
        return f"{self.name}{values}{scope}"

    @property
    def fits(self) -> bool:
        """Whether the step is fitted on the rows."""
        return self.name != NORMALIZE and self.kind.fits

    @property
    def kind(self) -> type[Any]:
        """The class of the transform."""
        return transforms[self.name]

    def make(self) -> Any:
        """Return an unfitted instance of the transform."""
        return self.kind(**dict(self.parameters))

    def sides(self) -> tuple[str, str]:
        """Return (source, target) of a step that maps one set onto another; raise InputError if it has no direction."""
        if self.scope is None:
            raise InputError(
                f"{self} maps one modality onto the other: write {self}[text-to-image] or {self}[image-to-text]"
            )
        source, _, target = self.scope.partition("-to-")
        return source, target


def parse_pipeline(steps: str | Sequence[str | Step]) -> tuple[Step, ...]:
    """Parse the text of a pipeline into its steps.

    Args:
        steps: A pipeline, such as "normalize,whiten(128)[pooled]", or a list of steps. An empty pipeline leaves the
            rows unchanged.

    Returns:
        A list of steps, each with a name, a scope (the sets on which it is fitted, or None) and parameters.

    Raises:
        InputError: A name, scope or parameter is unknown, or a value is wrong.

    Example:
        >>> from clip_geometry.transforms import parse_pipeline
        >>> for step in parse_pipeline("normalize, pca(90, center=false)[text]"):
        ...     print(step.name, step.scope, step.parameters)
        normalize None ()
        pca text (('k', 90), ('center', False))
    """
    if not isinstance(steps, str | list | tuple):
        raise InputError(f"steps = {shown(steps)}; expected a pipeline such as 'normalize,center[each]', or its steps")
    parsed = []
    for step in filter(None, parts(steps) if isinstance(steps, str) else steps):
        parsed.append(step if isinstance(step, Step) else _parse_step(str(step).strip()))
    return tuple(parsed)


def _parse_step(text: str) -> Step:
    """Parse one step, such as `whiten(128)[pooled]`."""
    if text == NORMALIZE:
        return Step(text)
    match = _STEP.fullmatch(text)
    if match is None:
        raise InputError(f"pipeline step {shown(text)} is not of the form name, name(value, key=value) or name[scope]")
    name = match["name"]
    kind = transforms[name]
    positional = []
    named = {}
    misplaced = False
    for value in parts(match["values"] or ""):
        key, _, word = value.rpartition("=")
        misplaced |= key.strip() in named or bool(named and not key.strip())
        if key.strip():
            named[key.strip()] = word.strip()
        else:
            positional.append(word.strip())
    try:
        bound = inspect.signature(kind).bind(*positional, **named)
    except TypeError as error:
        raise InputError(f"pipeline step {shown(text)}: {error}; write {usage(name)}") from None
    if misplaced:
        raise InputError(f"pipeline step {shown(text)} has a value out of place or twice; write {usage(name)}")
    parameters = []
    for key, word in bound.arguments.items():
        value = _value(word, get_type_hints(kind.__init__)[key], f"{key} of pipeline step {shown(text)}")
        if value != bound.signature.parameters[key].default:
            parameters.append((key, value))
    return Step(name, match["scope"], tuple(parameters))


def _check_scope(step: Step, scope: str) -> None:
    """Raise InputError unless the scope is a direction, one of SCOPES or a modality, as the transform requires."""
    if not step.fits or step.kind.joint:
        reason = "is fitted on two modalities together" if step.kind.joint else "learns nothing"
        raise InputError(
            f"pipeline step {shown(step.name)} {reason} and takes no scope, but {shown(str(step))} was given"
        )
    what = "scope"
    expected = f"{', '.join(SCOPES)} or the name of a modality"
    names = [scope]
    if step.kind.onto:
        what = "direction"
        expected = "two modalities, as in text-to-image, or all-to-image for every other one"
        source, target = step.sides()
        names = [target if source == "all" else source, target if source != target else ""]
    try:
        for name in names:
            if step.kind.onto or name not in SCOPES:
                modality_name(name)
    except InputError:
        problem = f"pipeline step {shown(str(step))} has the unknown {what} {shown(scope)}"
        raise InputError(f"{problem}; expected {expected}") from None


def usage(name: str) -> str:
    """Return the syntax of a step: `pca(k, center=true)`."""
    words = []
    for key, parameter in signature(name).items():
        words.append(key if parameter.default is parameter.empty else f"{key}={_text(parameter.default)}")
    return f"{name}({', '.join(words)})" if words else name


def signature(name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a transform, in order."""
    return inspect.signature(transforms[name]).parameters


def _value(text: str, hint: Any, what: str) -> Any:
    """Convert `text` to one of the types that the annotation allows."""
    value = _WORDS.get(text.casefold(), text.strip("'\""))
    try:
        # a number may be given as text, but true, false and none are not numbers, and no other words stand for them
        return TypeAdapter(hint).validate_python(value, strict=hint is bool or not isinstance(value, str))
    except ValidationError:
        options = [str(_KINDS.get(option, option)) for option in get_args(hint) or (hint,)]
        near = did_you_mean(text, options)
        raise InputError(f"{what} is {shown(text)}; expected {' or '.join(options)}{near}") from None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | NoneType) else str(value)
