"""What fine-tunings with and without a penalty on isotropy say: which method is best, and whether isotropy helps."""

from collections.abc import Mapping, Sequence

from clip_geometry.display.numbers import plus_minus
from clip_geometry_experiments.report.findings import differ
from clip_geometry_experiments.rudman2024.finetune.figures import (
    PERFORMANCE,
    TOKENS,
    Row,
    label,
    metric,
    over_seeds,
    relation,
    words,
)


def sentences(runs: Mapping[str, Sequence[Row]]) -> list[str]:
    """The best methods with ties, and IsoScore beside performance. runs: task → its rows."""
    found = []
    for task, rows in runs.items():
        performance, isoscore = over_seeds(rows, PERFORMANCE), over_seeds(rows, "isoscore", TOKENS)
        errors = {
            (row["at"]["method"], row["at"].get("lambda", row["at"].get("components", 0))): row.get("standard_error")
            for row in rows
            if row["measure"] == PERFORMANCE and row.get("standard_error") is not None
        }
        means = {}
        for each, values in performance.items():  # the error is over seeds, of one seed over the validation examples
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else errors.get((each.name, each.value))
            means[each] = {"value": float(values.mean()), "standard_error": None if error is None else float(error)}
        ranked = sorted(means.items(), key=lambda item: -item[1]["value"])
        if not ranked:
            continue
        best = ranked[0][1]
        texts = [(label(each), plus_minus(row["value"], row["standard_error"])) for each, row in ranked]
        ties = [text for text, (_, row) in zip(texts, ranked, strict=True) if not differ(row, best)]
        known = all(row["standard_error"] is not None for _, row in ranked)
        where = task if len(runs) > 1 else ""
        seeds = max(map(len, performance.values()))
        found.append(words("best", metric(rows), ties, texts, seeds, where, known))
        trained, r, count = relation(isoscore, performance)
        if len(runs) == 1 and len(trained) > 1:
            ends = sorted((float(isoscore[each].mean()), label(each)) for each in trained)
            found.append(words("isotropy", ends[0], ends[-1], r, count))
    return found
