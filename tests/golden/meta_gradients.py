"""Golden meta-gradients through inner loops, in double precision: meta_gradients.json.

    python tests/golden/meta_gradients.py

writes meta_gradients.json beside this file. Each case adapts one of three networks to each of two
tasks, one task after the other, and differentiates the mean query loss by what the tasks share: the
parameters and, where the rule learns them, the inner rates, the matrices that gradients go through
or the gains and shifts of batch-norm at each inner step.

    conv_stride  2 x [3x3 conv of stride 2, batch-norm, ReLU], mean over space, linear head
    conv_pool    2 x [3x3 conv, batch-norm, ReLU, 2x2 max-pool], flattened, linear head
    mlp          1-8-8-1 with ReLU between, mean squared error

Batch-norm always uses the statistics of the batch at hand: the support alone in the inner loop, the
queries alone in the outer loss. Linear weights are [in, out], as in Burn: PyTorch's transposed.

Drawn numbers are multiples of 2^-12, so that single precision holds them exactly, and the seeds are
such that no ReLU or max-pool comes within `MARGIN` of switching: rounding cannot change a branch.
Before anything is written, the meta-gradients are checked against central differences.
"""
# torch==2.15.0

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

SEEDS = {"conv_stride": 50, "conv_pool": 18, "mlp": 457}
TASKS, WAYS, SHOTS, CHANNELS, SIDE = 2, 3, 2, 4, 8
MARGIN = 5e-5
# Added to those of the networks.
CURVATURE_SEED, NORMS_SEED = 1003, 2001


# Networks, as functions of their parameters by name


def relu(x):
    assert x.detach().abs().min() > MARGIN, "a ReLU about to switch: take another seed"
    return F.relu(x)


def max_pool(x):
    n, channels, height, width = x.shape
    windows = F.unfold(x.detach(), 2, stride=2).reshape(n, channels, 4, -1)
    first, second = windows.topk(2, dim=2).values.unbind(2)
    # In a window of zeros the gradient stops at the ReLU, wherever the pool sends it.
    assert (first - second)[first > 0].min() > MARGIN, "a max-pool about to switch"
    return F.max_pool2d(x, 2)


def linear(p, name, x):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def conv(p, x, pool):
    for block in ("encoder.blocks.0", "encoder.blocks.1"):
        weight, bias = p[f"{block}.conv.weight"], p[f"{block}.conv.bias"]
        x = F.conv2d(x, weight, bias, padding=1, stride=1 if pool else 2)
        gamma, beta = p[f"{block}.norm.gamma"], p[f"{block}.norm.beta"]
        x = relu(F.batch_norm(x, None, None, gamma, beta, training=True, eps=1e-5))
        x = max_pool(x) if pool else x
    return linear(p, "head", x.flatten(1) if pool else x.mean((2, 3)))


def mlp(p, x):
    for layer in ("layers.0", "layers.1"):
        x = relu(linear(p, layer, x))
    return linear(p, "layers.2", x)


NETWORKS = {
    "conv_stride": (lambda p, x: conv(p, x, pool=False), F.cross_entropy),
    "conv_pool": (lambda p, x: conv(p, x, pool=True), F.cross_entropy),
    "mlp": (mlp, F.mse_loss),
}


# What is drawn


def on_grid(x):
    return torch.round(x * 2**12) / 2**12


def normal(draw, *shape):
    return on_grid(torch.randn(shape, generator=draw))


def uniform(draw, low, high, *shape):
    return on_grid(low + (high - low) * torch.rand(shape, generator=draw))


def linear_parameters(draw, name, inputs, outputs):
    return {
        f"{name}.weight": on_grid(0.4 * normal(draw, inputs, outputs)),
        f"{name}.bias": on_grid(0.1 * normal(draw, outputs)),
    }


def conv_parameters(draw, features):
    p = {}
    for i, inputs in enumerate((1, CHANNELS)):
        block = f"encoder.blocks.{i}"
        # Batch-norm takes the mean away, so the gradient of this bias is zero up to rounding, in
        # the inner loop and in the outer one. The values are written as they come out.
        p[f"{block}.conv.weight"] = on_grid(0.4 * normal(draw, CHANNELS, inputs, 3, 3))
        p[f"{block}.conv.bias"] = on_grid(0.1 * normal(draw, CHANNELS))
        p[f"{block}.norm.gamma"] = on_grid(1 + 0.2 * normal(draw, CHANNELS))
        p[f"{block}.norm.beta"] = on_grid(0.1 * normal(draw, CHANNELS))
    return p | linear_parameters(draw, "head", features, WAYS)


