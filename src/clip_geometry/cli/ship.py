"""`clip-geometry ship`: a map or a repair in the format of another program."""

from collections.abc import Sequence
from pathlib import Path

from clip_geometry.cli.maps import named_sides, read_saved
from clip_geometry.formats import read_sets, read_sides
from clip_geometry.paths import existing_folder
from clip_geometry.progress import note
from clip_geometry.registry import InputError, printable, shown
from clip_geometry.repairs import Repair
from clip_geometry.shipping import SavedPipeline, Shipment, targets, write_shipment
from clip_geometry.transforms import ANY


def ship(map_file: Path, sources: Sequence[Path], out: Path, to: str, modality: str | None, *, normalize: bool) -> None:
    """Writes the map for the target `to` into the new folder `out`."""
    takes, source = targets[to].takes, sources[0] if sources else None
    if len(sources) > 1 and takes != "embeddings":
        raise InputError(f"--to {to} takes {'one folder' if takes else 'none'}, but {len(sources)} paths were given")
    if takes and source is None:
        what = "embeddings of the index" if takes == "embeddings" else "a saved model"
        raise InputError(f"--to {to} needs FOLDER, {what}: clip-geometry ship MAP FOLDER -o {shown(out)} --to {to}")
    if source is not None and not takes:
        raise InputError(f"{shown(source)} was given, but --to {to} writes the map alone; leave it out")
    fitted = read_saved(map_file)
    sets, model = {}, None
    if takes == "embeddings" and source is not None:
        sides = read_sides(source) if len(sources) == 1 else read_sets(*sources)
        sets = named_sides(sides, source, fitted, modality)
    elif takes == "model" and source is not None:
        model, modality = existing_folder(source, "the folder of a model"), modality or "text"
    elif modality is not None:
        raise InputError(f"--as {modality} was given, but --to {to} writes all modalities of the map; leave it out")
    if isinstance(fitted, Repair):
        if not normalize:
            note(f"--no-normalize is for maps; {fitted.name} gives its rows the lengths that its scores need")
        repair = fitted
    else:  # a map of every modality is one of those that are given
        given = sets or ([modality] if modality else None) if ANY in fitted.chains else None
        repair = SavedPipeline(fitted, given, normalize=normalize)
    files = write_shipment(Shipment(repair, sets, model, modality or ""), to, out)
    print(printable(f"repair: {repair.name}"))
    for name, says in files.items():
        print(printable(f"{name}: {says}"))
    print(printable(f"{to}: {out}"))
    lacking = sorted({*getattr(repair, "modalities", ())} - sets.keys()) if takes == "embeddings" else []
    if lacking:
        note(
            f"{shown(source)} has no {' and no '.join(lacking)} rows, which the repair knows too; a folder may have all"
        )
