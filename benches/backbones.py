"""Benchmarks of benches/backbones.rs by others, on two threads in f32: each way of running a network.

pip install torch timm onnx onnxscript onnxruntime openvino
python benches/backbones.py [NAME...]

A row is milliseconds a picture, the least and the median. Networks embed by PyTorch (as they are, in channels-last, and traced
with `optimize_for_inference`), by ONNX Runtime and by OpenVINO, both from a graph of PyTorch's own export.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy
import onnxruntime
import openvino
import timm
import torch
from torch import nn

warnings.filterwarnings("ignore")
THREADS = 2
torch.set_num_threads(THREADS)
NAMES = {
    "efficientnet-lite0": ("efficientnet_lite0", {"num_classes": 0}),
    "dinov2-s": ("vit_small_patch14_dinov2", {"num_classes": 0, "img_size": 224}),
    # The projection to the space of texts is its last layer.
    "clip-b32": ("vit_base_patch32_clip_quickgelu_224", {"num_classes": 512}),
    "resnet18": ("resnet18", {"num_classes": 0}),
    "resnet50": ("resnet50", {"num_classes": 0}),
}


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


def eager(model, images, _):
    return lambda: model(images)


def channels_last(model, images, _):
    model = model.to(memory_format=torch.channels_last)
    images = images.to(memory_format=torch.channels_last)
    return lambda: model(images)


def traced(model, images, _):
    traced = torch.jit.optimize_for_inference(torch.jit.trace(model, images))
    return lambda: traced(images)


def session(graph):
    """The function from images to features of a graph in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images.numpy()})[0]


def onnx_runtime(_, images, graph):
    embed = session(graph)
    return lambda: embed(images)


def open_vino(_, images, graph):
    hints = {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().read_model(graph)
    model.reshape(list(images.shape))
    request = openvino.Core().compile_model(model, "CPU", hints).create_infer_request()
    inputs = openvino.Tensor(images.numpy(), shared_memory=True)
    return lambda: request.infer([inputs])[0]


WAYS = (eager, channels_last, traced, onnx_runtime, open_vino)


def embed(name):
    network, options = NAMES[name]
    for batch in (1, 32):
        images = torch.randn(batch, 3, 224, 224)
        expected = None
        for way in WAYS:
            torch.manual_seed(1)
            model = timm.create_model(network, pretrained=False, **options).eval()
            with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
                graph = Path(folder, "graph.onnx")
                if way in (onnx_runtime, open_vino):
                    torch.onnx.export(model, (images,), graph, dynamo=True, verbose=False)
                work = way(model, images, graph)
                features = numpy.asarray(work())
                expected = features if expected is None else expected
                assert abs(features - expected).max() < 1e-3 * abs(expected).max(), (name, way.__name__)
                show(name, way.__name__, batch, milliseconds(work))


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