def mlp_parameters(draw):
    sizes = [(1, 8), (8, 8), (8, 1)]
    layers = [linear_parameters(draw, f"layers.{i}", *size) for i, size in enumerate(sizes)]
    return {name: x for layer in layers for name, x in layer.items()}


def images(draw):
    """Support and queries: of each class in each task a pattern, and noise on it."""
    count = WAYS * SHOTS
    support_labels = torch.tensor([[(i + t) % WAYS for i in range(count)] for t in range(TASKS)])
    query_labels = torch.tensor([[(i // 2 + t) % WAYS for i in range(count)] for t in range(TASKS)])
    patterns = normal(draw, TASKS, WAYS, 1, SIDE, SIDE)
    drawn = []
    for labels in (support_labels, query_labels):
        clean = torch.stack([of[rows] for of, rows in zip(patterns, labels)])
        drawn.append((clean + normal(draw, *clean.shape), labels))
    return drawn


def waves(draw):
    """Support and queries: points of a sine wave, of another amplitude and phase in each task."""
    amplitude, phase = uniform(draw, 0.5, 2.0, TASKS, 1, 1), uniform(draw, 0.0, 3.0, TASKS, 1, 1)
    points = [uniform(draw, -3.0, 3.0, TASKS, count, 1) for count in (5, 4)]
    return [(x, on_grid(amplitude * torch.sin(x + phase))) for x in points]


def network(name):
    draw = torch.Generator().manual_seed(SEEDS[name])
    if name == "mlp":
        return {"parameters": mlp_parameters(draw), "data": waves(draw)}
    features = CHANNELS * 4 if name == "conv_pool" else CHANNELS
    return {"parameters": conv_parameters(draw, features), "data": images(draw)}


def modes(x):
    """A kernel's positions are one mode."""
    return [*x.shape[:2], x.shape[2:].numel()] if x.dim() > 2 else list(x.shape)


def is_norm(name):
    return name.endswith((".gamma", ".beta"))


def rates(case, parameters):
    """The rates that the rule learns: by element, or by step, of each parameter. Or a matrix for each
    of its modes; or, after the rates of the others, the values of each gain and shift by step."""
    draw = torch.Generator().manual_seed(SEEDS[case["network"]] + 1)
    match case["rule"]["kind"]:
        case "meta_sgd":
            return {name: uniform(draw, 0.05, 0.07, *p.shape) for name, p in parameters.items()}
        case "per_step":
            low, high = (0.02, 0.05) if case["network"] == "mlp" else (0.1, 0.3)
            return {name: uniform(draw, low, high, case["steps"]) for name in parameters}
        case "curvature":
            draw.manual_seed(SEEDS[case["network"]] + CURVATURE_SEED)
            return {f"{name}.{mode}": on_grid(torch.eye(size) + 0.1 * normal(draw, size, size))
                    for name, p in parameters.items() for mode, size in enumerate(modes(p))}
        case "per_step_norms":
            draw.manual_seed(SEEDS[case["network"]] + NORMS_SEED)
            own = {name: uniform(draw, 0.1, 0.3, case["steps"])
                   for name in parameters if not is_norm(name)}
            around = lambda p: on_grid(p + 0.1 * normal(draw, case["steps"], *p.shape))
            return own | {name: around(p) for name, p in parameters.items() if is_norm(name)}
    return {}


# Inner and outer loop


def clipped(gradients, limit):
    norm = torch.sqrt(sum(g.square().sum() for g in gradients))
    assert norm > 1.1 * limit, "nothing to clip"
    return [g * (limit / norm).clamp(max=1.0) for g in gradients]


def update(rule, rates, moments, step, name, g):
    """What step `step`, from 0, takes off the parameter `name`; `moments` go from step to step."""
    match rule["kind"]:
        case "gradient_descent":
            return rule["rate"] * g
        case "momentum":
            moments[name] = g if step == 0 else rule["momentum"] * moments[name] + g
            return rule["rate"] * moments[name]
        case "adam":
            b1, b2 = rule["beta_1"], rule["beta_2"]
            m, v = moments.get(name, (torch.zeros_like(g), torch.zeros_like(g)))
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g.square()
            moments[name] = m, v
            m_hat, v_hat = m / (1 - b1 ** (step + 1)), v / (1 - b2 ** (step + 1))
            root = torch.sqrt(v_hat + rule["epsilon_root"])
            return rule["rate"] * m_hat / (root + rule["epsilon"])
        case "meta_sgd":
            return rates[name] * g
        case "per_step" | "per_step_norms":
            return rates[name][step] * g
        case "curvature":
            g_modes = g.reshape(modes(g))
            for mode in range(g_modes.dim()):
                turned = torch.tensordot(rates[f"{name}.{mode}"], g_modes, dims=([1], [mode]))
                g_modes = turned.movedim(0, mode)
            return rule["rate"] * g_modes.reshape(g.shape)


def is_held(case, name):
    """Whether each step has values of its own in this parameter's place."""
    return case["rule"]["kind"] == "per_step_norms" and is_norm(name)


def adapts(case, name):
    if is_held(case, name):
        return False
    return case["adapts"] == "all" or name.startswith(case["adapts"])


def task_loss(case, parameters, rates, support, queries):
    """The query loss of one task after the last step, or the weighted sum over all steps."""
    forward, loss = NETWORKS[case["network"]]
    weights = case.get("weights", [0.0] * (case["steps"] - 1) + [1.0])
    fast, moments, total = dict(parameters), {}, 0.0
    names = [name for name in parameters if adapts(case, name)]
    for step, weight in enumerate(weights):
        fast |= {name: rates[name][step] for name in parameters if is_held(case, name)}
        inner = loss(forward(fast, support[0]), support[1])
        gradients = torch.autograd.grad(inner, [fast[n] for n in names], create_graph=True)
        if case["order"] == "first":
            gradients = [g.detach() for g in gradients]
        if "clip" in case["rule"]:
            gradients = clipped(gradients, case["rule"]["clip"])
        for name, g in zip(names, gradients):
            fast[name] = fast[name] - update(case["rule"], rates, moments, step, name, g)
        if weight:
            total = total + weight * loss(forward(fast, queries[0]), queries[1])
    return total


def outer_loss(case, parameters, rates, data):
    support, queries = data
    losses = [task_loss(case, parameters, rates, [x[t] for x in support], [x[t] for x in queries])
              for t in range(TASKS)]
    return sum(losses) / TASKS


def meta_gradients(case, parameters, rates, data):
    parameters, rates = leaves(parameters), leaves(rates)
    loss = outer_loss(case, parameters, rates, data)
    # Values that each step replaces have gradients of zero.
    at = [*parameters.values(), *rates.values()]
    found = torch.autograd.grad(loss, at, allow_unused=True, materialize_grads=True)
    return loss.item(), found[:len(parameters)], found[len(parameters):]


def leaves(tensors):
    return {name: x.detach().clone().requires_grad_() for name, x in tensors.items()}


# Checks


def central_difference(case, parameters, rates, data, direction, step=1e-6):
    """The slope of the outer loss along `direction`, a tensor for each parameter and rate."""
    def shifted(tensors, directions, distance):
        return leaves({n: x + distance * d for (n, x), d in zip(tensors.items(), directions)})

    def at(distance):
        moved = shifted(parameters, direction[:len(parameters)], distance)
        moved_rates = shifted(rates, direction[len(parameters):], distance)
        return outer_loss(case, moved, moved_rates, data).item()

    return (at(step) - at(-step)) / (2 * step)


def check_direction(case, gradient, *at):
    """One random direction, together with the gradient's own so that the slope is not small."""
    draw = torch.Generator().manual_seed(7)
    size = lambda tensors: math.sqrt(sum(x.square().sum().item() for x in tensors))
    noise = [torch.randn(g.shape, generator=draw) for g in gradient]
    direction = [g / size(gradient) + d / size(noise) for g, d in zip(gradient, noise)]
    slope = sum((g * d).sum().item() for g, d in zip(gradient, direction))
    error = abs(central_difference(case, *at, direction) / slope - 1)
    assert error < 1e-6, (case["name"], error)


def check_elements(case, gradient, *at):
    """Every element of the meta-gradient."""
    sizes = [g.numel() for g in gradient]
    ones = torch.eye(sum(sizes))
    shaped = lambda row: [x.reshape(g.shape) for x, g in zip(row.split(sizes), gradient)]
    found = torch.tensor([central_difference(case, *at, shaped(row)) for row in ones])
    wanted = torch.cat([g.flatten() for g in gradient])
    error = ((found - wanted).norm() / wanted.norm()).item()
    assert error < 1e-6, (case["name"], error)


def check_orders(cases):
    """First and second order give the same loss, and different meta-gradients."""
    flat = {c["name"]: torch.tensor([x for g in c["gradients"] for x in g["values"]])
            for c in cases}
    loss = {c["name"]: c["loss"] for c in cases}
    for first in [name for name in flat if "first" in name]:
        second = first.replace("first", "second")
        assert loss[first] == loss[second]
        assert (flat[first] - flat[second]).norm() > 1e-2 * flat[second].norm(), first


# Cases


def cases_of(network):
    rate = 0.05 if network == "mlp" else 0.4
    descent = {"kind": "gradient_descent", "rate": rate}

    def case(method, rule, steps, order="second", adapts="all", **more):
        name = f"{network}/{method}/{order}/{steps}"
        return {"name": name, "network": network, "rule": rule, "steps": steps, "order": order,
                "adapts": adapts, **more}

    maml = [case("maml", descent, steps) for steps in (1, 5)]
    both = ("second", "first")
    curvature = {"kind": "curvature", "rate": rate}
    learned = [case("curvature", curvature, steps, order) for steps in (1, 2) for order in both]
    learned += [case("per_step_norms", {"kind": "per_step_norms"}, 2, order) for order in both]
    if network == "conv_pool":
        return maml + learned
    cases = maml + [case("maml", descent, steps, order="first") for steps in (1, 5)]
    if network == "conv_stride":
        cases += learned
        cases += [case("anil", descent, steps, adapts="head") for steps in (1, 5)]
        cases += [case("boil", descent, steps, adapts="encoder") for steps in (1, 5)]
        cases += [case("multi_step", descent, 3, weights=[0.2, 0.3, 0.5])]
    adam = {"kind": "adam", "rate": 0.01, "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8,
            # Inside the root: at a gradient of zero the slope of the root stays finite.
            "epsilon_root": 1e-6}
    return cases + [
        case("momentum", {"kind": "momentum", "rate": rate, "momentum": 0.9}, 3),
        case("adam", adam, 3),
        case("meta_sgd", {"kind": "meta_sgd"}, 1),
        case("meta_sgd", {"kind": "meta_sgd"}, 3),
        case("per_step", {"kind": "per_step"}, 3),
        case("clip", descent | {"clip": 0.1}, 2),
    ]


def shaped(x):
    return {"shape": list(x.shape), "values": x.flatten().tolist()}


def named(names, tensors):
    return [{"name": name} | shaped(x) for name, x in zip(names, tensors)]


def golden(case, parameters, data):
    own = rates(case, parameters)
    at = parameters, own, data
    loss, gradients, rate_gradients = meta_gradients(case, *at)
    if case["order"] == "second":
        check_direction(case, [*gradients, *rate_gradients], *at)
    if case["name"].endswith("maml/second/5"):
        check_elements(case, gradients, *at)
    of_parameters = [one for one in named(parameters, gradients) if not is_held(case, one["name"])]
    found = case | {"loss": loss, "gradients": of_parameters}
    if own:
        found |= {"rates": named(own, own.values()), "rate_gradients": named(own, rate_gradients)}
    return found


def described(parameters, data):
    (support, support_labels), (queries, query_labels) = data
    labels = lambda y: y.tolist() if y.dtype == torch.int64 else shaped(y)
    return {
        "parameters": named(parameters, parameters.values()),
        "support": shaped(support),
        "support_labels": labels(support_labels),
        "queries": shaped(queries),
        "query_labels": labels(query_labels),
    }


def main():
    networks = {name: network(name) for name in NETWORKS}
    cases = [golden(case, **drawn) for name, drawn in networks.items() for case in cases_of(name)]
    check_orders(cases)
    found = {"networks": {n: described(**drawn) for n, drawn in networks.items()}, "cases": cases}
    Path(__file__).with_suffix(".json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
