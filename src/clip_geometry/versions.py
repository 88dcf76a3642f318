"""Versions of the libraries that a number can depend on."""

from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("clip-geometry", "torch", "torchvision", "open_clip_torch", "transformers", "numpy", "pillow")


def library_versions() -> dict[str, str]:
    """Returns name → version of the installed ones."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
