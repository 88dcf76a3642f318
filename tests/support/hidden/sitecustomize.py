"""Of a process that runs commands of a page: modules that the page does not install cannot be imported."""

import os
import sys

sys.modules.update(dict.fromkeys(os.environ.get("CLIP_GEOMETRY_HIDDEN", "").split()))  # None: ModuleNotFoundError
