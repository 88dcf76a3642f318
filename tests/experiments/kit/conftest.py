from support.data_files import *  # noqa: F403
from support.encoder_files import *  # noqa: F403
