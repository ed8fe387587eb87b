"""Golden values of heads that solve a convex problem: ridge regression, an SVM, logistic regression.

    python tests/golden/closed_form.py

writes closed_form.json beside this file. Computed in float64 from float32 embeddings, stored as float32.
R2-D2 is torch.linalg.solve with autograd. The dual of MetaOptNet's machine is solved by projected
gradients and then exactly on the bounds so found, by a linear system that autograd differentiates;
conditions of optimality and a finite difference are checked. Logistic regressions are scikit-learn's.
"""
# torch==2.15.0 scikit-learn==1.9.1

import json
from pathlib import Path

import sklearn
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression

SEED = 5
# t tasks, d features; q is ways * queries. With many shots there are more examples than features. Of the
# uneven episode, each class has its own number of shots.
EPISODES = {
    "five_way": {"t": 2, "ways": 5, "shots": 2, "queries": 2, "d": 16},
    "many_shots": {"t": 2, "ways": 3, "shots": 4, "queries": 2, "d": 6},
    "two_way": {"t": 1, "ways": 2, "shots": 3, "queries": 3, "d": 4},
    "uneven": {"t": 2, "ways": 3, "shots": [4, 1, 2], "queries": 2, "d": 6},
}
R2D2 = {
    "paper": {"lambda": 50.0, "averaged": False, "intercept": False, "scale": 3.0},
    "code": {"lambda": 2.0, "averaged": True, "intercept": True, "scale": 10.0},
}
SVM = {"c": 0.1, "ridge": 1.0, "scale": 2.0}
C = 1.0


def draw(t, ways, shots, queries, d, generator):
    """Float32 embeddings around a centre for each class, and their labels."""
    centres = torch.randn(t, ways, d, generator=generator)

    def around(each):
        if isinstance(each, list):
            all_labels = torch.arange(ways).repeat_interleave(torch.tensor(each))
        else:
            all_labels = torch.arange(ways * each) % ways
        n = len(all_labels)
        orders = [torch.randperm(n, generator=generator) for _ in range(t)]
        labels = torch.stack([all_labels[order] for order in orders])
        noise = torch.randn(t, n, d, generator=generator)
        return torch.stack([c[y] for c, y in zip(centres, labels)]) + 1.2 * noise, labels

    return *around(shots), *around(queries)


def r2d2(x, targets, queries, penalty, averaged, intercept):
    if intercept:
        x, queries = (torch.cat([z, torch.ones_like(z[..., :1])], -1) for z in (x, queries))
    penalty = penalty * (x.shape[1] if averaged else 1)
    kernel = x @ x.mT + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    return queries @ x.mT @ torch.linalg.solve(kernel, targets)


def onto_bounds(z, limits):
    """The nearest [n, ways] whose rows add up to zero and stay below limits: min(limits, z - v).

    With k classes at their limits a sum of zero needs some v_k; the v sought is the least of them.
    """
    order = (z - limits).argsort(1, descending=True)
    z_sorted, limits_sorted = z.gather(1, order), limits.gather(1, order)
    held = limits_sorted.cumsum(1) - limits_sorted
    free = z_sorted.flip(1).cumsum(1).flip(1)
    of_free = torch.arange(z.shape[1], 0, -1)
    v = ((held + free) / of_free).min(1, keepdim=True).values
    return torch.minimum(limits, z - v)


def active(kernel, targets):
    """Which bounds hold with equality at the dual's solution, [n, ways]."""
    limits = SVM["c"] * targets
    rate = 1 / torch.linalg.matrix_norm(kernel, 2)
    a = torch.zeros_like(targets)
    for _ in range(3000):
        a = onto_bounds(a - rate * (kernel @ a - targets), limits)
    bound = limits - a < 1e-9
    # Neither a multiplier nor a distance to a bound may be so small that f32 could take it for none.
    assert (limits - a)[~bound].min() > 1e-5, "an almost active bound, take another seed"
    return bound


def dual(kernel, targets, bound):
    """The minimum of 1/2 <a, K a> - <a, y> with sums of zero and a at its limits where bound."""
    n, ways = targets.shape
    size = n * ways
    kernel = torch.kron(kernel, torch.eye(ways, dtype=kernel.dtype))
    sums = torch.kron(torch.eye(n, dtype=kernel.dtype), torch.ones(1, ways, dtype=kernel.dtype))
    held = torch.eye(size, dtype=kernel.dtype)[bound.flatten()]
    rows = torch.cat([held, sums])
    system = torch.zeros(size + len(rows), size + len(rows), dtype=kernel.dtype)
    system[size:, :size], system[:size, size:] = rows, rows.T
    system = system + F.pad(kernel, (0, len(rows), 0, len(rows)))
    limits = (SVM["c"] * targets)[bound]
    right = torch.cat([targets.flatten(), limits, torch.zeros(n, dtype=kernel.dtype)])
    solved = torch.linalg.solve(system, right)
    prices = solved[size : size + len(held)]
    assert prices.min() > 1e-5, "a bound that costs almost nothing, take another seed"
    a = solved[:size].reshape(n, ways)
    assert (SVM["c"] * targets - a).min() > -1e-10
    return a


