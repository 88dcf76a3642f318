# The public names of `clip_geometry.search`; __init__.py imports them at first use.

from .comparison import Candidate as Candidate
from .comparison import RepairComparison as RepairComparison
from .comparison import compare_repairs as compare_repairs
from .compression import TokenRows as TokenRows
from .compression.compressor import Compressor as Compressor
from .compression.compressor import read_compressor as read_compressor
from .held_out import search_index as search_index
from .index_map import IndexMap as IndexMap
from .index_map import map_index as map_index
from .matching.model import MatchModel as MatchModel
from .mixed_index import MixedIndex as MixedIndex
from .monitoring.parity import parity as parity
from .relevance import Relevance as Relevance
from .repairs import Known as Known
from .repairs import Repair as Repair
from .repairs import make_repair as make_repair
