"""How often the interval of `cg.search.map_index` holds the recall that the whole re-embedded index shows.

python scripts/index_map_coverage.py --draws 40 --rows 300    # about a minute on one core
"""

import argparse

import numpy as np

import clip_geometry as cg

SIZE, QUERIES, K = 5000, 1000, 10


def two_models(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two nonlinear models of the same clustered items; the first one is more or less noisy."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(30, 8))[rng.integers(30, size=SIZE + QUERIES)]
    items = items + 0.7 * rng.normal(size=items.shape)
    noise = (0.2, 0.5, 1.0, 2.0)[seed % 4]
    old = items @ rng.normal(size=(8, 24)) + noise * rng.normal(size=(len(items), 24))
    return old, np.tanh(items @ rng.normal(size=(8, 16)) / 4) + 0.05 * rng.normal(size=(len(items), 16))


def recall(queries: np.ndarray, mapped: np.ndarray, new: np.ndarray) -> float:
    near = [np.argpartition(-queries @ items.T, K - 1, axis=1)[:, :K] for items in (mapped, new)]
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(*near, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--rows", type=int, default=300, help="re-embedded rows of 5,000")
    options = parser.parse_args()
    inside, deviations = [], []
    for seed in range(options.draws):
        old, new = two_models(seed)
        rows = np.random.default_rng(seed).permutation(SIZE)[: options.rows]
        index_map = cg.search.map_index(old[:SIZE], new[rows], rows, k=K, candidates=["ridge(0.01)"], seed=seed)
        unit = cg.transforms.Normalize().transform(new)
        true = recall(unit[SIZE:], index_map.transform(old[:SIZE]), unit[:SIZE])
        inside.append(index_map.interval[0] <= true <= index_map.interval[1])
        deviations.append((index_map.recall - true) / index_map.standard_error)
        print(
            f"seed {seed}: predicted {index_map.recall:.3f} ± {index_map.standard_error:.3f}, recall {true:.3f}",
            flush=True,
        )
    print(f"the 95% interval held the recall in {sum(inside)} of {options.draws} draws")
    print(f"deviations in standard errors: mean {np.mean(deviations):+.2f}, spread {np.std(deviations):.2f}")


if __name__ == "__main__":
    main()
