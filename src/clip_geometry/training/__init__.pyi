# The public names of `clip_geometry.training`; __init__.py imports them at first use.

from .curves import plot_training as plot_training
from .lightning import LightningGeometry as LightningGeometry
from .losses import CosReg as CosReg
from .losses import IStar as IStar
from .losses import SIGReg as SIGReg
from .metrics import EmbeddingGeometry as EmbeddingGeometry
from .monitor import CollapseAlarm as CollapseAlarm
from .monitor import CollapseWarning as CollapseWarning
from .monitor import GeometryMonitor as GeometryMonitor
from .sentence_transformers import GeometryEvaluator as GeometryEvaluator
from .transformers import GeometryCallback as GeometryCallback

PREFIX: str
