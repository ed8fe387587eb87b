"""MAML, first-order MAML and ANIL by PyTorch, beside `fewshot train --method maml` and its relatives.

pip install torch
python benches/maml.py [NAME...] [--by vmap loop compiled] [--threads N] [--steps N] [--check]

A step is tasks drawn, the meta-gradient and Adam. The gradient is computed by `torch.func.grad`
under `vmap` over the tasks, by a loop over them, and of sinusoids also by the first way compiled,
which needs a C++ compiler. Shown is the rate of the median of 12 steps, of sinusoids of 280.
NAME is the beginning of names: `omniglot`, `sinusoid-maml`. `--check` times nothing; it compares
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
    "sinusoid-maml": Case("maml", 1, 10, True),
    "sinusoid-maml-5-steps": Case("maml", 5, 10, True),
    "sinusoid-fomaml": Case("fomaml", 1, 10, True),
}


def draw(case, images):
    """Inputs and targets to adapt to, then those to be judged by, of all tasks of a step."""
    if case.sinusoid:
        amplitudes = torch.empty(25, 1, 1).uniform_(0.1, 5.0)
        phases = torch.empty(25, 1, 1).uniform_(0.0, torch.pi)
        x = torch.empty(25, 2 * case.shots, 1).uniform_(-5.0, 5.0)
        y = amplitudes * torch.sin(x + phases)
        return x[:, : case.shots], y[:, : case.shots], x[:, case.shots :], y[:, case.shots :]
    of = torch.rand(32, len(images)).topk(WAYS).indices[..., None]
    x = images[of, torch.rand(32, WAYS, EACH).argsort(-1)[..., : 2 * case.shots]]
    y = torch.arange(WAYS).repeat_interleave(case.shots).expand(32, -1)
    return x[:, :, : case.shots].flatten(1, 2), y, x[:, :, case.shots :].flatten(1, 2), y


def parameters(case, dtype=torch.float):
    shapes = {f"conv{i}": (64, 64 if i else 1, 3, 3) for i in range(4)} | {"head": (WAYS, 64)}
    if case.sinusoid:
        shapes = {"linear0": (40, 1), "linear1": (40, 40), "head": (1, 40)}
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
            # With the gain inside, the second derivative is wrong under vmap (PyTorch 2.15).
            x = F.batch_norm(x, None, None, training=True)
            x = F.relu(x * gain[:, None, None] + shift[:, None, None])
    return x.mean((2, 3))


def task_loss(case, by, p, xs, ys, xq, yq):
    """What the queries of one task lose after its inner steps."""
    rate, loss = (0.01, F.mse_loss) if case.sinusoid else (0.4, F.cross_entropy)
    first_order, anil = case.method == "fomaml", case.method == "anil"
    head = lambda fast, z: F.linear(z, fast["head"], fast["head.bias"])
    whole = lambda fast, x: head(fast, body(case, by, fast, x))
    prepare, predict = (lambda x: body(case, by, p, x), head) if anil else (lambda x: x, whole)
    fast = {name: p[name] for name in p if name.startswith("head") or not anil}
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
    """A function of tasks that leaves the gradient of their mean loss in `grad`."""

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


def train(case, by, images, steps):
    p = parameters(case)
    adam, gradient = torch.optim.Adam(p.values(), lr=1e-3, fused=True), meta_gradient(case, by, p)

    def step():
        adam.zero_grad(set_to_none=True)
        gradient(draw(case, images))
        adam.step()

    warm_up, default = (20, 280) if case.sinusoid else (2, 12)
    times, memory = timed(step, warm_up, steps or default)
    return (25 if case.sinusoid else 32) / times[len(times) // 2], memory


def check(case, images):
    """The largest relative difference of a parameter's gradient between the two ways."""
    p, found = parameters(case, torch.double), []
    tasks = [x[:4].double() if x.is_floating_point() else x[:4] for x in draw(case, images)]
    for by in ("vmap", "loop"):
        meta_gradient(case, by, p)(tasks)
        found.append([value.grad for value in p.values()])
        for value in p.values():
            value.grad = None
    # The bias before a batch-norm has no gradient but rounding.
    return max(((a - b).norm() / (b.norm() + 1e-6)).item() for a, b in zip(*found))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--by", nargs="+", default=["vmap", "loop", "compiled"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    names = [name for name in CASES if name.startswith(tuple(args.names or [""]))]
    if not names:
        parser.error(f"there is {', '.join(CASES)}")
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    images = torch.rand(4800, EACH, 1, 28, 28)
    for name in names:
        case = CASES[name]
        if args.check:
            error = check(case, images)
            print(f"{name:<24}{error:>12.1e}", flush=True)
            assert error < 1e-7, "the two ways differ"
        for by in () if args.check else args.by:
            if by != "compiled" or case.sinusoid:
                rate, memory = train(case, by, images, args.steps)
                print(f"{name:<24}{by:<10}{rate:>10.1f} tasks/s{memory:>8.0f} MB", flush=True)
