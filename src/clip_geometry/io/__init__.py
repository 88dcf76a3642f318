"""Readers for files from users and other programs, and exports to other programs.

`reading` reads untrusted files safely: it checks values against a schema and sizes against the file and the available
memory, and executes nothing. Each format is a module on top of it, with a reader and possibly a writer; catalog.yaml
describes the formats. `sources` finds the format of a path and names the sets in it, `labels` reads labels, and
`export` writes embeddings.
"""
