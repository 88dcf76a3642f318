"""Covering arrays of strength 2: few cases in which any two values of two parameters occur together."""

from itertools import combinations, product


def covering_array(*parameters):
    """Tuples of a value of each parameter, such that every pair of values of two parameters is in one of them.

    Greedy and without chance: a tuple begins with the first pair that is missing, and each other parameter takes the
    value that adds most missing pairs.
    """
    parameters = [list(values) for values in parameters]
    missing = dict.fromkeys(
        ((i, a), (j, b))
        for i, j in combinations(range(len(parameters)), 2)
        for a, b in product(range(len(parameters[i])), range(len(parameters[j])))
    )
    cases = []
    while missing:
        chosen = dict(next(iter(missing)))
        for place in sorted(range(len(parameters)), key=lambda place: place not in chosen):
            values = range(len(parameters[place]))
            turned = [(value + len(cases)) % len(values) for value in values]  # among equals, each has its turn
            if place not in chosen:
                chosen[place] = max(turned, key=lambda value: len(missing.keys() & _pairs({**chosen, place: value})))
        for pair in _pairs(chosen):
            missing.pop(pair, None)
        cases.append(tuple(values[chosen[place]] for place, values in enumerate(parameters)))
    return cases


def _pairs(chosen):
    return set(combinations(sorted(chosen.items()), 2))
