"""Measure, explain, and repair the geometry of multimodal embeddings.

>>> import clip_geometry as cg

measure, compare        how isotropic embeddings are, how wide the gap is, and what changed, with standard errors
diagnose                what is wrong with an index of several modalities, and which repair helps
explore                 an interactive page of the embeddings
read, embed, export     embeddings from files, from models, and for other programs
Pipeline                transforms that are fitted on some embeddings and applied to others

geometry                measures as functions of arrays and tensors
transforms, evaluate, search, training, encoders, data

`dir(cg)` has all names, and `help(cg.measure)` explains one. They are imported at first use, so that importing the
package is instant; __init__.pyi says from where.
"""

from typing import Any

import lazy_loader

from clip_geometry.deprecation import DEPRECATED, deprecated

# no __all__: with it, help(clip_geometry) would print the help of every name
_import, _, _names = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("clip-geometry")
    if name in DEPRECATED:
        return deprecated(name, DEPRECATED[name])
    return _import(name)


def __dir__() -> list[str]:
    return sorted({*_names, "__version__"})
