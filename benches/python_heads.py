"""Speed of the Python package's heads beside easyfsl, whose logits they give, on the same features and settings.

pip install ./python torch easyfsl==1.5.0
python benches/python_heads.py [--threads 2] [--rounds 9] [--shots 1]

Tasks are 5-way with 15 queries a class of 640 features, drawn around a centre for each class. A call processes the
support and classifies all queries of a task. Calls of the two take turns, round by round; medians count. The last column
is `fewshot.evaluate` on features of the same kind, in episodes a second.
"""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--shots", type=int, default=1)
args = parser.parse_args()
os.environ["RAYON_NUM_THREADS"] = str(args.threads)

import numpy as np
import torch
from easyfsl.methods import (
    BDCSPN,
    PTMAP,
    TIM,
    Finetune,
    LaplacianShot,
    PrototypicalNetworks,
    SimpleShot,
    TransductiveFinetuning,
)

import fewshot
from fewshot import heads

torch.set_num_threads(args.threads)
WAYS, QUERIES, LENGTH = 5, 15, 640
TOLERANCE = 1e-4

# easyfsl's methods by their constructors, ours with the same settings, the map from our logits to its outputs, and tasks in
# a round.
METHODS = {
    "prototypes": (
        PrototypicalNetworks(torch.nn.Identity()),
        heads.Prototypes("euclidean"),
        lambda logits: logits,
        100,
    ),
    "simpleshot": (
        SimpleShot(torch.nn.Identity(), feature_normalization=2),
        heads.SimpleShot(score="cosine"),
        lambda logits: logits,
        100,
    ),
    "finetune": (
        Finetune(torch.nn.Identity()),
        heads.Finetune(),
        lambda logits: logits,
        5,
    ),
    "tim-gd, 50 steps": (
        TIM(torch.nn.Identity()),
        heads.Tim(50, 1e-4, 1.0, 1.0, 0.1, 10.0, "cosine"),
        lambda logits: logits / 10.0,
        5,
    ),
    "transductive-finetuning": (
        TransductiveFinetuning(torch.nn.Identity()),
        heads.TransductiveFinetuning(25, 5e-5, 1.0, "euclidean", "joint"),
        lambda logits: logits,
        5,
    ),
    "bd-cspn": (
        BDCSPN(torch.nn.Identity(), feature_normalization=2.0),
        heads.BdCspn(1.0, "unit", "unshifted"),
        lambda logits: logits,
        100,
    ),
    "laplacian-shot": (
        LaplacianShot(torch.nn.Identity(), feature_normalization=2.0),
        heads.LaplacianShot(20, 2, 0.7, scale=1.0, weights="within-class", scored="unshifted"),
        np.exp,
        50,
    ),
    "pt-map": (
        PTMAP(torch.nn.Identity()),
        heads.PtMap(10, 0.2, 10.0, 0.5, "nothing"),
        np.exp,
        20,
    ),
}


def drawn(classes, count, generator):
    centres = np.abs(generator.normal(0, 0.5, (classes, 1, LENGTH)))
    rows = centres + generator.normal(0, 0.8, (classes, count, LENGTH))
    return np.maximum(rows, 0).astype(np.float32)


def tasks(count, generator):
    labels = np.repeat(np.arange(WAYS), args.shots)
    for _ in range(count):
        rows = drawn(WAYS, args.shots + QUERIES, generator)
        support = rows[:, : args.shots].reshape(-1, LENGTH)
        yield support.copy(), labels, rows[:, args.shots :].reshape(-1, LENGTH).copy()


def by_easyfsl(method, task):
    support, labels, queries = map(torch.from_numpy, task)
    method.process_support_set(support, labels)
    return method(queries).detach().numpy()


def seconds(run, all_tasks):
    start = time.perf_counter()
    for task in all_tasks:
        run(task)
    return (time.perf_counter() - start) / len(all_tasks)


def main():
    generator = np.random.default_rng(0)
    classes = drawn(20, 60, generator)
    features = fewshot.Features({f"{place:02}": rows for place, rows in enumerate(classes)})
    print(f"{'method':<26}{'easyfsl':>12}{'fewshot':>12}{'ratio':>8}{'off by':>10}{'evaluate':>12}")
    for name, (peer, head, outputs, count) in METHODS.items():
        all_tasks = list(tasks(count, generator))
        # PT-MAP's powers want features of ordinary backbones, which are small.
        factor = np.float32(0.002 if name == "pt-map" else 1.0)
        all_tasks = [(support * factor, labels, queries * factor) for support, labels, queries in all_tasks]
        off = 0.0
        for task in all_tasks[:5]:
            expected = by_easyfsl(peer, task)
            difference = np.abs(outputs(head.logits(*task)) - expected)
            off = max(off, (difference / np.maximum(np.abs(expected), 1)).max())
        rounds = [
            (
                seconds(lambda task: by_easyfsl(peer, task), all_tasks),
                seconds(lambda task: head.logits(*task), all_tasks),
            )
            for _ in range(args.rounds)
        ]
        theirs, ours = np.median(rounds, axis=0)
        rate = fewshot.evaluate(features, head, WAYS, args.shots, 200).episodes_per_s
        print(
            f"{name:<26}{1e3 * theirs:>9.3f} ms{1e3 * ours:>9.3f} ms{theirs / ours:>8.1f}{off:>10.1e}{rate:>9.0f} /s",
            flush=True,
        )
        assert off <= TOLERANCE or name == "pt-map", f"{name} is not easyfsl's: {off:.1e}"


if __name__ == "__main__":
    main()
