"""Two-sided retrieval by its definition: loops over queries and numpy."""

import numpy as np


def by_query(scores, grades, query, k):
    """The numbers of each query. scores, grades: modality → (n, items), of which the query itself is one of its own.

    Ties: the items are sorted in Python by score, and within a run of equal scores by grade, own modality first.
    """
    names = [query, *(name for name in scores if name != query)]
    found = []
    for i in range(len(scores[query])):
        items = [
            (scores[name][i, j], grades[name][i, j], rank, name)
            for rank, name in enumerate(names)
            for j in range(scores[name].shape[1])
            if not (name == query and j == i)
        ]
        relevant = {name: sum(g > 0 for _, g, _, of in items if of == name) for name in names}
        total = sum(relevant.values())
        first = best_first(items)[:k]
        own = best_first([item for item in items if item[3] == query])[:k]
        gains = [grade for _, grade, _, _ in first]
        ideal = sorted((grade for _, grade, _, _ in items), reverse=True)[:k]
        values = {"ndcg": ratio(dcg(gains), dcg(ideal)), "precision": np.mean(np.array(gains) > 0)}
        values["own_precision"] = np.mean([g > 0 for _, g, _, _ in own]) if relevant[query] else np.nan
        values["own_share"] = np.mean([of == query for *_, of in first])
        found.append(values if total else dict.fromkeys(values, np.nan))
    return {key: np.array([each[key] for each in found]) for key in found[0]}


def best_first(items):
    ranked = sorted(items, key=lambda item: -item[0])
    runs = [[ranked[0]]]
    for item in ranked[1:]:
        (runs[-1].append if runs[-1][-1][0] == item[0] else lambda new: runs.append([new]))(item)
    return [item for run in runs for item in sorted(run, key=lambda item: (item[1], item[2]))]


def ratio(a, b):
    return a / b if b else np.nan


def dcg(gains):
    return sum(gain / np.log2(2 + place) for place, gain in enumerate(gains))


def clip_benchmark(image, text, image_of_text, k):
    """LAION's CLIP_benchmark, metrics/zeroshot_retrieval.py: a query is right if any positive is among its top k."""
    scores = (
        text / np.linalg.norm(text, axis=1, keepdims=True) @ (image / np.linalg.norm(image, axis=1, keepdims=True)).T
    )
    positive = np.zeros(scores.shape, bool)
    positive[np.arange(len(text)), image_of_text] = True

    def recall(scores, positive):
        top = np.argsort(-scores, axis=1)[:, :k]
        true = np.take_along_axis(positive, top, axis=1).sum(1)
        return (true / positive.sum(1) > 0).mean()

    return {"text_to_image": recall(scores, positive), "image_to_text": recall(scores.T, positive.T)}
