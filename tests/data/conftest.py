from support.data_files import *  # noqa: F403
