"""A toy measure of each statistic, registered as a user would, and what every mode gives for it: printed as JSON."""

import json
import sys

import numpy as np
import typer.testing

import clip_geometry as cg
from clip_geometry import catalog, embeddings
from clip_geometry.cli import app
from clip_geometry.geometry.kinds import in_kind
from clip_geometry.geometry.statistics import (
    ClassDistances,
    CrossKernelSums,
    KernelSums,
    LinearKernels,
    Means,
    ModalityDistances,
    Moments,
    Neighbors,
    PairDistance,
    Partition,
    Projections,
    Spectrum,
    UnitPairs,
    UnitSums,
)


def ratio(found):
    return found.own / found.nearest


# statistic: what its toy takes, and the toy, a short function of it
TOYS = {
    Moments: ("rows", lambda found: found.M2.diagonal().max() / found.M2.trace()),
    UnitSums: ("rows", lambda found: found.mean.square().sum()),
    Spectrum: ("rows", lambda found: found.singular_values(center=True)[0] / found.n**0.5),
    Partition: ("rows", lambda found: found.forward.logaddexp(found.backward).mean()),
    KernelSums: ("rows", lambda found: found.log_mean(0.5)),
    Neighbors: ("rows", lambda found: found.nearest(3)[0].mean()),
    ClassDistances: ("labeled rows", lambda found: found.mean(ratio, "cosine")),
    Means: ("two sets", lambda found: (found.image - found.text).abs().sum()),
    ModalityDistances: ("two sets", lambda found: found.mean(ratio, "sqeuclidean")),
    Projections: ("two sets", lambda found: found.transport(64, 0).rest),
    UnitPairs: ("pairs", lambda found: found.apart / found.n),
    PairDistance: ("pairs", lambda found: (found.apart / found.n).sqrt()),
    CrossKernelSums: ("pairs", lambda found: found.log_mean(0.5)),
    LinearKernels: ("pairs", lambda found: found.between / found.n),
}
IN_MEMORY = {"toy_Projections"}  # whose rows have to be


def register(statistic, takes, formula):
    def toy(*sets):
        return formula(statistic.of(*sets))

    name = f"toy_{statistic.__name__}"
    entry = {
        "title": f"Toy of {statistic.__name__}", "group": "spread", "takes": takes, "summary": "A toy.",
        "reading": "Anything.", "caveat": "It is a toy.", "formula": "f(statistic)", "range": [None, None],
        "direction": "none", "invariances": [], "reference": "this test", "least_n": 8,
    }  # fmt: skip
    measure = cg.geometry.Measure(name, in_kind(toy), statistic=statistic, streams=name not in IN_MEMORY)
    cg.geometry.add_measure(measure, entries={name: entry})
    return name


def numbers(names, **given):
    frame = cg.measure(SETS, labels=LABELS, measures=names, **given).frame
    columns = ("value", "standard_error", "null_value")
    return {
        f"{row['measure']} {row['set']}": [None if row[each] is None else float(row[each]) for each in columns]
        for row in frame.to_dict("records")
    }


if __name__ == "__main__":
    NAMES = [register(statistic, *toy) for statistic, toy in TOYS.items()]
    rng = np.random.default_rng(0)
    items = rng.normal(size=(120, 6)) * [2, 1.5, 1, 1, 0.5, 0.5] + [1, 0, 0, 0, 0, 0]
    SETS = {"image": items + 0.3 * rng.normal(size=(120, 6)), "text": items + 0.5 * rng.normal(size=(120, 6)) + 0.4}
    LABELS = np.arange(120) % 3
    direct = {}
    for measure_name in NAMES:
        measure = cg.geometry.measures[measure_name]
        unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in SETS.items()}
        sets = {"rows": [unit["image"]], "labeled rows": [unit["image"], LABELS]}.get(measure.takes, [*unit.values()])
        direct[measure_name] = [float(measure(*sets)), float(cg.geometry.standard_error(measure_name, *sets))]
    found = {"direct": direct, "memory": numbers(NAMES)}
    listed = typer.testing.CliRunner().invoke(app, ["list", "measures", NAMES[0]])
    found["listed"] = listed.stdout
    found["table"] = cg.measure(SETS, labels=LABELS, measures=NAMES)._repr_html_()
    found["titles"] = [catalog.describe(name).title for name in NAMES]
    embeddings.LARGE = 0
    found["streamed"] = numbers(NAMES)
    with cg.open_engine("local") as engine:
        found["engine"] = numbers([name for name in NAMES if name not in IN_MEMORY], engine=engine)
    json.dump(found, sys.stdout)
