"""MAML, first-order MAML and ANIL by PyTorch, beside `fewshot train --method maml` and its relatives.

pip install torch
python benches/maml.py [NAME...] [--by vmap loop compiled] [--threads N] [--steps N] [--check]

A step is tasks drawn, the meta-gradient and Adam. The gradient is computed by `torch.func.grad`
under `vmap` over the tasks, by a loop over them, and of sinusoids also by the first one compiled
(which needs a C++ compiler). Shown is the median step's rate: of 12 steps, of sinusoids of 280.
NAME is the beginning of a name: `omniglot`, `sinusoid-maml`. `--check` times nothing; it compares
the meta-gradients of the first two ways in double precision.

Images are random ones of Omniglot's shape, 4800 classes of 20, which are there already: what they
show does not change the time. Memory is the peak of the steps above what was there before them.
"""

import argparse
import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.nn.functional as F
from protonet import keep_freed_memory, timed

WAYS, EACH = 5, 20


class Case(NamedTuple):
    method: str
    inner_steps: int = 1
    shots: int = 1  # and as many queries; of a sinusoid, points
    sinusoid: bool = False


CASES = {
    "omniglot-maml": Case("maml"),
    "omniglot-maml-5-shots": Case("maml", shots=5),
    "omniglot-maml-5-steps": Case("maml", inner_steps=5),
    "omniglot-fomaml": Case("fomaml"),
    "omniglot-anil": Case("anil"),
    "sinusoid-maml": Case("maml", shots=10, sinusoid=True),
    "sinusoid-maml-5-steps": Case("maml", 5, 10, sinusoid=True),
    "sinusoid-fomaml": Case("fomaml", shots=10, sinusoid=True),
}


def sinusoids(count, points):
    """Inputs and targets to adapt on, then those to be judged by."""
    amplitudes = torch.empty(count, 1, 1).uniform_(0.1, 5.0)
    phases = torch.empty(count, 1, 1).uniform_(0.0, torch.pi)
    x = torch.empty(count, 2 * points, 1).uniform_(-5.0, 5.0)
    y = amplitudes * torch.sin(x + phases)
    return x[:, :points], y[:, :points], x[:, points:], y[:, points:]


def characters(images, count, shots):
    of = torch.rand(count, len(images)).topk(WAYS).indices[..., None]
    drawn = torch.rand(count, WAYS, EACH).argsort(-1)[..., : 2 * shots]
    x = images[of, drawn]
    y = torch.arange(WAYS).repeat_interleave(shots).expand(count, -1)
    return x[:, :, :shots].flatten(1, 2), y, x[:, :, shots:].flatten(1, 2), y


def parameters(case, dtype=torch.float):
    if case.sinusoid:
        shapes = {"linear0": (40, 1), "linear1": (40, 40), "head": (1, 40)}
    else:
        shapes = {f"conv{i}": (64, 64 if i else 1, 3, 3) for i in range(4)} | {"head": (WAYS, 64)}
    drawn = {}
    for name, shape in shapes.items():
        bound = math.prod(shape[1:]) ** -0.5
        drawn[name] = torch.empty(shape).uniform_(-bound, bound)
        drawn[name + ".bias"] = torch.empty(shape[0]).uniform_(-bound, bound)
        if name.startswith("conv"):
            drawn[name + ".gain"], drawn[name + ".shift"] = torch.ones(64), torch.zeros(64)
    return {name: value.to(dtype).requires_grad_() for name, value in drawn.items()}


def body(case, by, p, x):
    if case.sinusoid:
        x = F.relu(F.linear(x, p["linear0"], p["linear0.bias"]))
        return F.relu(F.linear(x, p["linear1"], p["linear1.bias"]))
    for name in ("conv0", "conv1", "conv2", "conv3"):
        x = F.conv2d(x, p[name], p[name + ".bias"], stride=2, padding=1)
        gain, shift = p[name + ".gain"], p[name + ".shift"]
        if by == "loop":
            x = F.relu(F.batch_norm(x, None, None, gain, shift, training=True))
        else:
            # With its gain inside, the second derivative is wrong under vmap (2.15).
            x = F.batch_norm(x, None, None, training=True)
            x = F.relu(x * gain[:, None, None] + shift[:, None, None])
    return x.mean((2, 3))


