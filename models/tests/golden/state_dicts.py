"""Tensors in every layout and type as PyTorch writes them, today in state_dict.pt and as before 1.6 in state_dict_legacy.pt."""
# torch==2.15.0

from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

base = torch.arange(12.0).reshape(3, 4)
model = OrderedDict(
    rows=base,
    columns=base.t(),
    view=base[1:, 2],
    expanded=base[1, 1:2].expand(3),
    parameter=nn.Parameter(torch.tensor([0.5, -0.5])),
    brain=torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    half=torch.tensor([1.5, -2.0], dtype=torch.float16),
    double=torch.tensor([[1.5], [-2.0]], dtype=torch.float64),
    long=torch.tensor(7),
    bool=torch.tensor([True, False]),
    empty=torch.zeros(0, 3),
)
whole = {"model": model, "epoch": 3, "rate": 0.1, "moments": {0: torch.ones(2)}, "rest": [base + 1, None]}
for name, zipped in (("state_dict.pt", True), ("state_dict_legacy.pt", False)):
    torch.save(whole, Path(__file__).with_name(name), _use_new_zipfile_serialization=zipped)
