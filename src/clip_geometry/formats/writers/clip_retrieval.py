"""clip-retrieval: img_emb/img_emb_0.npy, text_emb/text_emb_0.npy and metadata/metadata_0.parquet, by rows a pair."""

from pathlib import Path

from clip_geometry.formats.clip_retrieval import folder_of, write_clip_retrieval
from clip_geometry.formats.vectors import dtype_of
from clip_geometry.formats.writers.base import Sets, writers


def write(sets: Sets, place: Path, out: Path) -> dict[str, str]:
    """Write one shard of each modality, aligned as pairs."""
    pairs, columns = write_clip_retrieval(sets, place)
    said = {folder_of(name): f"{len(side)} rows, {dtype_of(side)}" for name, side in pairs.items()}
    return said | {"metadata": f"of each row: {', '.join(columns)}"}


writers.add("clip-retrieval", write)
