"""What benches/backbones.rs measures, by PyTorch: each way of running a network, and the best of them.

pip install torch timm; python benches/backbones.py [NAME...]
"""

import sys
import time
import warnings

import timm
import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(2)
NAMES = {"efficientnet-lite0": "efficientnet_lite0", "dinov2-s": "vit_small_patch14_dinov2"}


def milliseconds(work, rounds=7, seconds=1):
    work()
    work()
    times, begin = [], time.perf_counter()
    while len(times) < rounds or time.perf_counter() < begin + seconds:
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)


def show(name, way, batch, times):
    least, median = times[0] / batch, times[len(times) // 2] / batch
    print(f"{name:<24}{way:<16}{batch:>6}{least:>12.2f}{median:>12.2f}", flush=True)


def embed(name):
    size = {"img_size": 224} if name == "dinov2-s" else {}
    model = timm.create_model(NAMES[name], pretrained=False, num_classes=0, **size).eval()
    for batch in (1, 32):
        images = torch.randn(batch, 3, 224, 224)
        with torch.inference_mode():
            show(name, "eager", batch, milliseconds(lambda: model(images)))
            last = images.to(memory_format=torch.channels_last)
            turned = model.to(memory_format=torch.channels_last)
            show(name, "channels_last", batch, milliseconds(lambda: turned(last)))
            model = model.to(memory_format=torch.contiguous_format)
            traced = torch.jit.optimize_for_inference(torch.jit.trace(model, images))
            show(name, "traced", batch, milliseconds(lambda: traced(images)))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        conv = lambda a: nn.Conv2d(a, outputs, 3, padding=1, bias=False)
        self.convs = nn.ModuleList([conv(inputs), conv(outputs), conv(outputs)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs) for _ in range(3)])
        shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))
        self.act, self.pool = nn.LeakyReLU(0.1, inplace=True), nn.MaxPool2d(2)

    def forward(self, x):
        y = x
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            y = norm(conv(y))
            y = self.act(y) if i < 2 else y
        return self.pool(self.act(y + self.shortcut(x)))


def learn():
    widths = [3, 64, 160, 320, 640]
    for way in ("eager", "channels_last"):
        model = nn.Sequential(*(Block(a, b) for a, b in zip(widths, widths[1:]))).train()
        images = torch.randn(32, 3, 84, 84)
        if way == "channels_last":
            model = model.to(memory_format=torch.channels_last)
            images = images.to(memory_format=torch.channels_last)

        def work():
            model.zero_grad(set_to_none=True)
            model(images).mean((2, 3)).square().mean().backward()

        show("resnet12-training", way, 32, milliseconds(work))


if __name__ == "__main__":
    print(f"{'ms a picture':<24}{'way':<16}{'batch':>6}{'least':>12}{'median':>12}")
    asked = sys.argv[1:]
    for name in NAMES:
        if not asked or name in asked:
            embed(name)
    if not asked or "resnet12-training" in asked:
        learn()
