"""Golden values of the prototypical loss and of scores, in double precision: metrics.json.

    python metrics.py > metrics.json
"""

import json

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def numbers(count, state):
    """Numbers between -1 and 1, as the tests draw them."""
    values = []
    for _ in range(count + 8):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((state >> 40) / 2**23 - 1.0)
    return torch.tensor(values[8:])


def labels(tasks, count, ways):
    return torch.tensor([[(i + task) % ways for i in range(count)] for task in range(tasks)])


def scores(metric, queries, means):
    if metric == "cosine":
        return F.normalize(queries, dim=2) @ F.normalize(means, dim=2).transpose(1, 2)
    return -torch.stack([torch.cdist(q, p, compute_mode="donot_use_mm_for_euclid_dist").square()
                         for q, p in zip(queries, means)])


def golden(sizes, metric, scale):
    tasks, ways, shots, count, features = sizes
    support = numbers(tasks * ways * shots * features, 3).reshape(tasks, -1, features)
    queries = numbers(tasks * count * features, 4).reshape(tasks, -1, features)
    leaves = [support.requires_grad_(), queries.requires_grad_()]
    of_support = labels(tasks, ways * shots, ways)
    means = torch.stack([
        torch.stack([rows[of == way].mean(0) for way in range(ways)])
        for rows, of in zip(support, of_support)
    ])
    found = scores(metric, queries, means)
    wanted = labels(tasks, count, ways)
    loss = F.cross_entropy(scale * found.flatten(0, 1), wanted.flatten())
    total = (found * numbers(found.numel(), 5).reshape(found.shape)).sum()
    gradients, second = [], []
    for output in (loss, total):
        first = torch.autograd.grad(output, leaves, create_graph=True)
        gradients += first
        weighted = sum((g * numbers(g.numel(), 7 + i).reshape(g.shape)).sum()
                       for i, g in enumerate(first))
        second += torch.autograd.grad(weighted, leaves, retain_graph=True)
    flat = lambda tensors: [t.detach().flatten().tolist() for t in tensors]
    return {
        "sizes": sizes,
        "metric": metric,
        "scale": scale,
        "support": support.detach().flatten().tolist(),
        "queries": queries.detach().flatten().tolist(),
        "values": [loss.item(), total.item()],
        "gradients": flat(gradients),
        "second": flat(second),
    }


cases = [([2, 3, 2, 4, 5], 1.0), ([1, 5, 1, 7, 3], 2.5)]
print(json.dumps([golden(sizes, metric, scale)
                  for sizes, scale in cases for metric in ("squared_euclidean", "cosine")]))