def head(p, x):
    return F.linear(x, p["head"], p["head.bias"])


def task_loss(case, by, p, xs, ys, xq, yq):
    """What one task's queries lose after the inner steps."""
    rate, loss = (0.01, F.mse_loss) if case.sinusoid else (0.4, F.cross_entropy)
    first_order = case.method == "fomaml"
    if case.method == "anil":
        prepare, predict = lambda x: body(case, by, p, x), head
        fast = {name: p[name] for name in ("head", "head.bias")}
    else:
        prepare, predict = lambda x: x, lambda fast, x: head(fast, body(case, by, fast, x))
        fast = p
    xs = prepare(xs)
    inner = lambda fast: loss(predict(fast, xs), ys)
    for _ in range(case.inner_steps):
        if by == "loop":
            of = list(fast.values())
            found = torch.autograd.grad(inner(fast), of, create_graph=not first_order)
            gradient = dict(zip(fast, found))
        else:
            with torch.no_grad() if first_order else nullcontext():
                gradient = torch.func.grad(inner)(fast)
        fast = {name: fast[name] - rate * gradient[name] for name in fast}
    return loss(predict(fast, prepare(xq)), yq)


def meta_gradient(case, by, p):
    """A function of tasks that leaves the mean's gradient in `grad`."""

    def mean(p, *tasks):
        return torch.vmap(lambda *task: task_loss(case, by, p, *task))(*tasks).mean()

    compiled = torch.compile(torch.func.grad(mean)) if by == "compiled" else None

    def work(tasks):
        if by == "vmap":
            mean(p, *tasks).backward()
        elif by == "loop":
            for task in zip(*tasks):
                (task_loss(case, by, p, *task) / len(tasks[0])).backward()
        else:
            found = compiled({name: value.detach() for name, value in p.items()}, *tasks)
            for name, value in p.items():
                value.grad = found[name]

    return work


def train(case, by, draw, steps):
    p = parameters(case)
    adam, gradient = torch.optim.Adam(p.values(), lr=1e-3, fused=True), meta_gradient(case, by, p)

    def step():
        tasks = draw(case)
        adam.zero_grad(set_to_none=True)
        gradient(tasks)
        adam.step()

    warm_up, default = (20, 280) if case.sinusoid else (2, 12)
    return timed(step, warm_up, steps or default)


def check(case, draw):
    """The largest relative difference of a parameter's gradient between the two ways."""
    p, found = parameters(case, torch.double), []
    tasks = [values[:4] for values in draw(case)]
    tasks = [values.double() if values.is_floating_point() else values for values in tasks]
    for by in ("vmap", "loop"):
        meta_gradient(case, by, p)(tasks)
        found.append([value.grad for value in p.values()])
        for value in p.values():
            value.grad = None
    # The biases before a batch-norm have no gradient but rounding.
    return max(((a - b).norm() / (b.norm() + 1e-6)).item() for a, b in zip(*found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--by", nargs="+", default=["vmap", "loop", "compiled"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    cases = {name: case for name, case in CASES.items() if name.startswith(tuple(args.names or [""]))}
    needed = any(not case.sinusoid for case in cases.values())
    images = torch.rand(4800 if needed else 0, EACH, 1, 28, 28)
    draw = lambda case: (
        sinusoids(25, case.shots) if case.sinusoid else characters(images, 32, case.shots)
    )
    if not args.check:
        print(f"{'':<24}{'by':<12}{'tasks/s':>12}{'MB':>12}")
    for name, case in cases.items():
        if args.check:
            error = check(case, draw)
            print(f"{name:<24}{error:>12.1e}", flush=True)
            assert error < 1e-9, "the two ways differ"
            continue
        for by in args.by:
            if by != "compiled" or case.sinusoid:
                times, memory = train(case, by, draw, args.steps)
                rate = (25 if case.sinusoid else 32) / times[len(times) // 2]
                print(f"{name:<24}{by:<12}{rate:>12.1f}{memory:>12.0f}", flush=True)
