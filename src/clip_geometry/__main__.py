"""`python -m clip_geometry`: the command line, where the command itself is not on the path."""

from clip_geometry.cli import main

main()
