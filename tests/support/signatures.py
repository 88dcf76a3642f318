"""beartype, whose check of a signature is made once: jaxtyping asks for it whenever a nested function is defined."""

import beartype

CHECKS = {}


def checked(function):
    """function: What jaxtyping makes of a signature; it does nothing else, so that one serves all with the same."""
    key = function.__module__, function.__qualname__, function.__code__, str(function.__annotations__)
    return CHECKS.get(key) or CHECKS.setdefault(key, beartype.beartype(function))
