"""The cost of I-STAR: its value and gradient next to a whole training step, a step with it against one without, and
against the authors' own module, which uses singular values.
"""

import torch
from contest import Contest, main

ZETA = 0.2
STEPS = 3


def batch_of(d, length, batch, layers, padded=0):
    """An untrained BERT with a classifier, and a batch. padded: approximate percentage of padding tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": d // 32, "intermediate_size": 4 * d}
    model = BertForSequenceClassification(BertConfig(**sizes))
    ids, labels = torch.randint(1000, 30_000, (batch, length)), torch.arange(batch) % 2
    shortest = length - 2 * padded * length // 100
    lengths = torch.linspace(shortest, length, batch).round().long()
    mask = (torch.arange(length) < lengths[:, None]).long()
    return model, torch.optim.AdamW(model.parameters(), lr=2e-5), ids, labels, mask


def update(model, optimizer, ids, labels, mask, istar):
    """One step of fine-tuning → the task loss."""
    torch.manual_seed(1)  # of dropout
    output = model(ids, attention_mask=mask, labels=labels, output_hidden_states=True)
    loss = output.loss if istar is None else output.loss + istar(output.hidden_states, mask)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return float(output.loss.detach())


def with_hidden_states(**size):
    """The batch, its detached hidden states, C_0, and the value of the library's float64 function on them."""
    from clip_geometry.geometry import isoscore_star

    parts = batch_of(**size)
    model, _, ids, _, mask = parts
    model(ids, labels=parts[3]).loss.backward()  # allocates buffers, as after the first step of a training
    with torch.no_grad():
        hidden = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
    rows = torch.cat([layer[mask.bool()] for layer in hidden]).double()
    c_0 = torch.cov(rows.T) + torch.eye(size["d"])
    return parts, [layer.requires_grad_() for layer in hidden], c_0, isoscore_star(rows, c_0, zeta=ZETA)


def penalty_alone(parts, hidden, c_0, expected):
    """Forward and backward, STEPS times → IsoScore*."""
    from clip_geometry.training import IStar

    istar, score = IStar(1.0, ZETA), 0.0
    istar.covariance = c_0
    for _ in range(STEPS):
        value = istar(hidden, parts[-1])
        value.backward()
        for layer in hidden:
            layer.grad = None
        score = 1 - float(value.detach())
    return score


def training_alone(parts, hidden, c_0, expected):
    """The same number of whole steps without it → IsoScore* by the library's function, computed beforehand."""
    for _ in range(STEPS):
        update(*parts, None)
    return expected


def training_with(*parts):
    """Whole steps with the penalty → the task loss of the first step, which the penalty has not changed yet."""
    from clip_geometry.training import IStar

    istar = IStar(-1.0, ZETA, momentum=0.1)
    first, *_ = [update(*parts, istar) for _ in range(STEPS)]
    return first


def training_without(*parts):
    first, *_ = [update(*parts, None) for _ in range(STEPS)]
    return first


def stacked(n, d, layers):
    """Layers of rows with a mean far from the origin, like token embeddings, and a covariance."""
    generator = torch.Generator().manual_seed(0)
    scale, offset = torch.logspace(0, -1, d), 3 * torch.randn(d, generator=generator)
    rows = [torch.randn(n, d, generator=generator) * scale + offset for _ in range(layers)]
    return [each.requires_grad_() for each in rows], torch.diag(scale.double() ** 2)


def ours(layers, c_0):
    """The penalty and its gradient at the first row."""
    from clip_geometry.training import IStar

    istar = IStar(-1.0, ZETA)
    istar.covariance = c_0
    value = istar(layers)
    value.backward()
    return torch.cat([value.detach()[None], layers[0].grad[0]])


def authors(layers, c_0):
    """Like the authors' training loop: stacked layers, one minus the module's score, times λ."""
    from IsoScore.IsoScore import istar

    score = istar().IsoScore_star(torch.cat(layers), c_0.float(), ZETA, is_eval=False, gpu_id="cpu")
    value = -1.0 * (1 - score)
    value.backward()
    return torch.cat([value.detach()[None], layers[0].grad[0]])


def beside_a_step(faster, *, rounds=3, **size):
    small = {"d": 64, "length": 16, "batch": 4, "layers": 2, "padded": 20}
    return Contest(
        name="I-STAR beside a step",
        setup=with_hidden_states,
        ours=penalty_alone,
        peer=training_alone,
        peer_package="torch",
        sizes=[{"length": 128, "batch": 32, "layers": 6, **size}],
        quick=small,
        tolerance=1e-6,
        faster=faster,
        rounds=rounds,
    )


CONTESTS = [
    beside_a_step(20, d=384, padded=0),  # below 5% of the step
    beside_a_step(20, d=384, padded=30),
    beside_a_step(20, d=768, padded=0, rounds=1),
    Contest(
        name="step with and without",
        setup=batch_of,
        ours=training_with,
        peer=training_without,
        peer_package="torch",
        sizes=[{"d": 384, "length": 128, "batch": 32, "layers": 6}],
        quick={"d": 64, "length": 16, "batch": 4, "layers": 2},
        tolerance=1e-6,
        rounds=2,
    ),
    Contest(
        name="I-STAR",
        setup=stacked,
        ours=ours,
        peer=authors,
        peer_package="IsoScore",
        sizes=[{"n": 4096, "d": 384, "layers": 7}],
        quick={"n": 60, "d": 16, "layers": 3},
        tolerance=1e-5,  # the authors' module works in float32
        rounds=5,
        faster=1.5,
    ),
]

if __name__ == "__main__":
    main(CONTESTS)
