"""docs/performance.md out of what the benchmarks wrote: ours, the peer, the ratio, and on which machine."""

from collections.abc import Mapping

HEAD = """# Performance

Made by `python scripts/build_docs.py` from `benchmarks/results/`, which the benchmarks wrote. Ours and the peer ran in
turn, each in a fresh process, on the same data: median seconds, the highest memory above what the process held before,
how many times faster ours is, and the largest difference of the two values. *claimed* is what the benchmark fails
without; where nothing is claimed the figure is shown as it came out. [benchmarks/README.md](../benchmarks/README.md)
says how to run them.
"""
GPU = """
## On a GPU

Not measured yet: no machine with a GPU was at hand when these figures were taken. What waits for one, and is tested
in the Triton interpreter or on a CPU until then:

    python benchmarks/silhouette_gpu.py --tune      # exact Euclidean silhouette of 10⁶ × 512 rows: under 10 s claimed
    python benchmarks/embed.py                      # CIFAR-100 through ViT-B/32: 5 × the plain loop claimed
"""


def performance_page(outputs: Mapping[str, dict]) -> str:
    """The page. outputs: by benchmark, what its --json wrote."""
    return HEAD + "".join(f"\n{_section(name, output)}" for name, output in outputs.items()) + GPU


def _section(name: str, output: dict) -> str:
    machine = output["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    peers = ", ".join(dict.fromkeys(row["peer"] for row in output["rows"]))
    lines = [
        f"## benchmarks/{name}.py",
        "",
        "| what | size | ours | peer | faster | memory ours | peer | difference | claimed |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
        *(_line(row) for row in output["rows"]),
        "",
        f"Peer: {peers}. {machine['date']}, {machine['cores']}-core {machine['cpu']}, "
        f"Python {machine['python']}, {versions}.",
    ]
    notes = [f"- {row['contest']}: {note}" for row in output["rows"] for note in row.get("notes", [])]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _line(row: dict) -> str:
    size = ", ".join(f"{key} = {value}" for key, value in row["size"].items())
    seconds, memory = row["seconds"], row["megabytes"]
    cells = [
        row["contest"],
        size,
        f"{seconds['ours']:.3g} s",
        f"{seconds['peer']:.3g} s",
        f"{row['ratio']:.1f} ×",
        f"{memory['ours']:.0f} MB",
        f"{memory['peer']:.0f} MB",
        f"{row['difference']:.0e}",
        _claims(row),
    ]
    return f"| {' | '.join(cells)} |"


def _claims(row: dict) -> str:
    faster, memory = row["claims"]["faster"], row["claims"]["memory"]
    claims = [f"≥ {faster:g} ×"] if faster else []
    claims += [f"≤ {memory:g} of its memory"] if memory else []
    return ", ".join(claims) + ("" if row["held"] else ": **not held**")
