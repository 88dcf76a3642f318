"""The examples in the docstrings of the exported names run and print what they say."""

import doctest
import sys

import pytest

import clip_geometry

# exported names without an example yet: may shrink, never grow
MISSING = {
    "add_measure",
    "alignment",
    "average_cosine",
    "checked_silhouette",
    "cone",
    "conformity",
    "conformity_std",
    "coordinate_spread",
    "coordinate_std",
    "effective_rank",
    "embed",
    "Embeddings",
    "hubness",
    "InputError",
    "inter_type_cosine",
    "intra_type_cosine",
    "isoscore",
    "isoscore_star",
    "linear_cka",
    "load_encoder",
    "local_intrinsic_dimension",
    "matching_cosine",
    "Measure",
    "measure_sets",
    "MeasuredSets",
    "min_pairwise_cosine",
    "modality_gap",
    "modality_silhouette",
    "Moments",
    "mutual_knn",
    "null_value",
    "open_engine",
    "pair",
    "paired_image_model",
    "participation_ratio",
    "partition_isotropy",
    "partition_over",
    "permutation_test",
    "PermutationTest",
    "random_cosine",
    "read_rows",
    "read_store",
    "relative_modality_gap",
    "resolve_encoder",
    "Results",
    "run",
    "sampled_silhouette",
    "silhouette",
    "silhouette_samples",
    "singular_values",
    "standard_error",
    "to_frame",
    "two_nn",
    "uniformity",
    "variant",
}


def examples():
    """(name, its doctest) of every exported name, and the names without one."""
    finder, found, without = doctest.DocTestFinder(recurse=False), [], set()
    for name in clip_geometry.__all__:
        exported = getattr(clip_geometry, name)
        module = sys.modules[getattr(exported, "__module__", None) or clip_geometry.__name__]
        documented = (callable(exported) and getattr(exported, "__doc__", None)) or ""
        if ">>>" in documented:
            found.extend(pytest.param(test, id=name) for test in finder.find(exported, name, module, globs={}))
        elif callable(exported):
            without.add(name)
    return found, without


EXAMPLES, WITHOUT = examples()


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert tried and not failed, "".join(said)


def test_exported_names_without_an_example_become_fewer():
    assert WITHOUT <= MISSING, f"exported names without an example: {sorted(WITHOUT - MISSING)}"
    assert MISSING <= WITHOUT, f"have an example now, take them off MISSING: {sorted(MISSING - WITHOUT)}"
