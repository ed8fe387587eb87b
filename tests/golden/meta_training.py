"""Golden losses of 200 training steps, in double precision: meta_training.json.

    python tests/golden/meta_training.py

writes meta_training.json beside this file: the mean query loss of each step, before its update, of prototypical networks
(Snell et al. 2017), MAML (Finn et al. 2017) and ANIL (Raghu et al. 2020), as plain PyTorch computes them.

Parameters and episodes are functions of counters, which the test computes again; every number is a multiple of a power
of two that single precision holds exactly. An episode has 5 of 20 classes; an image of one has its class's 4x4 pattern,
each cell of which is a square of 4x4 pixels, under noise. Batch-norm uses the statistics of the batch at hand: support
and queries of an episode together for prototypical networks, each alone for the others.

In single precision a unit close to its threshold falls on one side here and on the other there, after which losses part:
the same program in single precision, whose distance is printed, agrees to 1e-4 over 25 steps and more, not over all.
"""
# torch==2.15.0

import json
from pathlib import Path

import torch
import torch.nn.functional as F

STEPS, TASKS = 200, 2
CLASSES, WAYS, SHOTS, QUERIES, CELLS, SIDE = 20, 5, 1, 3, 4, 16
BLOCKS, CHANNELS = 3, 8
OUTER_RATE = 1e-3
# Streams of draws; parameters have those from 0 on, by their place.
PATTERNS, CHOICES, NOISE = 100, 101, 102
CASES = {
    "proto_net": {"downsampling": "MaxPool"},
    "maml": {"downsampling": "Stride", "inner_steps": 1, "inner_rate": 0.4, "adapts": ""},
    "maml_of_5_steps": {"downsampling": "Stride", "inner_steps": 5, "inner_rate": 0.1, "adapts": ""},
    "anil": {"downsampling": "MaxPool", "inner_steps": 5, "inner_rate": 0.1, "adapts": "head"},
}


def mix(x):
    """A permutation of 32-bit numbers, with all bits of one in all bits of the other."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = x ^ (x >> shift)
        x = (x * factor) & 0xFFFFFFFF
    return x


def draw(stream, count, start=0):
    """Numbers from 0 to 4095 at places `start` and on of `stream`."""
    places = torch.arange(start, start + count, dtype=torch.int64)
    return mix(places ^ mix(torch.tensor(stream + 1, dtype=torch.int64))) >> 20


# Parameters


def parameters(case):
    """By name; the same draws for each case, of which prototypical networks have no head."""
    shapes = {}
    for block in range(BLOCKS):
        name = f"encoder.blocks.{block}"
        shapes[f"{name}.conv.weight"] = (CHANNELS, CHANNELS if block else 1, 3, 3)
        shapes[f"{name}.conv.bias"] = (CHANNELS,)
        shapes[f"{name}.norm.gamma"] = (CHANNELS,)
        shapes[f"{name}.norm.beta"] = (CHANNELS,)
    if "inner_steps" in case:
        features = CHANNELS * (SIDE >> BLOCKS) ** 2 if case["downsampling"] == "MaxPool" else CHANNELS
        shapes["head.weight"] = (features, WAYS)
        shapes["head.bias"] = (WAYS,)
    drawn = {}
    for stream, (name, shape) in enumerate(shapes.items()):
        # From -0.25 to 0.25.
        values = (draw(stream, torch.Size(shape).numel()) - 2048).double() / 2**13
        drawn[name] = values.reshape(shape) + (1 if name.endswith("gamma") else 0)
    return drawn


# Episodes


def images(classes, episode, first):
    """Images of these classes, whose noise begins at image `first` of the episode."""
    patterns = draw(PATTERNS, CLASSES * CELLS**2).reshape(CLASSES, CELLS, CELLS)[classes]
    patterns = patterns.repeat_interleave(SIDE // CELLS, 1).repeat_interleave(SIDE // CELLS, 2)
    images_of_episode = WAYS * (SHOTS + QUERIES)
    start = (episode * images_of_episode + first) * SIDE**2
    noise = draw(NOISE, len(classes) * SIDE**2, start).reshape(-1, SIDE, SIDE)
    return (2 * patterns + 2 * noise).unsqueeze(1).double() / 2**14


def labels(each):
    return torch.arange(WAYS).repeat_interleave(each)


def episode(index):
    """Support and queries, ordered by class. Its classes are those of the least draws."""
    order = draw(CHOICES, CLASSES, index * CLASSES) * CLASSES + torch.arange(CLASSES)
    classes = order.argsort()[:WAYS]
    support = images(classes[labels(SHOTS)], index, 0)
    return support, images(classes[labels(QUERIES)], index, WAYS * SHOTS)


# Networks and learners


def embed(p, x, downsampling):
    pools = downsampling == "MaxPool"
    for block in range(BLOCKS):
        name = f"encoder.blocks.{block}"
        x = F.conv2d(x, p[f"{name}.conv.weight"], p[f"{name}.conv.bias"], padding=1, stride=1 if pools else 2)
        x = F.batch_norm(x, None, None, p[f"{name}.norm.gamma"], p[f"{name}.norm.beta"], training=True, eps=1e-5)
        x = F.relu(x)
        if pools:
            x = F.max_pool2d(x, 2)
    return x.flatten(1) if pools else x.mean((2, 3))


def proto_net_loss(p, case, support, queries):
    embedded = embed(p, torch.cat([support, queries]), case["downsampling"])
    prototypes = embedded[:len(support)].reshape(WAYS, SHOTS, -1).mean(1)
    distances = (embedded[len(support):, None] - prototypes).square().sum(2)
    return F.cross_entropy(-distances, labels(QUERIES))


def maml_loss(p, case, support, queries):
    def loss(p, x, each):
        logits = embed(p, x, case["downsampling"]) @ p["head.weight"] + p["head.bias"]
        return F.cross_entropy(logits, labels(each))

    names = [name for name in p if name.startswith(case["adapts"])]
    for _ in range(case["inner_steps"]):
        gradients = torch.autograd.grad(loss(p, support, SHOTS), [p[name] for name in names], create_graph=True)
        p = p | {name: p[name] - case["inner_rate"] * g for name, g in zip(names, gradients)}
    return loss(p, queries, QUERIES)


def losses(case, dtype):
    """The mean query loss of each step."""
    p = {name: x.to(dtype).requires_grad_() for name, x in parameters(case).items()}
    optimizer = torch.optim.Adam(p.values(), lr=OUTER_RATE)
    task_loss = maml_loss if "inner_steps" in case else proto_net_loss
    losses = []
    for step in range(STEPS):
        tasks = [[x.to(dtype) for x in episode(step * TASKS + task)] for task in range(TASKS)]
        loss = sum(task_loss(p, case, *task) for task in tasks) / TASKS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)
    golden = {}
    for name, case in CASES.items():
        golden[name] = case | {"losses": losses(case, torch.float64)}
        single = losses(case, torch.float32)
        distances = [abs(a / b - 1) for a, b in zip(single, golden[name]["losses"])]
        first, last = golden[name]["losses"][0], sum(golden[name]["losses"][-20:]) / 20
        print(f"{name}: {first:.3f} at first, {last:.3f} at last; in single precision "
              f"{max(distances[:25]):.1e} apart in 25 steps, {max(distances):.1e} in all")
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
