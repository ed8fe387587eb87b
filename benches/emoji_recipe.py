"""The recipes on emoji by PyTorch, beside `fewshot`: networks on the folder that benches/emoji.py has written.

pip install torch torchvision
python benches/emoji_recipe.py pixels FOLDER
python benches/emoji_recipe.py lite0:WEIGHTS.pth FOLDER
python benches/emoji_recipe.py resnet12 FOLDER --steps 400 --size 42

`pixels` is the nearest neighbour, `lite0` EfficientNet-Lite0 with published weights, frozen. `resnet12` and `conv4` are drawn, and trained
as classifiers of all training emoji: SGD with Nesterov's momentum of 0.9, weight decay of 5e-4 and a rate that falls along a cosine to 0,
on random resized crops, flipped, with brightness, contrast and saturation changed by 0.4. `--batches emoji` draws four images of each of 16
emoji in place of 64 images of all; `--init he` draws convolutions by He's rule in place of PyTorch's. A test is 5-way 1-shot with the four other
styles of an emoji as queries, by the nearest example of unit length.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torchvision import transforms as T

WAYS, STYLES = 5, 5


def read(folder, size):
    """Pictures of each emoji as bytes, `[emoji, styles, 3, size, size]`."""
    emoji = [[Image.open(path).resize((size, size), Image.Resampling.BILINEAR) for path in sorted(of.iterdir())] for of in sorted(folder.iterdir())]
    pixels = np.stack([[np.asarray(picture) for picture in of] for of in emoji])
    return torch.from_numpy(pixels).permute(0, 1, 4, 2, 3).contiguous()


def convolution(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    """Three convolutions beside a shortcut, and a maximum of two by two."""

    def __init__(self, inputs, outputs):
        super().__init__()
        slope = lambda: nn.LeakyReLU(0.1)
        self.way = nn.Sequential(
            *convolution(inputs, outputs), slope(), *convolution(outputs, outputs), slope(), *convolution(outputs, outputs)
        )
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.max_pool2d(F.leaky_relu(self.way(x) + self.shortcut(x), 0.1), 2)


def resnet12():
    widths = [3, 64, 160, 320, 640]
    blocks = [Block(inputs, outputs) for inputs, outputs in zip(widths, widths[1:])]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 640


def conv4():
    blocks = [layer for inputs in (3, 64, 64, 64) for layer in (*convolution(inputs, 64), nn.ReLU(), nn.MaxPool2d(2))]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 64


def lite0(weights):
    sys.path.insert(0, str(Path(__file__).parents[1] / "models/tests/golden"))
    from backbones import EfficientNetLite

    network = EfficientNetLite()
    missing, _ = network.load_state_dict(torch.load(weights), strict=False)
    assert not missing, missing
    resized = nn.Sequential(T.Resize(224, T.InterpolationMode.BICUBIC, antialias=True), T.Normalize([127 / 255] * 3, [128 / 255] * 3))
    return nn.Sequential(resized, network)


def trained(network, features, pixels, given):
    """The network after its steps on all pictures, each drawn anew."""
    emoji, styles = pixels.shape[:2]
    pictures, labels = pixels.flatten(0, 1), torch.arange(emoji).repeat_interleave(styles)
    augment = T.Compose([
        T.RandomResizedCrop(given.size, antialias=True),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4, 0.4),
    ])
    whole = nn.Sequential(network, nn.Linear(features, emoji)).train()
    for layer in network.modules():
        if given.init == "he" and isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    sgd = torch.optim.SGD(whole.parameters(), given.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, given.steps)
    losses = []
    for step in range(given.steps):
        if given.batches == "images":
            drawn = torch.randint(len(pictures), (given.batch,))
        else:
            chosen = torch.randperm(emoji)[: given.batch // 4]
            drawn = torch.cat([styles * one + torch.randperm(styles)[:4] for one in chosen])
        images = torch.stack([augment(picture) for picture in pictures[drawn]]).float() / 255
        loss = F.cross_entropy(whole(images), labels[drawn])
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        rate.step()
        losses.append(loss.item())
        if (step + 1) % 25 == 0:
            print(f"step {step + 1}: mean loss of 25 steps {np.mean(losses[-25:]):.3f}", file=sys.stderr, flush=True)
    return network


@torch.inference_mode()
def test(network, pixels, episodes):
    """Percent of queries, and the half-width of its 95 % interval."""
    images = pixels.flatten(0, 1).float() / 255
    embedded = torch.cat([network(part) for part in images.split(64)])
    embedded = F.normalize(embedded, dim=1).unflatten(0, pixels.shape[:2])
    draw, right = np.random.default_rng(1), []
    for _ in range(episodes):
        emoji = draw.choice(len(embedded), WAYS, replace=False)
        styles = np.stack([draw.permutation(STYLES) for _ in emoji])
        shown = embedded[emoji[:, None], styles]
        nearest = (shown[:, 1:].flatten(0, 1) @ shown[:, 0].T).argmax(1)
        right.append((nearest == torch.arange(WAYS).repeat_interleave(STYLES - 1)).float().mean().item())
    right = 100 * np.array(right)
    return right.mean(), 1.96 * right.std(ddof=1) / len(right) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--batches", choices=["images", "emoji"], default="images")
    parser.add_argument("--init", choices=["torch", "he"], default="torch")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    name, _, weights = given.network.partition(":")
    if name == "lite0":
        network = lite0(weights)
    elif name == "pixels":
        network = nn.Flatten()
    else:
        network = trained(*{"resnet12": resnet12, "conv4": conv4}[name](), read(given.folder / "train", given.size), given)
    pixels = read(given.folder / "test", given.size)
    print("%s: %.2f ± %.2f %%" % (name, *test(network.eval(), pixels, given.episodes)))


if __name__ == "__main__":
    main()
