"""Training of whole networks by PyTorch, beside `cargo bench --bench train_networks`.

pip install torch torchvision timm safetensors
python benches/train_networks.py losses FOLDER [NAME...]
python benches/train_networks.py speed STEPS [NAME...]

A step is the loss of a linear classifier on the network's features, its gradients, and SGD with momentum. `losses` writes
drawn weights, one batch of pictures and the losses of 20 steps on it in f64 to the folder, and prints how far PyTorch in f32 is from them,
as it is and as `channels_last`; the bench in Rust reads them, takes the same steps in f32 and prints both. `speed` prints the least and the median milliseconds of so many steps and the most memory that the steps took above what was there before,
of the network as it is and as `channels_last`, the faster first. Freed memory is kept by the allocator, whose pages would
be faulted in anew in each step otherwise. Linux with glibc. ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 keep PyTorch to AVX2.
"""

import argparse
import copy
import json
import sys
from pathlib import Path

import timm
import torch
import torch.nn.functional as F
import torchvision
from protonet import keep_freed_memory, timed
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "models/tests/golden"))
from backbones import EfficientNetLite, ResNet12, WideResNet  # noqa: E402

CLASSES = 64
STEPS = 20
# Pictures that losses are compared on.
FEW = 4


def resnet18():
    network = torchvision.models.resnet18(weights=None)
    network.fc = nn.Identity()
    return network


def vit():
    return timm.create_model("vit_small_patch14_dinov2", pretrained=False, img_size=224, num_classes=0)


# Network, length of its features, pictures of a batch, their side.
NETWORKS = {
    "resnet12": (ResNet12, 640, 32, 84),
    "wide-resnet-28-10": (WideResNet, 640, 4, 84),
    "resnet18": (resnet18, 512, 32, 84),
    "efficientnet-lite0": (EfficientNetLite, 1280, 32, 84),
    "dinov2-s": (vit, 384, 8, 224),
}


def made(name, batch=None):
    make, features, size, side = NETWORKS[name]
    batch = batch or size
    torch.manual_seed(1)
    network, head = make(), nn.Linear(features, CLASSES)
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and name != "dinov2-s":
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
    images, labels = torch.randn(batch, 3, side, side), torch.arange(batch) % CLASSES
    return nn.Sequential(network, head).train(), images, labels


def channels_last(network, images):
    return [x.to(memory_format=torch.channels_last) for x in (network, images)]


def stepper(network, images, labels, rate):
    sgd = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, fused=True)

    def step():
        sgd.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        sgd.step()
        return loss.item()

    return step


def losses(folder, name):
    network, images, labels = made(name, FEW)
    # Safetensors takes tensors that share no memory.
    state = {key: x.clone() for key, x in network[0].state_dict().items() if x.is_floating_point()}
    save_file(state, folder / f"{name}.safetensors")
    inputs = {"images": images, "weight": network[1].weight.detach().clone(), "bias": network[1].bias.detach().clone()}
    save_file(inputs, folder / f"{name}.inputs.safetensors")
    runs = {"eager": (network, images), "channels_last": channels_last(copy.deepcopy(network), images)}
    exact = taken(copy.deepcopy(network).double(), images.double(), labels)
    (folder / f"{name}.json").write_text(json.dumps(exact) + "\n")
    print(f"{name:<20} from {exact[0]:.5f} to {exact[-1]:.5f}", flush=True)
    for way, inputs in runs.items():
        off = max(abs(loss / other - 1) for loss, other in zip(taken(*inputs, labels), exact))
        print(f"{name:<20} {way} in f32 is off by at most {off:.1e}", flush=True)


def taken(network, images, labels):
    step = stepper(network, images, labels, 1e-3)
    return [step() for _ in range(STEPS)]


def speed(name, steps):
    rows = []
    for way in ("eager", "channels_last"):
        network, images, labels = made(name)
        if way == "channels_last":
            network, images = channels_last(network, images)
        times, memory = timed(stepper(network, images, labels, 1e-3), 2, steps)
        rows.append((1e3 * times[0], 1e3 * times[len(times) // 2], memory, way))
    for least, median, memory, way in sorted(rows):
        print(f"{name:<20}{way:<16}{least:>12.0f}{median:>12.0f}{memory:>12.0f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["losses", "speed"])
    parser.add_argument("folder", metavar="FOLDER|STEPS")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(args.threads)
    if args.task == "losses":
        Path(args.folder).mkdir(parents=True, exist_ok=True)
        for name in args.names or NETWORKS:
            losses(Path(args.folder), name)
    else:
        print(f"{'ms a step':<20}{'way':<16}{'least':>12}{'median':>12}{'MB':>12}")
        for name in args.names or NETWORKS:
            speed(name, int(args.folder))
