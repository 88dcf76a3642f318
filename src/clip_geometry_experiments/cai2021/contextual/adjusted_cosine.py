"""Cosines between and within types inside clusters, each cluster's mean subtracted (Cai et al. 2021)."""

from typing import NamedTuple

import torch
from torch import Tensor

from clip_geometry.geometry.cosine import average_cosine, inter_type_cosine, intra_type_cosine
from clip_geometry.geometry.kinds import Value, Values, in_kind
from clip_geometry.registry import InputError
from clip_geometry.rows.arguments import Flag, flag, one_of
from clip_geometry.rows.matrix import Labels, Rows, as_codes, as_rows, mean_row

ROUNDING = 1e-12  # of the mean's length: what subtracting it leaves of a row that is the mean


class AdjustedCosines(NamedTuple):
    """inter, intra: of each cluster, NaN where it has none (a single type; no type of two rows). sizes: rows of each.

    left_out: rows that are the mean of their cluster, which have no direction once it is subtracted.
    """

    inter: Values
    intra: Values
    sizes: Values
    left_out: int

    def mean(self, which: str, *, weighted: Flag = False) -> Value:
        """Mean over the clusters that have a value, each counted once as in the authors' code; weighted: by its rows.

        Raises InputError where no cluster has one.
        """
        which, weighted = one_of(which, "which", ("inter", "intra")), flag(weighted, "weighted")
        values = torch.as_tensor(getattr(self, which))
        known = ~values.isnan()
        if not known.any():
            needed = "rows of two types" if which == "inter" else "two rows of one type"
            raise InputError(f"none of the {len(values)} clusters has {needed} once its mean is subtracted")
        weights = torch.as_tensor(self.sizes)[known].double() if weighted else torch.ones_like(values[known])
        mean = (values[known] * weights).sum() / weights.sum()
        return mean if isinstance(self.sizes, Tensor) else mean.item()


@in_kind
def adjusted_type_cosines(x: Rows, types: Labels, clusters: Labels) -> AdjustedCosines:
    """inter_type_cosine and intra_type_cosine within each cluster, after the cluster's mean was subtracted; exactly.

    Per cluster c with mean μ_c the rows w − μ_c are compared, a type being the rows of it in c. One cluster: the values
    of centered rows. Clusters are in the order in which they first appear. x: (n, d), n ≥ 2; types, clusters: (n,).
    O(nd). Raises InputError for unusable rows and labels. Source: Cai et al. 2021, section 4.
    """
    x = as_rows(x)
    kinds, _ = as_codes(types, len(x), name="types")
    cluster, k = as_codes(clusters, len(x), name="clusters", least=1)
    inter, intra, sizes, left_out = [], [], [], 0
    for code in range(k):
        members = (cluster == code).nonzero()[:, 0]
        rows = x[members.to(x.device)]
        mean = mean_row(rows)
        shifted = rows.double() - mean
        kept = shifted.abs().amax(1) > ROUNDING * mean.abs().amax()  # a row that is the mean has no direction
        shifted, here = shifted[kept], kinds[members][kept.cpu()]
        several = len(here.unique()) > 1
        inter.append(float(inter_type_cosine(shifted, here)) if several else float("nan"))
        if len(here) < 2 or int(here.bincount().max()) < 2:
            intra.append(float("nan"))
        else:  # of a single type it is the average cosine
            intra.append(float(intra_type_cosine(shifted, here) if several else average_cosine(shifted)))
        sizes.append(len(members))
        left_out += len(members) - len(shifted)
    between, within = (torch.tensor(each, dtype=torch.float64) for each in (inter, intra))
    return AdjustedCosines(between, within, torch.tensor(sizes), left_out)
