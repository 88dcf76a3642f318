"""Cosines between and within types inside clusters, each cluster's mean subtracted (Cai et al. 2021)."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clip_geometry.geometry.cosine import average_cosine, inter_type_cosine, intra_type_cosine
from clip_geometry.registry import InputError
from clip_geometry.rows.matrix import Labels, as_codes, mean_row

ROUNDING = 1e-12  # of the mean's length: what subtracting it leaves of a row that is the mean


class AdjustedCosines(NamedTuple):
    """inter, intra: of each cluster, NaN where it has none (a single type; no type of two rows). sizes: rows of each.

    left_out: rows that are the mean of their cluster, which have no direction once it is subtracted.
    """

    inter: NDArray[np.float64]
    intra: NDArray[np.float64]
    sizes: NDArray[np.integer]
    left_out: int

    def mean(self, which: str, *, weighted: bool = False) -> float:
        """Mean of "inter" or "intra" over the clusters that have a value, each counted once as in the authors' code.

        weighted: by its rows. Raises InputError where no cluster has a value.
        """
        values = getattr(self, which)
        known = ~np.isnan(values)
        if not known.any():
            needed = "rows of two types" if which == "inter" else "two rows of one type"
            raise InputError(f"none of the {len(values)} clusters has {needed} once its mean is subtracted")
        return float(np.average(values[known], weights=self.sizes[known] if weighted else None))


def adjusted_type_cosines(x: np.ndarray, types: Labels, clusters: np.ndarray) -> AdjustedCosines:
    """inter_type_cosine and intra_type_cosine within each cluster, after the cluster's mean was subtracted; exactly.

    Per cluster c with mean μ_c the rows w − μ_c are compared, a type being the rows of it in c. One cluster: the values
    of centered rows. Clusters are in the order in which they first appear. x: (n, d), n ≥ 2; types, clusters: (n,).
    O(nd). Raises InputError for unusable rows. Source: Cai et al. 2021, section 4.
    """
    kinds, _ = as_codes(types, len(x), name="types")
    inter, intra, sizes, left_out = [], [], [], 0
    for cluster in dict.fromkeys(clusters.tolist()):
        members = np.flatnonzero(clusters == cluster)
        rows = torch.from_numpy(x[members])
        mean = mean_row(rows)
        shifted = rows.double() - mean
        kept = shifted.abs().amax(1) > ROUNDING * mean.abs().amax()  # a row that is the mean has no direction
        shifted, here = shifted[kept], kinds[members][kept]
        several = len(here.unique()) > 1
        inter.append(float(inter_type_cosine(shifted, here)) if several else np.nan)
        if len(here) < 2 or int(here.bincount().max()) < 2:
            intra.append(np.nan)
        else:  # of a single type it is the average cosine
            intra.append(float(intra_type_cosine(shifted, here) if several else average_cosine(shifted)))
        sizes.append(len(members))
        left_out += len(members) - len(shifted)
    return AdjustedCosines(np.array(inter), np.array(intra), np.array(sizes), left_out)
