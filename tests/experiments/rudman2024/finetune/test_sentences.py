"""The best method is named with its ties, and a correlation only where there are enough trainings."""

from clip_geometry_experiments.rudman2024.finetune.figures import sentences


def rows(performance, seeds=3, error=0.01):
    """performance: λ of I-STAR → accuracy; IsoScore is 0.1 of λ more than 0.5. Last: over all seeds."""
    found = []
    for value, accuracy in performance.items():
        at = {"method": "i_star", "lambda": float(value)}
        for seed in range(seeds):
            iso = {"measure": "isoscore", "value": 0.5 + 0.1 * value}
            found.append(iso | {"at": {**at, "training.seed": seed, "rows": "tokens"}})
        pooled = {**at, "training.seed": "all", "seeds": seeds, "metric": "accuracy"}
        found.append({"measure": "finetune.performance", "value": accuracy, "standard_error": error, "at": pooled})
    at = {"method": "i_star", "training.seed": "all", "of": "isoscore", "with": "finetune.performance"}
    return [*found, {"measure": "finetune.pearson", "value": -0.96, "n": seeds * len(performance), "at": at}]


def test_a_clear_winner_is_named_with_the_next_and_the_last():
    best, isotropy = sentences({"sst2": rows({-1: 0.9, 0.5: 0.8, 1: 0.7})})
    assert best == (
        "The best accuracy on validation examples is 0.900 ± 0.010 with I-STAR, λ = −1; the next is 0.800 ± 0.010 "
        "with I-STAR, λ = 0.5 and the lowest 0.700 ± 0.010 with I-STAR, λ = 1 (± over 3 seeds and the examples)."
    )
    assert isotropy.startswith("IsoScore of the tokens goes from 0.4000 (I-STAR, λ = −1) to 0.6000 (I-STAR, λ = 1)")
    assert isotropy.endswith("over 9 trainings its correlation with performance is −0.96.")


def test_methods_within_two_standard_errors_tie():
    best, _ = sentences({"sst2": rows({-1: 0.9, 0.5: 0.89, 1: 0.5})})
    assert "with I-STAR, λ = −1, in a tie with I-STAR, λ = 0.5; the lowest is 0.500" in best
    every, _ = sentences({"sst2": rows({-1: 0.9, 1: 0.89})})
    assert "all 2 methods tie within two standard errors, down to 0.890" in every
