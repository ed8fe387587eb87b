"""Features of pretrained networks, as PyTorch computes them from weights that a formula gives.

    python models/tests/golden/backbones.py [efficientnet-lite0.pth]

writes beside this file

- backbones.json: the names and shapes of the parameters of every network, and the features of two images. Parameters and
  images are made by `values`, which the tests have too, so that no weights lie here. Networks are those of torchvision,
  timm and open_clip where these have them. With the published weights of EfficientNet-Lite0 their features are there too.
  Of DINOv2 whose positions are interpolated there is every 16th feature; of ResNet-12 there are a few gradients. Networks
  with registers have the parameters of those without, and the registers; CLIP has the same in both activations.
- transposed.pt and transposed_legacy.pt: a small ResNet-12 whose weights lie channels last, as PyTorch writes files today
  and as it did before 1.6.
"""
# torch==2.15.0
# torchvision==0.29.2
# timm, open_clip_torch: see "made_by" in the file

import json
import math
import sys
from pathlib import Path

import numpy as np
import open_clip
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


def hashed(name):
    """FNV-1a."""
    key = 0x811C9DC5
    for byte in name.encode():
        key = (key ^ byte) * 0x01000193 % 2**32
    return key


def values(name, shape):
    """Numbers between -1 and 1 that depend on the name and the index."""
    x = np.arange(math.prod(shape), dtype=np.uint32) + np.uint32(hashed(name))
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
        x = x ^ (x >> np.uint32(16))
    return torch.from_numpy((x / 2.0**31 - 1).astype(np.float32)).reshape(shape)


def drawn(name, shape):
    """A parameter: of a size that keeps features of the size of one through many layers."""
    x = values(name, shape)
    last = name.rsplit(".", 1)[-1]
    if last == "running_var":
        return 1 + 0.5 * x
    if last == "running_mean" or last in ("bias", "in_proj_bias"):
        return 0.1 * x
    if last == "gamma" or (last == "weight" and len(shape) == 1):
        return 1 + 0.3 * x
    fan = math.prod(shape[1:]) if len(shape) > 1 else shape[0]
    return math.sqrt(3.0 / fan) * x


def fill(network):
    state = network.state_dict()
    state = {name: drawn(name, tuple(of.shape)) if of.is_floating_point() else of for name, of in state.items()}
    network.load_state_dict(state)
    return network.eval()


class ResNet12(nn.Module):
    class Block(nn.Module):
        def __init__(self, c_in, c_out):
            super().__init__()
            for index, c in enumerate([c_in, c_out, c_out], 1):
                setattr(self, f"conv{index}", nn.Conv2d(c, c_out, 3, padding=1, bias=False))
                setattr(self, f"bn{index}", nn.BatchNorm2d(c_out))
            self.downsample = nn.Sequential(nn.Conv2d(c_in, c_out, 1, bias=False), nn.BatchNorm2d(c_out))

        def forward(self, x):
            y = F.leaky_relu(self.bn1(self.conv1(x)), 0.1)
            y = F.leaky_relu(self.bn2(self.conv2(y)), 0.1)
            y = self.bn3(self.conv3(y)) + self.downsample(x)
            return F.max_pool2d(F.leaky_relu(y, 0.1), 2)

    def __init__(self, widths=(64, 160, 320, 640)):
        super().__init__()
        widths = [3, *widths]
        for index, (c_in, c_out) in enumerate(zip(widths, widths[1:]), 1):
            setattr(self, f"layer{index}", nn.Sequential(self.Block(c_in, c_out)))

    def forward(self, x):
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


class WideResNet(nn.Module):
    class Block(nn.Module):
        def __init__(self, c_in, c_out, stride):
            super().__init__()
            self.bn1, self.bn2 = nn.BatchNorm2d(c_in), nn.BatchNorm2d(c_out)
            self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
            if c_in != c_out:
                self.convShortcut = nn.Conv2d(c_in, c_out, 1, stride, bias=False)

        def forward(self, x):
            active = F.relu(self.bn1(x))
            shortcut = self.convShortcut(active) if hasattr(self, "convShortcut") else x
            return self.conv2(F.relu(self.bn2(self.conv1(active)))) + shortcut

    def __init__(self, blocks=4, width=10):
        super().__init__()
        widths = [16, 16 * width, 32 * width, 64 * width]
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        for index, stride in enumerate([1, 2, 2]):
            pairs = [(widths[index], widths[index + 1], stride)] + [(widths[index + 1],) * 2 + (1,)] * (blocks - 1)
            stage = nn.Module()
            stage.layer = nn.Sequential(*[self.Block(*pair) for pair in pairs])
            setattr(self, f"block{index + 1}", stage)
        self.bn1 = nn.BatchNorm2d(widths[3])

    def forward(self, x):
        x = self.conv1(x)
        for stage in [self.block1, self.block2, self.block3]:
            x = stage.layer(x)
        return F.relu(self.bn1(x)).mean((2, 3))


