"""The versions of the libraries that a number can depend on."""

from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("clip-geometry", "torch", "torchvision", "open_clip_torch", "transformers", "numpy", "pillow")


def library_versions() -> dict[str, str]:
    """Name → version, for those that are installed."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
