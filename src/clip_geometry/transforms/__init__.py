"""Transforms of embeddings, and pipelines of them."""

from clip_geometry.registry import import_all
from clip_geometry.transforms.base import OntoTransform as OntoTransform
from clip_geometry.transforms.base import PairedTransform as PairedTransform
from clip_geometry.transforms.base import RankWarning as RankWarning
from clip_geometry.transforms.base import Transform as Transform
from clip_geometry.transforms.base import register as register
from clip_geometry.transforms.elementary import Center as Center
from clip_geometry.transforms.elementary import ClusterCenter as ClusterCenter
from clip_geometry.transforms.elementary import Normalize as Normalize
from clip_geometry.transforms.elementary import Scale as Scale
from clip_geometry.transforms.paired import LeastSquares as LeastSquares
from clip_geometry.transforms.paired import Procrustes as Procrustes
from clip_geometry.transforms.paired import Ridge as Ridge
from clip_geometry.transforms.pipeline import Affine as Affine
from clip_geometry.transforms.pipeline import Pipeline as Pipeline
from clip_geometry.transforms.principal import PCA as PCA
from clip_geometry.transforms.principal import AllButTheTop as AllButTheTop
from clip_geometry.transforms.principal import Conceptor as Conceptor
from clip_geometry.transforms.principal import Whiten as Whiten
from clip_geometry.transforms.unpaired import IsoCLIP as IsoCLIP
from clip_geometry.transforms.unpaired import ReAlign as ReAlign

import_all(__name__)  # a new file registers its transforms by being there