def machine(x, targets, queries, bounds):
    kernels = x @ x.mT + SVM["ridge"] * torch.eye(x.shape[1], dtype=x.dtype)
    found = torch.stack([dual(k, y, bound) for k, y, bound in zip(kernels, targets, bounds)])
    return queries @ x.mT @ found


def bounds_of(x, targets):
    kernels = x @ x.mT + SVM["ridge"] * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.stack([active(k, y) for k, y in zip(kernels, targets)])


def cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def of_r2d2(x, y, q, labels, setting):
    log_lambda = torch.tensor(setting["lambda"], dtype=x.dtype).log().requires_grad_()
    scale = torch.tensor(setting["scale"], dtype=x.dtype, requires_grad=True)
    x, q = (z.clone().requires_grad_() for z in (x, q))
    found = r2d2(x, y, q, log_lambda.exp(), setting["averaged"], setting["intercept"])
    logits = scale * found
    cross_entropy(logits, labels).backward()
    gradients = {"support": x, "queries": q, "log_lambda": log_lambda, "scale": scale}
    return {"logits": logits} | {f"gradient/{k}": z.grad for k, z in gradients.items()}


def of_machine(x, y, q, labels):
    scale = torch.tensor(SVM["scale"], dtype=x.dtype, requires_grad=True)
    bounds = bounds_of(x, y)
    own = y.bool()
    print(f"  own classes at C: {bounds[own].double().mean():.2f}", end=", ")
    print(f"other classes at 0: {bounds[~own].double().mean():.2f}")
    tracked, queries = (z.clone().requires_grad_() for z in (x, q))
    logits = scale * machine(tracked, y, queries, bounds)
    cross_entropy(logits, labels).backward()
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)

    def loss(z):
        return cross_entropy(SVM["scale"] * machine(z, y, q, bounds_of(z, y)), labels)

    difference = (loss(x + 1e-5 * along) - loss(x - 1e-5 * along)) / 2e-5
    assert abs(difference - (tracked.grad * along).sum()) < 1e-7
    gradients = {"support": tracked, "queries": queries, "scale": scale}
    return {"logits": logits} | {f"gradient/{k}": z.grad for k, z in gradients.items()}


def of_logistic(x, labels, q, unit):
    if unit:
        x, q = F.normalize(x, dim=-1), F.normalize(q, dim=-1)

    def regression(x, labels, q):
        # Of two classes, scikit-learn has one logit, whose weights are penalised half as much.
        c = C if labels.max() > 1 else 2 * C
        model = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
        return torch.tensor(model.fit(x.numpy(), labels.numpy()).decision_function(q.numpy()))

    return {"logits": torch.stack([regression(*task) for task in zip(x, labels, q)])}


def golden(episode, generator):
    support, support_labels, queries, query_labels = draw(**episode, generator=generator)
    values = {
        "support": support,
        "support_labels": support_labels,
        "queries": queries,
        "query_labels": query_labels,
    }
    x, q = support.double(), queries.double()
    y = F.one_hot(support_labels, episode["ways"]).double()
    found = {f"r2d2_{name}": of_r2d2(x, y, q, query_labels, R2D2[name]) for name in R2D2}
    found["svm"] = of_machine(x, y, q, query_labels)
    found["logistic"] = of_logistic(x, support_labels, q, unit=True)
    found["logistic_raw"] = of_logistic(x, support_labels, q, unit=False)
    return values | {f"{head}/{k}": z for head, of_head in found.items() for k, z in of_head.items()}


def entry(tensor):
    """Shape and values, float32 at 9 significant digits, which is every float32 exactly."""
    tensor = tensor.detach()
    data = tensor.flatten().tolist()
    if tensor.is_floating_point():
        data = [float(f"{x:.9g}") + 0.0 for x in tensor.float().flatten().tolist()]
    return {"shape": list(tensor.shape), "data": data}


def write(path, header, cases):
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    rows = [f"    {json.dumps(key)}: {json.dumps(entry(value))}" for key, value in cases.items()]
    path.write_text("{\n" + "\n".join(lines) + '\n  "cases": {\n' + ",\n".join(rows) + "\n  }\n}\n")


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    cases = {}
    for name, episode in EPISODES.items():
        print(name)
        values = golden(episode, generator)
        cases |= {f"{name}/{key}": value for key, value in values.items()}
    header = {
        "made_by": "tests/golden/closed_form.py",
        "torch": torch.__version__.split("+")[0],
        "scikit_learn": sklearn.__version__,
        "seed": SEED,
        "episodes": EPISODES,
        "r2d2": R2D2,
        "svm": SVM,
        "logistic_c": C,
    }
    write(Path(__file__).with_name("closed_form.json"), header, cases)


if __name__ == "__main__":
    main()
