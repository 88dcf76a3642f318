"""Experiments: a folder each, imported when its name is asked for. Folders of papers hold several; `kit` is shared."""
