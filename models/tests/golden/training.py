"""Losses of the first steps of training, which models/tests/backbones/training.rs follows.

python3 -m pip install torch==2.15.0 torchvision==0.29.2 timm open_clip_torch numpy==2.4.6
python3 models/tests/golden/training.py

Narrow networks of the layers and names of the full ones, beneath a linear classifier, which learn one batch. Parameters,
pictures and labels are formulas of their names. PyTorch computes in f64; the script fails where its own f32 is farther from
that than a tenth of the test's tolerance, so that the test measures the code and not the conditioning. Rates are small for
the same reason: where two pixels of a window are equal but for rounding, the gradient takes either, and at ten times these
rates the paths part by a per cent within 20 steps. EfficientNet, whose kinks lie closest, takes three steps.

`trained` is the loss by running averages after the last step. They are averages of the biased variance in
`fewshot` and of the unbiased one in PyTorch, so the script takes PyTorch's with the bias put back.
"""
# torch==2.15.0
# torchvision==0.29.2

import json
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
import torchvision
from backbones import EfficientNetLite, ResNet12, WideResNet, drawn, values
from torch import nn

CLASSES = 5
BATCH = 20


class BatchNorm(nn.BatchNorm2d):
    """Running averages of the biased variance."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        with torch.no_grad():
            variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)


class ResNet(nn.Module):
    """torchvision's ResNet of basic blocks, of any width."""

    class Block(nn.Module):
        def __init__(self, c_in, c_out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(c_out)
            self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(c_out)
            if stride != 1 or c_in != c_out:
                shortcut = nn.Conv2d(c_in, c_out, 1, stride, bias=False)
                self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(c_out))

        def forward(self, x):
            y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
            return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))

    def __init__(self, blocks=(2, 2, 2, 2), width=64):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        c_in = width
        for stage, count in enumerate(blocks):
            c_out = width << stage
            pairs = [(c_in, c_out, 1 if stage == 0 else 2)] + [(c_out, c_out, 1)] * (count - 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*[self.Block(*pair) for pair in pairs]))
            c_in = c_out

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


def check_resnet():
    """Of full width it is torchvision's."""
    ours, theirs = ResNet(), torchvision.models.resnet18(weights=None)
    theirs.fc = nn.Identity()
    ours.load_state_dict(theirs.state_dict())
    images = values("images", (2, 3, 64, 64))
    assert torch.equal(ours(images), theirs(images))


def vit():
    """The architecture of timm's DINOv2 with patches of 8."""
    return timm.models.vision_transformer.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3, init_values=1e-5, num_classes=0)


SGD = {"kind": "sgd", "rate": 5e-4, "momentum": 0.9, "decay": 5e-4}
ADAM = {"kind": "adam", "rate": 1e-3}

# Network, length of its features, side of the pictures, optimizer, steps.
CASES = {
    "resnet12": (lambda: ResNet12((6, 8, 10, 12)), 12, 32, SGD, 20),
    "wide-resnet": (lambda: WideResNet(blocks=2, width=1), 64, 16, SGD, 20),
    "resnet18": (lambda: ResNet(width=4), 32, 64, {**SGD, "rate": 2e-4}, 20),
    "vit": (vit, 24, 32, {**SGD, "rate": 5e-3}, 20),
    "vit by adam": (vit, 24, 32, ADAM, 20),
    "efficientnet-lite0": (EfficientNetLite, 1280, 64, {**SGD, "rate": 1e-4}, 3),
}


def made(optimizer, parameters):
    rate = optimizer["rate"]
    if optimizer["kind"] == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=optimizer["momentum"], weight_decay=optimizer["decay"])


def with_biased_averages(network):
    for module in network.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = BatchNorm
            if module.eps == 1e-3:
                module.momentum = 0.01
    return network


def filled(network, features, dtype):
    state = {name: drawn(name, tuple(x.shape)) if x.is_floating_point() else x for name, x in network.state_dict().items()}
    network.load_state_dict(state)
    head = nn.Linear(features, CLASSES)
    head.load_state_dict({name: drawn(f"head.{name}", tuple(x.shape)) for name, x in head.state_dict().items()})
    return with_biased_averages(nn.Sequential(network, head)).to(dtype)


def losses(make, features, side, optimizer, steps, dtype):
    network = filled(make(), features, dtype).train()
    images = values("images", (BATCH, 3, side, side)).to(dtype)
    labels = torch.arange(BATCH) % CLASSES
    optimizer, found = made(optimizer, network.parameters()), []
    for _ in range(steps):
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    with torch.no_grad():
        trained = F.cross_entropy(network.eval()(images), labels).item()
    return found, trained


def main():
    torch.set_num_threads(1)
    check_resnet()
    cases = {}
    for name, case in CASES.items():
        make, features, side, optimizer, _ = case
        exact, trained = losses(*case, torch.float64)
        single, after = losses(*case, torch.float32)
        off = max(abs(a / b - 1) for a, b in zip([*single, after], [*exact, trained]))
        print(f"{name:<20} {exact[0]:.4f} to {exact[-1]:.4f}, trained {trained:.4f}; f32 is off by {off:.1e}")
        assert off < 1e-4, name
        shapes = [[key, list(x.shape)] for key, x in make().state_dict().items() if x.is_floating_point()]
        cases[name] = {"parameters": shapes, "features": features, "side": side, "optimizer": optimizer,
                       "losses": exact, "trained": trained}
    written = {"made_by": "models/tests/golden/training.py", "torch": torch.__version__.split("+")[0],
               "batch": BATCH, "classes": CLASSES, "cases": cases}
    text = json.dumps(written, separators=(",", ":"))
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
