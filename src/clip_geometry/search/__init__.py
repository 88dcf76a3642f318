"""Everything about a mixed index: relevance, search, checks, repairs, their comparison, and shipping."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
