"""The cost of watching a training: a measurement next to the training steps of ViT-B/32 with batches of 64 pairs.

Two modes. "features": the batch's own features are added up and measured every `every` steps, each of them, without a
forward pass; 1% of the time is a speedup of 100 over as many steps. "probe": a probe of `probe` pairs is embedded and
measured; beside one step, a speedup of 1 is 1% of the time at every=100. All cores: unset OMP_NUM_THREADS.
"""

import torch
from contest import Contest, main

TINY = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": 32, "patch_size": 16, "layers": 1, "width": 64},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}


def training(model, batch):
    """An untrained model of open_clip with its optimizer, and a batch of random images and captions, after one step,
    which allocates what every later step uses."""
    import open_clip

    torch.manual_seed(0)
    config = TINY if model == "tiny" else open_clip.get_model_config(model)
    model, size = open_clip.CLIP(**config), config["vision_cfg"]["image_size"]
    images = torch.randn(batch, 3, size, size)
    texts = torch.randint(1, 49406, (batch, model.context_length))
    texts[:, -1] = 49407
    parts = (model, torch.optim.AdamW(model.parameters(), lr=1e-5), images, texts)
    update(*parts)
    return parts


def update(model, optimizer, images, texts):
    """One training step."""
    from open_clip.loss import ClipLoss

    image, text, scale = model.train()(images, texts)
    ClipLoss()(image, text, scale).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def gap(features):
    """The modality gap of several batches, by the library's function."""
    from clip_geometry.geometry import modality_gap

    image, text = (torch.cat(each) for each in zip(*features, strict=True))
    return float(modality_gap(*(torch.nn.functional.normalize(each.double(), dim=1) for each in (image, text))))


def with_features(model, batch, every):
    """Features of as many steps: random, since their cost does not depend on their values."""
    parts, d = training(model, batch), (TINY if model == "tiny" else {"embed_dim": 512})["embed_dim"]
    features = [tuple(torch.randn(2, batch, d) + torch.tensor([[[0.1]], [[-0.1]]])) for _ in range(every)]
    return parts, features, gap(features)


def watch(parts, features, expected):
    """A measurement of the features of every step → the modality gap."""
    from clip_geometry.training import GeometryMonitor

    monitor = GeometryMonitor(lambda scalars, step: None, every=len(features), batches=len(features))
    for step, (image, text) in enumerate(features, start=1):
        monitor.step(step, image=image, text=text)
    return monitor.values["modality_gap"]


def train(parts, features, expected):
    """As many training steps → the modality gap, computed beforehand."""
    for _ in features:
        update(*parts)
    return expected


def with_probe(model, batch, probe, every):
    parts = training(model, batch)
    images, texts = (torch.cat([each] * -(-probe // batch))[:probe] for each in parts[2:])
    images = images + torch.randn(probe, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    loads = [(images[k : k + batch], texts[k : k + batch]) for k in range(0, probe, batch)]
    with torch.no_grad():
        features = [(parts[0].eval().encode_image(x), parts[0].encode_text(y)) for x, y in loads]
    return parts, loads, gap(features)


def watch_probe(parts, loads, expected):
    """A measurement of the probe → the modality gap."""
    from clip_geometry.training import GeometryMonitor

    def embed(model):
        for images, texts in loads:
            yield {"image": model.encode_image(images), "text": model.encode_text(texts)}

    monitor = GeometryMonitor(lambda scalars, step: None, embed=embed)
    monitor.measure(1, parts[0])
    return monitor.values["modality_gap"]


def train_once(parts, loads, expected):
    update(*parts)
    return expected


CONTESTS = [
    Contest(
        name="features beside their steps",
        setup=with_features,
        ours=watch,
        peer=train,
        peer_package="open_clip_torch",
        sizes=[{"model": "ViT-B-32", "batch": 64, "every": 2}],
        quick={"model": "tiny", "batch": 8, "every": 2},
        tolerance=1e-6,  # features of the same step, normalized in another order
        faster=100,  # at most 1% of the time
    ),
    Contest(
        name="probe beside one step",
        setup=with_probe,
        ours=watch_probe,
        peer=train_once,
        peer_package="open_clip_torch",
        sizes=[{"model": "ViT-B-32", "batch": 64, "probe": 128, "every": 100}],
        quick={"model": "tiny", "batch": 8, "probe": 16, "every": 100},
        tolerance=1e-6,
        faster=1,  # at most a step, of which there are 100
    ),
]

if __name__ == "__main__":
    main(CONTESTS)
