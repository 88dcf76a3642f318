"""Everything that comes from outside, and files for other programs.

`reading` guards what is read: a schema, sizes checked against the file and the memory, nothing executed. On top of it,
a module is a format, its reader beside its writer, and catalog.yaml says what it holds. `sources` finds the format of a
path and names the sets in it, `labels` reads their labels, and `export` writes them.
"""
