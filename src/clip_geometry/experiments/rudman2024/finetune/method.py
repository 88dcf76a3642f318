"""The methods that are compared, as a config spells them: none, i_star(-1), cosreg(1), all_but_the_top(3)."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from clip_geometry.losses import CosReg, IStar
from clip_geometry.losses.running import Batch
from clip_geometry.registry import InputError

NONE, I_STAR, COSREG, TOP = "none", "i_star", "cosreg", "all_but_the_top"
FORMS = f"{I_STAR}(λ), {COSREG}(λ), {TOP}(k), {NONE}"
WRITTEN = re.compile(r"(\w+)(?:\(([^()]+)\))?")


@dataclass(frozen=True)
class Method:
    """value: λ of a loss that is added; of all_but_the_top the number of components removed; of none 0."""

    name: str
    value: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name == NONE else f"{self.name}({self.value:g})"

    def at(self) -> dict[str, object]:
        """For the `at` of rows."""
        if self.name == TOP:
            return {"method": self.name, "components": int(self.value)}
        return {"method": self.name, "lambda": self.value}


def parse_method(text: str) -> Method:
    """λ = 0 adds nothing, so that i_star(0) and cosreg(0) are none. Raises InputError for anything but FORMS."""
    match = WRITTEN.fullmatch(text.strip())
    name = match[1] if match else ""
    if match is None or name not in (NONE, I_STAR, COSREG, TOP) or (match[2] is None) != (name == NONE):
        raise InputError(f"{text!r} is not how a method is written; expected one of {FORMS}")
    return Method(name) if name == NONE else _with_value(name, match[2], text)


def _with_value(name: str, written: str, text: str) -> Method:
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise InputError(f"{text!r} has no number between its brackets; expected one of {FORMS}")
    if name == TOP and (value < 1 or value != int(value)):
        raise InputError(f"{text!r} removes {written} components; expected a whole number from 1 on")
    return Method(NONE) if value == 0 else Method(name, value)


class Penalty(nn.Module):
    """What a method adds to the loss of a task: λ (1 − IsoScore*) of all layers, λ × mean cosine of the last, or 0."""

    def __init__(self, method: Method, zeta: float):
        super().__init__()
        self.loss: IStar | CosReg | None = None
        if method.name == I_STAR:
            self.loss = IStar(method.value, zeta=zeta)
        elif method.name == COSREG:
            self.loss = CosReg(method.value)

    def forward(self, hidden: Sequence[Tensor], mask: Tensor) -> Tensor | None:
        """hidden: (b, t, d) of every layer. mask: (b, t), 1 where there is a token. None where nothing is added."""
        if self.loss is None:
            return None
        return self.loss(list(hidden), mask) if isinstance(self.loss, IStar) else self.loss(hidden[-1], mask)

    def refresh(self, batches: Callable[[], Iterable[Batch]]) -> None:
        """A new C_0 from all layers of batches, each with its mask; they are made only where there is one."""
        if isinstance(self.loss, IStar):
            self.loss.refresh(batches())
