from support.encoder_files import *  # noqa: F403
