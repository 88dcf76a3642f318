"""Embedding images against open_clip's own loop: preprocess one by one, torch.stack, encode_image without gradients.

Both run alternately in one process, with the same model (built beforehand), images, batches and precision. Our side
also writes its rows with checksums and flushes them to disk. Prints seconds, the ratio, and one minus the smallest
cosine between two rows. Also prints which share of the device's rate (torch.matmul in this precision) the model's
products reach, with pixels already on the device (alone) and end to end (whole). Memory is that of the main process.

The exit status is 1 if rows differ, or if CIFAR-100 through ViT-B-32 on a GPU is not five times as fast. clip-retrieval
is not compared: it needs numpy 1 and huggingface_hub 0, so it cannot be installed with this package, and it accepts
published weights only.
"""

import argparse
import functools
import io
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

from contest import Contest, _machine, _memory, _print

MODELS = ("open_clip:ViT-B-32/fresh", "open_clip:RN50/fresh", "scenes-clip/fresh")
ON_GPU = (*MODELS[:2], "open_clip:ViT-L-14/fresh")
FASTER = {("open_clip:ViT-B-32/fresh", "cifar100"): 5.0}  # on a GPU


def peer(encoder, side, count, batch_size):
    """The loop of open_clip's README, in batches, without gradients and with our float32 settings."""
    import torch

    from clip_geometry.encoders.runtime import DTYPES, inference

    rows, dtype = [], DTYPES[encoder.config.precision]
    with inference():
        for start in range(0, count, batch_size):
            images = [encoder.transform(side.load(k)) for k in range(start, min(start + batch_size, count))]
            pixels = torch.stack(images).to(encoder.device, dtype)
            rows.append(encoder.model.encode_image(pixels).float().cpu())
    return torch.cat(rows).numpy()


def ours(encoder, dataset, count, batch_size, workers):
    """`clip-geometry embed` without building the model: seconds, rows and the time breakdown."""
    from clip_geometry.embedding.loop import embed
    from clip_geometry.embedding.store import read_store
    from clip_geometry.embedding.supply import Throughput
    from clip_geometry.progress import quiet

    built_before = patch("clip_geometry.encoders.load_encoder", lambda config, device="auto": encoder)
    options = {"batch_size": batch_size, "throughput": Throughput(workers=workers), "progress": quiet}
    with tempfile.TemporaryDirectory() as folder, built_before, redirect_stderr(io.StringIO()):
        start = time.perf_counter()
        manifest = embed(encoder.config, dataset, folder, limit=count, **options)
        seconds = time.perf_counter() - start
        return seconds, read_store(folder)["image"].vectors.copy(), manifest["run"]["image"]


def rate(device, dtype, size):
    """Operations per second of torch.matmul."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    seconds = [_timed(device, lambda: a @ b) for _ in range(8)]
    return 2 * size**3 / min(seconds)


def alone(encoder, batch_size):
    """Operations per image, and images per second with pixels already on the device."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    pixels = torch.zeros(batch_size, 3, *encoder.pixels.size, device=encoder.device)
    counter, fast = FlopCounterMode(display=False), torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # fused attention counts as nothing
    with counter, sdpa_kernel(SDPBackend.MATH):
        encoder.image_features(pixels[:1])
    torch.backends.mha.set_fastpath_enabled(fast)
    seconds = [_timed(encoder.device, lambda: encoder.image_features(pixels)) for _ in range(3)]
    return counter.get_total_flops(), batch_size / min(seconds)


def parts(models, given):
    """What an embedding is made of, one by one: a worker's hand-over of pixels (bytes, and preprocessed as float32) by
    pipe and by shared memory, and the towers with pixels already on the device, as they are and compiled."""
    import torch

    from clip_geometry.embedding import supply as images
    from clip_geometry.encoders import load_encoder
    from clip_geometry.encoders.runtime import DTYPES

    found = {"hand_over": {}, "alone": []}
    for kind in ("bytes", "float32"):
        found["hand_over"][f"{kind}, shared"] = hand_over(given.hand_over, kind)
        with patch.object(images.mmap, "mmap", side_effect=OSError):
            found["hand_over"][f"{kind}, pipe"] = hand_over(given.hand_over, kind)
    print("  ".join(f"{how}: {rate:,.0f} images/s from one worker" for how, rate in found["hand_over"].items()))
    for model in models:
        encoder = load_encoder(model, precision=given.precision)
        peak = rate(encoder.device, DTYPES[given.precision], given.matmul)
        for compiled in (False, True):
            if compiled:
                encoder.model.visual.compile()
            for batch in (given.batch_size, 4 * given.batch_size):
                pixels = torch.zeros(batch, 3, *encoder.pixels.size, device=encoder.device)
                warm = _timed(encoder.device, lambda: encoder.image_features(pixels))  # noqa: B023
                seconds = min(_timed(encoder.device, lambda: encoder.image_features(pixels)) for _ in range(5))  # noqa: B023
                if not compiled:
                    operations = alone(encoder, batch)[0]  # compiled ones are not counted
                speed = operations * batch / seconds
                row = {"model": model.removeprefix("open_clip:").removesuffix("/fresh"), "compiled": compiled}
                row |= {"batch": batch, "warm": warm, "per_second": batch / seconds, "share": speed / peak}
                found["alone"].append(row | {"tflops": speed / 1e12})
                print("  ".join(f"{key} {value}" for key, value in found["alone"][-1].items()), flush=True)
    return found


