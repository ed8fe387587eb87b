"""Five steps of every rule by PyTorch in double precision, for `kernels/tests/kernels/steps`.

    python3 -m pip install torch==2.15.0
    python3 kernels/tests/golden/optimizers.py

PyTorch has no LAMB: its steps are written out here from Algorithm 2 of You et al., 2020. The second
tensor has no gradient at the second step, so its own steps are one fewer.
"""

import json
import pathlib

import torch

SEED, STEPS, RATE = 11, 5, 0.02
SHAPES = [(3, 5), (37,), (2, 3, 2, 2)]


class Lamb(torch.optim.Optimizer):
    def __init__(self, parameters, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(parameters, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta_1, beta_2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"] = beta_1 * state["m"] + (1 - beta_1) * p.grad
                state["v"] = beta_2 * state["v"] + (1 - beta_2) * p.grad**2
                m = state["m"] / (1 - beta_1 ** state["t"])
                v = state["v"] / (1 - beta_2 ** state["t"])
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                p -= group["lr"] * p.norm() / u.norm() * u


RULES = {
    "sgd": (torch.optim.SGD, {}),
    "sgd_decay": (torch.optim.SGD, {"weight_decay": 0.3}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "momentum_dampened": (torch.optim.SGD, {"momentum": 0.8, "dampening": 0.1, "weight_decay": 0.2}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adam": (torch.optim.Adam, {}),
    "adam_decay": (torch.optim.Adam, {"weight_decay": 0.2, "betas": (0.8, 0.95), "eps": 1e-3}),
    "adam_w": (torch.optim.AdamW, {}),
    "adam_w_strong": (torch.optim.AdamW, {"weight_decay": 0.9, "betas": (0.7, 0.9)}),
    "lamb": (Lamb, {}),
    "lamb_no_decay": (Lamb, {"weight_decay": 0.0}),
}


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().flatten().tolist()]


def run(make, options, start, gradients):
    parameters = [torch.nn.Parameter(p.clone()) for p in start]
    optimizer = make(parameters, lr=RATE, **options)
    after = []
    for step in range(STEPS):
        for i, p in enumerate(parameters):
            p.grad = None if (i, step) == (1, 1) else gradients[step][i].clone()
        optimizer.step()
        after.append([numbers(p) for p in parameters])
    return after


def main():
    torch.manual_seed(SEED)
    double = lambda shape: torch.randn(shape).double()
    start = [double(shape) for shape in SHAPES]
    # Gradients of very different sizes, as networks have them.
    gradients = [[double(s) * 10.0 ** (-2 * i) for i, s in enumerate(SHAPES)] for _ in range(STEPS)]
    out = {
        "made_by": "kernels/tests/golden/optimizers.py",
        "torch": torch.__version__.split("+")[0],
        "seed": SEED,
        "learning_rate": RATE,
        "shapes": SHAPES,
        "start": [numbers(p) for p in start],
        "gradients": [[numbers(g) for g in step] for step in gradients],
        "after": {name: run(*rule, start, gradients) for name, rule in RULES.items()},
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
