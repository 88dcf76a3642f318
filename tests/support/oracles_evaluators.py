"""The definitions of the evaluators, written as plainly as possible: loops, scipy and scikit-learn, float64."""

import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score, roc_auc_score, top_k_accuracy_score


def unit(x):
    return x / np.sqrt((x**2).sum(1, keepdims=True))


def contrastive_loss(image, text, scale, batch_size):
    """(image_to_text, text_to_image): lists of −log softmax at the pair, batch after batch."""
    u, v = unit(image), unit(text)
    to_text, to_image = [], []
    for start in range(0, len(u), batch_size):
        a, b = u[start : start + batch_size], v[start : start + batch_size]
        for i in range(len(a)):
            to_text.append(logsumexp([scale * (a[i] @ row) for row in b]) - scale * (a[i] @ b[i]))
            to_image.append(logsumexp([scale * (row @ b[i]) for row in a]) - scale * (a[i] @ b[i]))
    return np.mean(to_text), np.mean(to_image)


def logits(image, class_text, kind):
    if kind == "cosine":
        return unit(image) @ unit(class_text).T
    if kind == "dot":
        return np.array([[(x * t).sum() for t in class_text] for x in image])
    return -cdist(image, class_text)


def zero_shot(image, labels, class_text, kind):
    """scikit-learn's three accuracies."""
    scores = logits(image, class_text, kind)
    found = {
        "top_1": top_k_accuracy_score(labels, scores, k=1, labels=range(len(class_text))),
        "mean_per_class": recall_score(labels, scores.argmax(1), labels=np.unique(labels), average="macro"),
    }
    if len(class_text) > 5:
        found["top_5"] = top_k_accuracy_score(labels, scores, k=5, labels=range(len(class_text)))
    return found


def ensemble(rows, classes):
    means = [unit(rows)[np.equal(classes, c)].mean(0) for c in range(max(classes) + 1)]
    return unit(np.array(means))


def logistic_loss(x, codes, weights, bias, C):
    """Mean cross-entropy + ‖weights‖²/(2Cn)."""
    scores = x @ weights + bias
    entropy = [logsumexp(row) - row[code] for row, code in zip(scores, codes, strict=True)]
    return np.mean(entropy) + (weights**2).sum() / (2 * C * len(x))


def least_logistic_loss(x, codes, k, C):
    """Its minimum, by a generic optimizer with numerical care only; k > 2: k weight vectors, k = 2: one, against 0."""
    columns = 1 if k == 2 else k
    x = np.hstack([x - x.mean(0), np.ones((len(x), 1))])
    truth = np.eye(k)[codes][:, -columns:]
    penalty = np.vstack([np.full((x.shape[1] - 1, columns), 1 / C), np.zeros((1, columns))]) / len(x)

    def value_and_gradient(flat):
        w = flat.reshape(-1, columns)
        scores = x @ w
        full = np.hstack([np.zeros((len(x), 1)), scores]) if k == 2 else scores
        logs = full - logsumexp(full, axis=1, keepdims=True)
        gradient = x.T @ (np.exp(logs)[:, -columns:] - truth) / len(x) + penalty * w
        return -logs[np.arange(len(x)), codes].mean() + (penalty * w**2).sum() / 2, gradient.ravel()

    start = np.zeros(x.shape[1] * columns)
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10}
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options).fun


def exact_logistic(x, codes, C):
    """scikit-learn's model by Newton's method until rounding stops its line search, which it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression(C=C, solver="newton-cg", tol=1e-14, max_iter=1000).fit(x, codes)


def sklearn_probe(train_x, train_y, test_x, test_y, C):
    """The published probe: (top_1, mean_per_class)."""
    guess = LogisticRegression(C=C, max_iter=1000).fit(train_x, train_y).predict(test_x)
    return (guess == np.array(test_y)).mean(), recall_score(test_y, guess, labels=np.unique(test_y), average="macro")


def ranks(query, gallery, pairs, excluded):
    """1 + how many rows of the gallery, but pairs of the query and the excluded one, are as near as its nearest pair.

    pairs: for each query a list of rows of the gallery.
    """
    u, v = unit(query), unit(gallery)
    found = []
    for i, row in enumerate(u):
        others = [j for j in range(len(v)) if j not in (*pairs[i], excluded[i])]
        nearest = max(row @ v[j] for j in pairs[i])
        found.append(1 + sum(row @ v[j] >= nearest - 1e-15 for j in others))
    return np.array(found)


def retrieval(image, text, k, index, pairs=None):
    pairs = [(i, i) for i in range(len(image))] if pairs is None else list(zip(*pairs, strict=True))
    back = [(j, i) for i, j in pairs]
    found = {}
    for own, other, those, name, way in (
        (image, text, pairs, "image", "image_to_text"),
        (text, image, back, "text", "text_to_image"),
    ):
        n = len(own)
        right = [[j for i, j in those if i == query] for query in range(n)]
        if index == "cross":
            places = ranks(own, other, right, [None] * n)
        else:
            both = np.vstack([own, other])
            places = ranks(own, both, [[n + j for j in each] for each in right], range(n))
            cosines = unit(own) @ unit(both).T
            cosines[np.arange(n), np.arange(n)] = -np.inf
            for top in k:
                nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :top]
                found[f"{name}.same_modality_at_{top}"] = (nearest < n).mean()
        found |= {f"{way}.r_at_{top}": (places <= top).mean() for top in k}
        found[f"{way}.median_rank"] = np.median(places)
    return found


def language_distance(source, target):
    cross = cdist(source, target)
    apart = ~np.eye(len(source), dtype=bool)
    pairs, everything = np.diag(cross).mean(), cross[apart].mean()
    return {
        "pair_distance": pairs,
        "global_distance": everything,
        "ratio": pairs / everything,
        "within_source": pdist(source).mean(),
        "within_target": pdist(target).mean(),
    }


def cosine_distributions(image, text):
    """Everything exactly, from all n² cosines."""
    cosines = unit(image) @ unit(text).T
    apart = ~np.eye(len(image), dtype=bool)
    found = {}
    for name, values in (("matching", np.diag(cosines)), ("random", cosines[apart])):
        found |= {f"{name}.mean": values.mean(), f"{name}.std": values.std()}
        found |= {f"{name}.q{q:02d}": np.quantile(values, q / 100) for q in (5, 25, 50, 75, 95)}
    found["auc"] = roc_auc_score(np.eye(len(image)).ravel(), cosines.ravel())
    return found
