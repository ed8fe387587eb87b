"""Learning rates of PyTorch's schedulers, and steps of its optimizers with groups of parameters, for `src/optim/tests`.

    python3 -m pip install torch==2.15.0
    python3 tests/golden/outer_step.py

In the groups, an encoder of three layers has 0.3 of the rate, each layer half the rate of the next, and the second one is
frozen; vectors do not decay.
"""

import json
import pathlib

import torch
from torch.optim import lr_scheduler as schedulers

RATE, STEPS, WARM_UP = 0.3, 20, 5


def rates(make):
    parameter = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=RATE)
    scheduler = make(optimizer)
    result = []
    for _ in range(STEPS):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return result


def rise(optimizer):
    return schedulers.LinearLR(optimizer, start_factor=1 / (WARM_UP + 1), total_iters=WARM_UP)


def chained(make):
    return lambda optimizer: schedulers.ChainedScheduler([rise(optimizer), make(optimizer)])


def cosine_after_rise(optimizer):
    cosine = schedulers.CosineAnnealingLR(optimizer, T_max=STEPS - WARM_UP)
    return schedulers.SequentialLR(optimizer, [rise(optimizer), cosine], milestones=[WARM_UP])


def multi_step(optimizer):
    return schedulers.MultiStepLR(optimizer, milestones=[4, 5, 11], gamma=0.2)


SCHEDULES = {
    "constant": lambda optimizer: schedulers.ConstantLR(optimizer, factor=1.0),
    "step": lambda optimizer: schedulers.StepLR(optimizer, step_size=6, gamma=0.5),
    "multi_step": multi_step,
    "multi_step_after_rise": chained(multi_step),
    "cosine": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, T_max=STEPS),
    "cosine_after_rise": cosine_after_rise,
    "one_cycle": lambda optimizer: schedulers.OneCycleLR(
        optimizer, max_lr=RATE, total_steps=STEPS, cycle_momentum=False
    ),
    "linear": lambda optimizer: schedulers.LinearLR(
        optimizer, start_factor=1.0, end_factor=0.0, total_iters=STEPS
    ),
}


def values(count, seed):
    return [((i * 37 + seed * 101) % 64) / 32 - 1 for i in range(count)]


def tensor(shape, seed):
    count = 1
    for size in shape:
        count *= size
    return torch.tensor(values(count, seed), dtype=torch.float64).reshape(shape)


# The matrix and the vector of each layer: three of the encoder, and the head.
LAYERS = [0, 1, 2, 3]
FACTORS = [0.3 * 0.25, 0.3 * 0.5, 0.3, 1.0]
FROZEN = 1


def grouped(optimizer, decay, **options):
    matrices = [tensor((3, 4), 2 * layer).requires_grad_() for layer in LAYERS]
    vectors = [tensor((3,), 2 * layer + 1).requires_grad_() for layer in LAYERS]
    groups = []
    for layer, factor in enumerate(FACTORS):
        if layer != FROZEN:
            rate = RATE * factor
            groups.append({"params": [matrices[layer]], "lr": rate, "weight_decay": decay})
            groups.append({"params": [vectors[layer]], "lr": rate, "weight_decay": 0.0})
    optimizer = optimizer(groups, **options)
    for step in range(3):
        for layer in LAYERS:
            matrices[layer].grad = tensor((3, 4), 50 + 10 * step + 2 * layer)
            vectors[layer].grad = tensor((3,), 51 + 10 * step + 2 * layer)
        optimizer.step()
    both = [tensor for layer in zip(matrices, vectors) for tensor in layer]
    return [tensor.detach().flatten().tolist() for tensor in both]


GROUPS = {
    "sgd": grouped(torch.optim.SGD, 0.1, momentum=0.9, nesterov=True),
    "adam": grouped(torch.optim.Adam, 0.1),
    "adamw": grouped(torch.optim.AdamW, 0.2),
}


def rounded(tree):
    if isinstance(tree, dict):
        return {key: rounded(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [rounded(value) for value in tree]
    return float(f"{tree:.15g}")


golden = {
    "schedules": {name: rates(make) for name, make in SCHEDULES.items()},
    "groups": GROUPS,
}
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(rounded(golden)) + "\n")
