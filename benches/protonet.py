"""Training of a prototypical network by PyTorch, beside `fewshot train` and `fewshot bench kernels --only training_step`.

pip install torch
python benches/protonet.py [omniglot] [colour] [--threads N] [--bf16] [--steps N]

A step is an episode drawn and gathered, its loss, the gradients and Adam; the network is a Conv-4
of 64 channels with batch statistics. PyTorch in its fastest setting: channels_last, fused Adam,
and freed memory kept by the allocator, whose pages would be faulted in anew in each step otherwise.

Images are random floats, which are there already: what they show does not change the time.
Memory is the peak of the steps above what was there before them, the interpreter and the images.
Linux with glibc. ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 keep PyTorch to AVX2.
"""

import argparse
import ctypes
import gc
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

# Ways, shots, queries a class; and the images: classes, of each, channels, side.
CASES = {
    "omniglot": ((60, 1, 5), (4800, 20, 1, 28)),
    "colour": ((30, 1, 15), (60, 20, 3, 84)),
}
WARM_UP = 3


def keep_freed_memory():
    trim_threshold, mmap_max = -1, -4
    ctypes.CDLL(None).mallopt(mmap_max, 0)
    ctypes.CDLL(None).mallopt(trim_threshold, 2**31 - 1)


def megabytes(field):
    """`VmRSS` is what is resident now, `VmHWM` the peak since `fresh_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def fresh_peak():
    """Hands freed memory back, begins a new peak, and tells what is resident."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return megabytes("VmRSS")


def timed(step, warm_up, steps):
    """Seconds of each step after the first ones, in order, and the megabytes that all took."""
    before, times = fresh_peak(), []
    for _ in range(warm_up + steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times[warm_up:]), megabytes("VmHWM") - before


def conv4(channels):
    layers = []
    for inputs in (channels, 64, 64, 64):
        conv = nn.Conv2d(inputs, 64, 3, padding=1)
        layers += [conv, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def train(name, bf16, steps):
    (ways, shots, queries), (classes, each, channels, side) = CASES[name]
    images = torch.rand(classes, each, channels, side, side)
    network = conv4(channels).to(memory_format=torch.channels_last)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    labels = torch.arange(ways).repeat_interleave(queries)

    def step():
        of = torch.randperm(classes)[:ways, None]
        drawn = torch.rand(ways, each).argsort(1)[:, : shots + queries]
        episode = images[of, drawn].flatten(0, 1).contiguous(memory_format=torch.channels_last)
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            embedded = network(episode)
        embedded = embedded.float().view(ways, shots + queries, -1)
        prototypes, asked = embedded[:, :shots].mean(1), embedded[:, shots:].flatten(0, 1)
        distances = asked.square().sum(1, keepdim=True) + prototypes.square().sum(1)
        F.cross_entropy(2 * asked @ prototypes.T - distances, labels).backward()
        adam.step()

    return timed(step, WARM_UP, steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="under autocast")
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    print(f"{'training episodes/s':<24}{'mean':>12}{'median':>12}{'MB':>12}")
    for name in args.names or CASES:
        times, memory = train(name, args.bf16, args.steps)
        mean, median = len(times) / sum(times), 1 / times[len(times) // 2]
        print(f"{name:<24}{mean:>12.3f}{median:>12.3f}{memory:>12.0f}", flush=True)
