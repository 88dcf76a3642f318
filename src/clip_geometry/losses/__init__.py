"""Penalties on the geometry of hidden states, for anybody's training loop."""

from clip_geometry.losses.cosreg import CosReg
from clip_geometry.losses.istar import IStar
from clip_geometry.losses.running import RunningCovariance
from clip_geometry.losses.sigreg import SIGReg

__all__ = ["CosReg", "IStar", "RunningCovariance", "SIGReg"]
