"""Golden values of prototypical networks: prototypes, logits, loss, gradients and accuracy from embeddings.

    python tests/golden/proto_net.py

writes proto_net.json beside this file. Computed in float64 from float32 embeddings, stored as float32.
The prediction of a query is checked to be clear, so that accuracies do not hang on rounding.
"""
# torch==2.15.0

import json
from pathlib import Path

import torch
import torch.nn.functional as F

SEED = 3
# t tasks, d features; q is ways * queries.
EPISODES = {
    "five_way": {"t": 2, "ways": 5, "shots": 3, "queries": 4, "d": 7},
    "one_shot": {"t": 2, "ways": 3, "shots": 1, "queries": 4, "d": 2},
}
SCALES = {"squared_euclidean": 1.0, "cosine": 10.0}


def squared_euclidean(queries, prototypes):
    return -(queries[:, :, None] - prototypes[:, None]).square().sum(-1)


def cosine(queries, prototypes):
    return F.normalize(queries, dim=-1) @ F.normalize(prototypes, dim=-1).transpose(1, 2)


def class_means(embeddings, labels, ways):
    tasks = zip(embeddings, labels)
    return torch.stack([torch.stack([x[y == k].mean(0) for k in range(ways)]) for x, y in tasks])


def shuffled_labels(t, ways, each, generator):
    n = ways * each
    return torch.stack([torch.randperm(n, generator=generator) % ways for _ in range(t)])


def draw(t, ways, shots, queries, d, generator):
    """Float32 embeddings around a centre for each class, and their labels."""
    centres = torch.randn(t, ways, d, generator=generator)

    def around(labels):
        noise = torch.randn(*labels.shape, d, generator=generator)
        return torch.stack([c[y] for c, y in zip(centres, labels)]) + 0.9 * noise

    support_labels = shuffled_labels(t, ways, shots, generator)
    query_labels = shuffled_labels(t, ways, queries, generator)
    return around(support_labels), support_labels, around(query_labels), query_labels


def golden(episode, generator):
    support, support_labels, queries, query_labels = draw(**episode, generator=generator)
    values = {
        "support": support,
        "support_labels": support_labels,
        "queries": queries,
        "query_labels": query_labels,
        "prototypes": class_means(support.double(), support_labels, episode["ways"]),
    }
    for name, metric in {"squared_euclidean": squared_euclidean, "cosine": cosine}.items():
        x = support.double().requires_grad_()
        q = queries.double().requires_grad_()
        logits = SCALES[name] * metric(q, class_means(x, support_labels, episode["ways"]))
        first, second = logits.topk(2).values.unbind(-1)
        assert (first - second).min() > 1e-3, "a query between two classes, take another seed"
        loss = F.cross_entropy(logits.flatten(0, 1), query_labels.flatten())
        loss.backward()
        values |= {
            f"{name}/logits": logits,
            f"{name}/loss": loss.reshape(1),
            f"{name}/gradient/support": x.grad,
            f"{name}/gradient/queries": q.grad,
            f"{name}/accuracy": (logits.argmax(-1) == query_labels).double().mean(1),
        }
    return values


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
    generator = torch.Generator().manual_seed(SEED)
    cases = {}
    for name, episode in EPISODES.items():
        values = golden(episode, generator)
        cases |= {f"{name}/{key}": value for key, value in values.items()}
    header = {
        "made_by": "tests/golden/proto_net.py",
        "torch": torch.__version__.split("+")[0],
        "seed": SEED,
        "episodes": EPISODES,
        "scales": SCALES,
    }
    write(Path(__file__).with_name("proto_net.json"), header, cases)


if __name__ == "__main__":
    main()
