"""The repairs as a table of text: for the terminal and for the report of a run."""

from clip_geometry.search.comparison import AIMS, Candidate, RepairComparison
from clip_geometry.search.held_out import NUMBERS

SHOWN = ("both", "mrr", "r_at_1", "kept", "cross_r_at_1", "neighbors", "precision")  # on a terminal
HEADINGS = {"cross_r_at_1": "recall"}
SPARE = (">neighbors", ">precision", ">r_at_1", ">kept")  # left out where a terminal is too narrow
BY_LABELS = ("precision", "ndcg")  # pairs do not say what else is relevant


def numbers_of(compared: RepairComparison) -> list[str]:
    """Return the numbers that mean something where relevance is known as it is here."""
    return [name for name in NUMBERS if compared.facts["relevant_by"] == "labels" or name not in BY_LABELS]


def by_aim(compared: RepairComparison) -> list[Candidate]:
    """Return the repairs, those that find most first."""
    return sorted(compared.candidates.values(), key=lambda each: -each.numbers[compared.aim].value)


def narrow(compared: RepairComparison) -> tuple[tuple[str, ...], list[list[str]], dict[str, str]]:
    """Return columns, rows and what each column means, for 80 characters: the goal's number alone has its error."""
    names = [compared.aim, *(name for name in numbers_of(compared) if name in SHOWN and name not in AIMS.values())]
    rows = []
    for each in by_aim(compared):
        value = each.numbers[compared.aim]
        others = (each.numbers.get(name) for name in names[1:])
        serving = each.serving
        needs = f"{serving.indexes} × {serving.columns:,}" if serving.indexes > 1 else f"{serving.columns:,}"
        rows.append(
            [
                each.name,
                f"{value.value:.3f} ± {value.error:.3f}",
                *("–" if other is None else f"{other.value:.3f}" for other in others),
                f"{needs} +" if serving.reranker else needs,
                compared.state(each.name),
            ]
        )
    heads = [HEADINGS.get(name, name) for name in names]
    means = {head: NUMBERS[name] for head, name in zip(heads, names, strict=True)}
    means["columns"] = "number of indexes × columns of their rows; +: a reranker"
    return ("repair", *(f">{head}" for head in heads), ">columns", "verdict"), rows, means


def conditions(compared: RepairComparison) -> str:
    """Say how the numbers were made: sizes, splits, seed."""
    facts = compared.facts
    fitted, index, queries = (
        " and ".join(f"{n:,} {name}" for name, n in facts[key].items()) for key in ("fitted_on", "index", "queries")
    )
    whole = [name for name in facts.get("whole", ()) if len(facts["index"]) > 1]
    unsplit = (
        f"; {' and '.join(whole)} rows are not split: maps are tried with those they were fitted on" if whole else ""
    )
    unused = facts.get("unused_labels", ())
    unread = f"; labels of {' and '.join(unused)} rows alone are not used" if unused else ""
    return (
        f"relevant by {facts['relevant_by']}; {facts['splits']} random halves (seed {facts['seed']}): fitted on "
        f"{fitted} rows, an index of {index} rows searched with {queries} queries; ± standard error over items; costs "
        f"are judged by paired differences, beyond two standard errors{unsplit}{unread}"
    )
