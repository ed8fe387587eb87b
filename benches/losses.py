"""Prototypical losses and optimizer steps by PyTorch, beside `cargo bench -p fewshot-cli`.

pip install torch
python benches/losses.py [losses] [optimizers] [--threads N] [--seconds S]

Median microseconds: of class means, squared distances and cross-entropy, forward and backward, by
each of four ways to write the distances; and of an optimizer's step, foreach and fused.
"""

import argparse
import time

import torch
import torch.nn.functional as F

# Ways, shots, queries, features.
SIZES = [(5, 1, 75, 64), (5, 5, 75, 1600), (20, 5, 300, 64), (60, 5, 300, 64), (100, 20, 4096, 512)]
SCORES = {
    "broadcast": lambda q, p: -(q[:, None] - p).square().sum(-1),
    "expanded": lambda q, p: 2 * q @ p.T - q.square().sum(1, keepdim=True) - p.square().sum(1),
    # A query's own square is the same for all classes.
    "linear": lambda q, p: torch.addmm(p.square().sum(1), q, p.T, beta=-1, alpha=2),
    "cdist": lambda q, p: -torch.cdist(q, p).square(),
}
OPTIMIZERS = {
    "adam": lambda p, **how: torch.optim.Adam(p, lr=1e-6, **how),
    "momentum": lambda p, **how: torch.optim.SGD(p, lr=1e-6, momentum=0.9, **how),
}


def show(name, way, work, seconds):
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(1e6 * (time.perf_counter() - start))
    # The first are for warming up.
    times = sorted(times[2:])
    print(f"{name:<24}{way:<12}{times[len(times) // 2]:>14.1f}", flush=True)


def losses(seconds):
    for ways, shots, queries, features in SIZES:
        support = torch.randn(ways, shots, features, requires_grad=True)
        asked = torch.randn(queries, features, requires_grad=True)
        labels = torch.arange(queries) % ways
        for way, scores in SCORES.items():

            def work():
                loss = F.cross_entropy(scores(asked, support.mean(1)), labels)
                torch.autograd.grad(loss, (support, asked))

            show(f"{ways}x{shots} q{queries} d{features}", way, work, seconds)


def optimizers(seconds):
    conv4 = [s for i in (1, 64, 64, 64) for s in ((64, i, 3, 3), (64,), (64,), (64,))]
    resnet12 = []
    for i, o in ((3, 64), (64, 160), (160, 320), (320, 640)):
        for conv in ((o, i, 3, 3), (o, o, 3, 3), (o, o, 3, 3), (o, i, 1, 1)):
            resnet12 += [conv, (o,), (o,)]
    for name, shapes in ("conv4", conv4), ("resnet12", resnet12), ("50M", [(50_000_000,)]):
        parameters = [torch.nn.Parameter(0.05 * torch.randn(shape)) for shape in shapes]
        for parameter in parameters:
            parameter.grad = 1e-3 * torch.randn_like(parameter)
        for rule, make in OPTIMIZERS.items():
            for way in ("foreach", "fused"):
                show(f"{name} {rule}", way, make(parameters, **{way: True}).step, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="losses|optimizers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each figure, at the least")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.names or ("losses", "optimizers"):
        {"losses": losses, "optimizers": optimizers}[name](args.seconds)
