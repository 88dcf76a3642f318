"""Search in a mixed index: relevance, held-out search, checks, repairs, their comparison, and export."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
