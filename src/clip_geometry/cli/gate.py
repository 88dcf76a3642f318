"""The command that records what an index is, and checks later whether it still is."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Exit, Option

import clip_geometry as cg
from clip_geometry.cli import options
from clip_geometry.registry import InputError

CHANGED = 1


def gate(
    action: Annotated[Literal["init", "check"], Argument(help="init: record the index; check: compare it")],
    paths: options.Sources,
    out: Annotated[Path | None, Option("-o", "--out", help="init: the new .json file of the baseline")] = None,
    baseline: Annotated[Path | None, Option(help="check: the file that init wrote")] = None,
    queries: Annotated[Path | None, Option(help="check: a log of query embeddings, which should fit the index")] = None,
    checks: Annotated[int, Option(help="init: number of checks in the life of the baseline", min=1)] = 365,
    error_rate: Annotated[
        float, Option(help="init: probability of a false alarm in any of them", min=1e-9, max=0.999)
    ] = 0.05,
    json_file: Annotated[Path | None, Option("--json", help="check: also write everything to this new file")] = None,
    seed: Annotated[int, Option(help="seed of samples", min=0, max=2**32 - 1)] = 0,
) -> None:
    """Says whether an index is still the same.

    If it is not, check says what changed. Its exit status is 0 if nothing changed beyond the tolerance, 1 if something
    did, and 2 for an error.
    """
    given = {"--out": out, "--baseline": baseline, "--queries": queries, "--json": json_file}
    needed, other = ("--out", ("--baseline", "--queries", "--json")) if action == "init" else ("--baseline", ("--out",))
    for name in other:
        if given[name] is not None:
            raise InputError(f"gate {action} does not take {name}; see clip-geometry gate --help")
    if given[needed] is None:
        raise InputError(f"gate {action} needs {needed} with the .json file of the baseline")
    options.check_ending(needed, given[needed], ".json")
    options.check_paths(*paths, queries)

    from clip_geometry.display.table import say
    from clip_geometry.files import claimed, write_text

    if out is not None:
        with claimed(out) as target:
            cg.gate(*paths, checks=checks, error_rate=error_rate, seed=seed).save(target)
        say(f"baseline: {out} ({out.stat().st_size / 1e6:.2f} MB)")
        return
    stored = cg.read_gate(baseline or "")
    if json_file is None:
        result = stored.check(*paths, queries=queries, seed=seed)
    else:
        with claimed(json_file) as target:
            result = stored.check(*paths, queries=queries, seed=seed)
            write_text(target, result.to_json())
    result.table().print()
    if result.changed:
        raise Exit(CHANGED)
