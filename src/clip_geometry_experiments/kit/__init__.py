"""Code that several experiments share."""
