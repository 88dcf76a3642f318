"""Which estimate of isotropy to use when, in words and with the numbers that were found."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from clip_geometry.report.numbers import fixed

Key = tuple[str, int, str, float | None]  # cloud, n, estimator, ζ
Numbers = Mapping[Key, Mapping[str, float]]  # "bias", "standard_deviation", "rmse", "ratio_bias", "truth"
PLAIN, UNBIASED, STAR = "isoscore", "isoscore[unbiased]", "isoscore_star"


def which_when(numbers: Numbers, n: int, zetas: Sequence[float]) -> str:
    """A paragraph: the errors at n, the least of each size, and what follows. Empty where nothing is known of n."""
    clouds = list(dict.fromkeys(cloud for cloud, _, _, _ in numbers))
    told = [_errors(numbers, cloud, n, zetas) for cloud in clouds]
    if not any(told):
        return ""
    least = [f"{cloud}: {_least(numbers, cloud, zetas)}" for cloud in clouds]
    return " ".join(
        filter(
            None,
            (
                f"At n = {n}:",
                *told,
                f"The smallest RMSE among these: {'; '.join(least)}.",
                _same_truth(numbers, n),
                "So, to report a value: the unbiased score. To train on batches: IsoScore*, whose value is as good as "
                "its C_0, which must be recent and of many rows. Plain IsoScore: where n is many times d.",
            ),
        )
    )


def labels(zetas: Sequence[float]) -> dict[str, tuple[str, float | None]]:
    """What the estimates are called."""
    stars: dict[str, tuple[str, float | None]] = {f"IsoScore* (ζ = {zeta:g})": (STAR, zeta) for zeta in zetas}
    return {"plain": (PLAIN, None), "unbiased": (UNBIASED, None), **stars}


def _errors(numbers: Numbers, cloud: str, n: int, zetas: Sequence[float]) -> str:
    """`Gaussian: plain bias −0.677 (RMSE 0.677), …, and with the best of all ζ, 1, −0.060 (0.060).`"""
    parts = []
    for label, of in labels(zetas).items():
        each = numbers.get((cloud, n, *of), {})
        if "rmse" in each:
            left = ""
            if "ratio_bias" in each:
                left = f", of which the division of its parts makes {fixed(each['ratio_bias'], 4)}"
            parts.append(f"{label} bias {fixed(each['bias'], 3)}{left} (RMSE {fixed(each['rmse'], 3)})")
    stars = {z: each for (c, m, e, z), each in numbers.items() if (c, m, e) == (cloud, n, STAR) and z is not None}
    if stars:
        best = min(stars, key=lambda zeta: stars[zeta]["rmse"])
        parts.append(
            f"and with the best of all ζ, {best:g}, {fixed(stars[best]['bias'], 3)} ({fixed(stars[best]['rmse'], 3)})"
        )
    return f"{cloud}: {', '.join(parts)}." if parts else ""


def _least(numbers: Numbers, cloud: str, zetas: Sequence[float]) -> str:
    """`IsoScore* (ζ = 0.8) at n = 8, unbiased at n = 16 to 2048`"""
    runs: list[tuple[str, list[int]]] = []
    for n in sorted({n for c, n, _, _ in numbers if c == cloud}):
        errors = {
            label: numbers.get((cloud, n, *of), {}).get("rmse", float("inf")) for label, of in labels(zetas).items()
        }
        label = min(errors, key=lambda each: errors[each])
        if runs and runs[-1][0] == label:
            runs[-1][1].append(n)
        else:
            runs.append((label, [n]))
    return ", ".join(f"{label} at n = {sizes[0]}{f' to {sizes[-1]}' if sizes[1:] else ''}" for label, sizes in runs)


def _same_truth(numbers: Numbers, n: int) -> str:
    """What the plain score makes of two clouds that are equally isotropic, where there are such."""
    plain = {cloud: each for (cloud, m, e, _), each in numbers.items() if (m, e) == (n, PLAIN)}
    for (a, x), (b, y) in combinations(plain.items(), 2):
        if abs(x["truth"] - y["truth"]) < 1e-9:
            values = [fixed(each["truth"] + each["bias"], 3) for each in (x, y)]
            return (
                f"Two clouds of the same true score {fixed(x['truth'], 3)} have plain scores of {values[0]} ({a}) and "
                f"{values[1]} ({b}) on average, with the same n."
            )
    return ""
