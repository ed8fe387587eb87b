"""Golden values of the gradient scaler: scale and growth tracker after every step of torch.amp.GradScaler.

    python tests/golden/grad_scaler.py

writes grad_scaler.json beside this file. Each step is a whole one, scale, backward, step and update, of one
parameter whose gradient is 1, infinite or NaN. A step is `f` for finite, `p` for plus infinity, `m` for minus
infinity and `n` for NaN. A row holds the number of steps done, the scale, the growth tracker and the value of the
parameter, which moves by about -1 in every step that is not skipped. Of the long case, rows with a tracker neither
near to 0 nor to the growth interval are left out.
"""
# torch==2.15.0

import json
from itertools import groupby
from pathlib import Path

import torch

GRADIENTS = {"f": 1.0, "p": float("inf"), "m": float("-inf"), "n": float("nan")}
DEFAULTS = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}
CASES = {
    "grows_every_step": ({"growth_interval": 1}, "ffpfffnnfmff"),
    "grows_every_third": ({"growth_interval": 3}, "ffffpffnffffffmmfffffpfff"),
    "default_interval": ({}, "p" + 2001 * "f" + "n" + 1999 * "f" + "p" + 2 * "f"),
    "below_one": ({"init_scale": 4.0, "growth_interval": 3}, "pmnppfffpppfffffff"),
    "next_to_overflow": ({"init_scale": 2.0**125, "growth_interval": 2}, "fffffffffpffffff"),
    "odd_factors": (
        {"init_scale": 1000.3, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 2},
        "ffffpffffnfffffffpppffffff",
    ),
    "odd_overflow": (
        {"init_scale": 3e38, "growth_factor": 1.1, "backoff_factor": 0.9, "growth_interval": 1},
        "fffpffffmnfffff",
    ),
}


def trace(settings, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", **settings)
    for done, step in enumerate(steps, 1):
        optimizer.zero_grad()
        scaler.scale((parameter * GRADIENTS[step]).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        yield done, state["scale"], state["_growth_tracker"], parameter.item()


def case(name):
    given, steps = CASES[name]
    settings = DEFAULTS | given
    last = settings["growth_interval"] - 1
    rows = [row for row in trace(settings, steps) if min(row[2], last - row[2]) < 3]
    runs = [[step, len(list(run))] for step, run in groupby(steps)]
    return {"settings": settings, "steps": runs, "rows": rows}


def main():
    header = {"made_by": "tests/golden/grad_scaler.py", "torch": torch.__version__.split("+")[0]}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    rows = [f"    {json.dumps(name)}: {json.dumps(case(name))}" for name in CASES]
    text = "{\n" + "\n".join(lines) + '\n  "cases": {\n' + ",\n".join(rows) + "\n  }\n}\n"
    Path(__file__).with_name("grad_scaler.json").write_text(text)


if __name__ == "__main__":
    main()
