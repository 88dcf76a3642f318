"""An extension of griffe for mkdocstrings: this package writes `Example:`, griffe reads `Examples:`."""

import griffe


class Examples(griffe.Extension):
    """Examples become code."""

    def on_instance(self, *, obj, **_):
        if isinstance(obj, griffe.Object) and obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
