"""The public names, of the top level and of the subpackages."""

from types import ModuleType

import clip_geometry as cg

SUBPACKAGES = [name for name in dir(cg) if isinstance(getattr(cg, name), ModuleType)]
HOMES = {"cg": cg, **{f"cg.{name}": getattr(cg, name) for name in SUBPACKAGES}}
PUBLIC = {  # name → what it is; some names of `training` need an optional library
    name: getattr(package, name)
    for home, package in HOMES.items()
    if home != "cg.training"
    for name in dir(package)
    if name not in (*SUBPACKAGES, "__version__")
} | {name: getattr(cg.training, name) for name in ("CosReg", "IStar", "SIGReg")}
