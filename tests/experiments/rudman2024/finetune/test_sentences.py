"""The best method is named with its ties, and a correlation only where there are enough trainings."""

from clip_geometry_experiments.rudman2024.finetune.figures import sentences


def rows(performance, seeds=3, spread=0.0, error=0.01):
    """performance: λ of I-STAR → accuracy; IsoScore is 0.1 of λ more than 0.5."""
    found = []
    for value, accuracy in performance.items():
        for seed in range(seeds):
            at = {"method": "i_star", "lambda": float(value), "training.seed": seed}
            score = accuracy + spread * (seed - (seeds - 1) / 2)
            found.append({
                "measure": "finetune.performance", "value": score, "standard_error": error,
                "at": {**at, "metric": "accuracy"},
            })  # fmt: skip
            found.append({"measure": "isoscore", "value": 0.5 + 0.1 * value, "at": {**at, "rows": "tokens"}})
    return found


def test_a_clear_winner_is_named_with_the_next_and_the_last():
    best, isotropy = sentences({"sst2": rows({-1: 0.9, 0.5: 0.8, 1: 0.7}, spread=0.01)})
    assert best == (
        "The best accuracy on validation examples is 0.9000 ± 0.0058 with I-STAR, λ = −1; the next is 0.8000 ± 0.0058 "
        "with I-STAR, λ = 0.5 and the lowest 0.7000 ± 0.0058 with I-STAR, λ = 1 (± over 3 seeds)."
    )
    assert isotropy.startswith("IsoScore of the tokens goes from 0.4000 (I-STAR, λ = −1) to 0.6000 (I-STAR, λ = 1)")
    assert isotropy.endswith("over 9 trainings its correlation with performance is −0.96.")


def test_methods_within_two_standard_errors_tie():
    best, _ = sentences({"sst2": rows({-1: 0.9, 0.5: 0.89, 1: 0.5}, spread=0.01)})
    assert "with I-STAR, λ = −1, in a tie with I-STAR, λ = 0.5; the lowest is 0.5000" in best
    every, _ = sentences({"sst2": rows({-1: 0.9, 1: 0.89}, spread=0.01)})
    assert "all 2 methods tie within two standard errors, down to 0.8900" in every
