# The public names at the top level; __init__.py imports them at first use.

from . import data as data
from . import encoders as encoders
from . import evaluate as evaluate
from . import geometry as geometry
from . import search as search
from . import training as training
from . import transforms as transforms
from .embedding.engines import open_engine as open_engine
from .embedding.loop import embed as embed
from .embedding.store import read_store as read_store
from .embeddings import Embeddings as Embeddings
from .embeddings import pair as pair
from .explorer import Exploration as Exploration
from .explorer import explore as explore
from .geometry.statistics.moments import Moments as Moments
from .io.export import export as export
from .io.sources import read as read
from .io.sources import read_embeddings as read_embeddings
from .measuring.comparison import Change as Change
from .measuring.comparison import Comparison as Comparison
from .measuring.comparison import compare as compare
from .measuring.measurement import Estimate as Estimate
from .measuring.measurement import Measurement as Measurement
from .measuring.records import measure as measure
from .measuring.records import measure_sets as measure_sets
from .measuring.sets import MeasuredSets as MeasuredSets
from .registry import InputError as InputError
from .results import Record as Record
from .results import Results as Results
from .results import read_rows as read_rows
from .results import to_frame as to_frame
from .search.checks import Finding as Finding
from .search.compression import Compression as Compression
from .search.compression import compress as compress
from .search.diagnosis import Diagnosis as Diagnosis
from .search.diagnosis import diagnose as diagnose
from .search.matching import Match as Match
from .search.matching import match as match
from .search.matching import read_match as read_match
from .search.monitoring import Baseline as Baseline
from .search.monitoring import GateCheck as GateCheck
from .search.monitoring import gate as gate
from .search.monitoring import read_gate as read_gate
from .transforms.pipeline import Pipeline as Pipeline

__version__: str