def hand_over(count, kind):
    """Images per second that one worker hands over in batches of 64, 224 × 224, where decoding costs nothing."""
    import numpy as np
    import torch
    from open_clip.transform import PreprocessCfg, image_transform_v2
    from PIL import Image

    from clip_geometry.embedding.supply import ImageReader, reading_ahead
    from clip_geometry.encoders.base import Pixels

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8))
    ready = torch.randn(3, 224, 224)
    pixels = Pixels.of(image_transform_v2(PreprocessCfg(size=224), is_train=False))
    reader = ImageReader(lambda k: image, *((None, pixels) if kind == "bytes" else (lambda image: ready, None)))
    batches = [range(start, min(start + 64, count)) for start in range(0, count, 64)]
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        with reading_ahead(reader, batches, 1) as read:
            assert sum(len(batch.index) for batch in read if batch.values.any()) == count
        seconds.append(time.perf_counter() - start)
    return count / statistics.median(seconds)


def _timed(device, function):
    import torch

    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def contest(model, dataset, given):
    """One row: ours and the peer alternately, after both have warmed up."""
    import torch

    from clip_geometry.data import Dataset, load_dataset
    from clip_geometry.embedding.supply import throughput_line
    from clip_geometry.encoders import load_encoder, resolve_encoder
    from clip_geometry.encoders.runtime import DTYPES

    encoder = built(load_encoder, resolve_encoder, model, given.precision)
    size = {"size": given.images} if dataset == "scenes" else {}
    whole = load_dataset(dataset, **size)
    images = Dataset(whole.config, whole.revision, whole.image)
    warm = min(given.images, given.batch_size, 16)
    ours(encoder, images, warm, warm, 0), peer(encoder, whole.image, warm, warm)
    runs, memory = {"ours": [], "peer": []}, {"ours": [], "peer": []}
    for _ in range(given.rounds):
        before = _memory(reset=True)
        seconds, rows, facts = ours(encoder, images, given.images, given.batch_size, given.workers)
        runs["ours"].append(seconds)
        memory["ours"].append(_memory() - before)
        before, start = _memory(reset=True), time.perf_counter()
        expected = peer(encoder, whole.image, given.images, given.batch_size)
        runs["peer"].append(time.perf_counter() - start)
        memory["peer"].append(_memory() - before)
    cosine = torch.nn.functional.cosine_similarity(*(torch.from_numpy(each).double() for each in (rows, expected)))
    seconds, megabytes = ({who: statistics.median(each[who]) for who in each} for each in (runs, memory))
    ratio = seconds["peer"] / seconds["ours"]
    faster = FASTER.get((model, dataset)) if encoder.device.type == "cuda" else None
    matmul = rate(encoder.device, DTYPES[given.precision], given.matmul)
    operations, speed = alone(encoder, min(given.batch_size, given.images))
    shares = {"alone": operations * speed / matmul, "whole": operations * given.images / seconds["ours"] / matmul}
    equal = "equal bit for bit" if (rows == expected).all() else "equal to the difference shown"
    return {
        "contest": f"{model.removeprefix('open_clip:').removesuffix('/fresh')}, {dataset}",
        "size": {"n": given.images, "batch": given.batch_size, "workers": facts["workers"]},
        "peer": "open_clip_torch",
        "seconds": seconds,
        "all_seconds": runs,
        "ratio": ratio,
        "megabytes": megabytes,
        "difference": max(0.0, float(1 - cosine.min())),
        "tolerance": 1e-9,
        "claims": {"faster": faster, "memory": None},
        "held": faster is None or ratio >= faster,
        "matmul_operations_per_second": matmul,
        "shares": shares,
        "notes": [
            f"share of the device's rate: compute alone {shares['alone']:.0%}, end to end {shares['whole']:.0%}; "
            f"rows {equal}; last run: {throughput_line('image', facts)}"
        ],
        "run": facts,
    }


@functools.cache
def built(load, resolve, model, precision):
    return load(resolve(model, precision=precision))


def show(row, *, quick):
    _print(row, quick=quick)
    print("\n".join(f"    {note}" for note in row["notes"]), flush=True)


def main():
    import torch

    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke run: the small model, few images")
    parser.add_argument("--models", nargs="+", default=ON_GPU if gpu else MODELS)
    parser.add_argument("--datasets", nargs="+", default=["cifar100", "scenes"])
    parser.add_argument("--images", type=int, default=10_000 if gpu else 256)
    parser.add_argument("--batch-size", type=int, default=256 if gpu else 32)
    parser.add_argument("--precision", default="bf16" if gpu else "fp32")
    parser.add_argument("--workers", type=int, default=None if gpu else max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", action="store_true", help="only hand-over, and towers alone, also compiled")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    given.hand_over = 512 if given.quick else 7680
    if given.quick:
        given.models, given.datasets = MODELS[2:], ["scenes"]
        given.images, given.batch_size, given.rounds = 24, 8, 1
    machine = _machine([Contest("", main, main, main, "open_clip_torch", [], {}, 0)])
    machine |= {"device": torch.cuda.get_device_name() if gpu else "CPU", "load": round(os.getloadavg()[0], 2)}
    print(f"{machine['device']}, {machine['cores']} cores, load {machine['load']}, {given.precision}")
    given.matmul = 8192 if gpu else 256 if given.quick else 1536
    if given.parts:
        found = parts(given.models, given)
        if given.json:
            given.json.write_text(json.dumps({"machine": machine, **found}, indent=1) + "\n")
        return
    rows = []
    for model in given.models:
        for dataset in given.datasets:
            rows.append(contest(model, dataset, given))
            show(rows[-1], quick=given.quick)
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    agree = all(row["difference"] <= row["tolerance"] for row in rows)
    sys.exit(not (agree and (given.quick or all(row["held"] for row in rows))))


if __name__ == "__main__":
    main()