class Same(nn.Conv2d):
    """TensorFlow's SAME padding."""

    def forward(self, x):
        def pad(side, window, stride):
            total = max((math.ceil(side / stride) - 1) * stride + window - side, 0)
            return [total // 2, total - total // 2]

        (h, w), (window, _), (stride, _) = x.shape[2:], self.kernel_size, self.stride
        x = F.pad(x, pad(w, window, stride) + pad(h, window, stride))
        return F.conv2d(x, self.weight, self.bias, self.stride, groups=self.groups)


class EfficientNetLite(nn.Module):
    STAGES = [
        (1, 3, 1, 1, 16),
        (2, 3, 2, 6, 24),
        (2, 5, 2, 6, 40),
        (3, 3, 2, 6, 80),
        (3, 5, 1, 6, 112),
        (4, 5, 2, 6, 192),
        (1, 3, 1, 6, 320),
    ]

    class Block(nn.Module):
        def __init__(self, c_in, c_out, window, stride, expansion):
            super().__init__()
            wide = c_in * expansion
            if expansion > 1:
                self._expand_conv = Same(c_in, wide, 1, bias=False)
                self._bn0 = nn.BatchNorm2d(wide, eps=1e-3)
            self._depthwise_conv = Same(wide, wide, window, stride, groups=wide, bias=False)
            self._bn1 = nn.BatchNorm2d(wide, eps=1e-3)
            self._project_conv = Same(wide, c_out, 1, bias=False)
            self._bn2 = nn.BatchNorm2d(c_out, eps=1e-3)
            self.skip = stride == 1 and c_in == c_out

        def forward(self, x):
            y = F.relu6(self._bn0(self._expand_conv(x))) if hasattr(self, "_bn0") else x
            y = F.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return y + x if self.skip else y

    def __init__(self):
        super().__init__()
        self._conv_stem, self._bn0 = Same(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32, eps=1e-3)
        blocks, c_in = [], 32
        for repeats, window, stride, expansion, c_out in self.STAGES:
            for place in range(repeats):
                blocks.append(self.Block(c_in, c_out, window, stride if place == 0 else 1, expansion))
                c_in = c_out
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = Same(c_in, 1280, 1, bias=False), nn.BatchNorm2d(1280, eps=1e-3)

    def forward(self, x):
        x = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return F.relu6(self._bn1(self._conv_head(x))).mean((2, 3))


def torchvision_network(name):
    network = getattr(torchvision.models, name)(weights=None)
    network.fc = nn.Identity()
    return network


def dinov2(size, image):
    return timm.create_model(f"vit_{size}_patch14_dinov2", pretrained=False, img_size=image, num_classes=0)


class Registers(nn.Module):
    """DINOv2 with four registers: timm's network on parameters as their authors publish them, where the class token and its
    position are apart."""

    def __init__(self, size, image):
        super().__init__()
        name = f"vit_{size}_patch14_reg4_dinov2"
        self.network = timm.create_model(name, pretrained=False, img_size=image, num_classes=0)
        self.embed_dim = self.network.embed_dim

    def fill(self, grid, rows, columns, learned=drawn):
        """With positions of `grid` made by `learned`, interpolated where the image has another."""
        width = self.embed_dim
        positions = learned("pos_embed", (1, 1 + grid * grid, width))
        state = {name: drawn(name, tuple(of.shape)) for name, of in self.network.state_dict().items()}
        state["reg_token"] = drawn("register_tokens", (1, 4, width))
        state["cls_token"] = drawn("cls_token", (1, 1, width)) + positions[:, :1]
        patches = positions[:, 1:]
        state["pos_embed"] = patches if (rows, columns) == (grid, grid) else antialiased(patches, rows, columns)
        self.network.load_state_dict(state)
        return self.eval()

    def forward(self, x):
        return self.network(x)


def clip(name="ViT-B-32-quickgelu"):
    return open_clip.create_model(name, pretrained=None).visual


def networks():
    yield "resnet12", ResNet12(), (84, 84)
    yield "resnet18", torchvision_network("resnet18"), (64, 96)
    yield "resnet34", torchvision_network("resnet34"), (64, 64)
    yield "resnet50", torchvision_network("resnet50"), (64, 64)
    yield "wide-resnet-28-10", WideResNet(), (20, 20)
    # At stride 2 sides that are even and odd.
    yield "efficientnet-lite0", EfficientNetLite(), (97, 64)
    yield "dinov2-s14", dinov2("small", 56), (56, 56)
    yield "clip-b32", clip(), (224, 224)


def interpolated(learned, rows, columns):
    """Positions `[1, grid * grid, width]` for another grid, as DINOv2 does it: with an offset and no antialiasing."""
    grid = math.isqrt(learned.shape[1])
    scale = ((rows + 0.1) / grid, (columns + 0.1) / grid)
    maps = learned.unflatten(1, (grid, grid)).permute(0, 3, 1, 2)
    found = F.interpolate(maps, scale_factor=scale, mode="bicubic")
    assert found.shape[2:] == (rows, columns)
    return found.permute(0, 2, 3, 1).flatten(1, 2)


def antialiased(learned, rows, columns):
    """The same as DINOv2 with registers does it."""
    grid = math.isqrt(learned.shape[1])
    maps = learned.unflatten(1, (grid, grid)).permute(0, 3, 1, 2)
    return F.interpolate(maps, (rows, columns), mode="bicubic", antialias=True).permute(0, 2, 3, 1).flatten(1, 2)


def positions(grid, rows, columns, interpolate=interpolated):
    """Interpolated positions of two numbers each."""
    return interpolate(values("positions", (1, grid * grid, 2)), rows, columns).flatten()


@torch.no_grad()
def dinov2_elsewhere(size, image):
    """Every 16th feature of a DINOv2 of the published grid, whose positions are as large as its tokens."""
    network = fill(dinov2(size, image))
    learned = values("pos_embed", (1, 1 + 37 * 37, network.embed_dim))
    rows, columns = [side // 14 for side in image]
    network.pos_embed.copy_(torch.cat([learned[:, :1], interpolated(learned[:, 1:], rows, columns)], 1))
    found = golden(network, image)
    return {**found, "features": found["features"][::16]}


@torch.no_grad()
def registers_elsewhere(size, image):
    """The same of a DINOv2 with registers."""
    network = Registers(size, image).fill(37, *[side // 14 for side in image], values)
    found = golden(network, image)
    return {**found, "features": found["features"][::16]}


GRADIENTS = [
    "layer1.0.conv1.weight",
    "layer1.0.bn2.weight",
    "layer2.0.downsample.0.weight",
    "layer3.0.downsample.1.bias",
    "layer4.0.conv3.weight",
    "images",
]


def gradients(size, batch):
    """Root mean square and first numbers of gradients of the sum of cubes of ResNet-12's features."""
    network = fill(ResNet12()).double().train(batch)
    images = values("images", (2, 3, *size)).double().requires_grad_()
    network(images).pow(3).sum().backward()
    of = {"images": images, **dict(network.named_parameters())}
    found = {name: of[name].grad.flatten() for name in GRADIENTS}
    return {name: numbers(torch.cat([x.square().mean().sqrt()[None], x[:4]])) for name, x in found.items()}


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.float().flatten().tolist()]


@torch.no_grad()
def golden(network, size):
    images = values("images", (2, 3, *size))
    return {"size": list(size), "features": numbers(network.double()(images.double()))}


def write_transposed(folder):
    network = fill(ResNet12((2, 3, 4, 5))).to(memory_format=torch.channels_last)
    state = network.state_dict()
    assert not state["layer2.0.conv1.weight"].is_contiguous()
    torch.save(state, folder / "transposed.pt")
    torch.save(state, folder / "transposed_legacy.pt", _use_new_zipfile_serialization=False)


def main():
    torch.set_num_threads(1)
    write_transposed(Path(__file__).parent)
    cases = {}
    for name, network, size in networks():
        state = fill(network).state_dict().items()
        shapes = [[key, list(of.shape)] for key, of in state if of.is_floating_point()]
        cases[name] = {"parameters": shapes, **golden(network, size)}
    shapes = [[key, list(of.shape)] for key, of in dinov2("base", 518).state_dict().items()]
    written = {
        "made_by": "models/tests/golden/backbones.py",
        "torch": torch.__version__.split("+")[0],
        "torchvision": torchvision.__version__.split("+")[0],
        "timm": timm.__version__,
        "open_clip": open_clip.__version__,
        "positions": {"grid": 5, "size": [3, 7], "values": numbers(positions(5, 3, 7)),
                      "antialiased": numbers(positions(5, 3, 7, antialiased))},
        "interpolated": {
            "dinov2-s14": dinov2_elsewhere("small", (224, 224)),
            "dinov2-b14": dinov2_elsewhere("base", (28, 42)),
            "dinov2-s14-reg": registers_elsewhere("small", (224, 224)),
            "dinov2-b14-reg": registers_elsewhere("base", (28, 42)),
        },
        "gradients": {
            "size": [32, 32],
            "running": gradients((32, 32), False),
            "batch": gradients((32, 32), True),
        },
        "dinov2-b14": shapes,
        "alike": {
            "dinov2-s14-reg": golden(Registers("small", (56, 56)).fill(4, 4, 4), (56, 56)),
            "clip-b32-gelu": golden(fill(clip("ViT-B-32")), (224, 224)),
        },
        "networks": cases,
    }
    path = Path(__file__).with_suffix(".json")
    if len(sys.argv) > 1:
        network = EfficientNetLite().eval()
        network.load_state_dict(torch.load(sys.argv[1]), strict=False)
        written["published efficientnet-lite0"] = golden(network, (224, 224))
    elif path.exists():
        kept = json.loads(path.read_text())
        written["published efficientnet-lite0"] = kept["published efficientnet-lite0"]
    path.write_text(json.dumps(written, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
