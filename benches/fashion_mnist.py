"""EfficientNet-Lite0 on Fashion-MNIST: pictures for `fewshot embed`, the same features by PyTorch, and pixels.

apt-get install dataset-fashion-mnist; pip install torch torchvision timm open_clip_torch safetensors
python benches/fashion_mnist.py WEIGHTS.pth OUT [FOLDER OF THE DATASET]

writes the first 200 pictures of each class of the test set to OUT/pictures, and their features by PyTorch, prepared by torchvision, to
OUT/torch.safetensors. Prints how often the nearest neighbour by pixels is right in 2000 5-way 5-shot episodes of 10 queries a class.
On both files of features the same episodes are scored by

fewshot embed --backbone efficientnet-lite0:WEIGHTS.pth --pictures OUT/pictures --to OUT/ours.safetensors
for FILE in ours torch; do
    fewshot eval --features OUT/$FILE.safetensors --method prototypes --ways 5 --shots 5 --queries 10 --episodes 2000
done

python benches/fashion_mnist.py splits OUT [FOLDER OF THE DATASET]

writes pictures of the training set for `--data folder:OUT`, which augmentations are compared on: 100 of each of four classes to train on,
100 of each of three to validate, and 1000 of each of the last three to test.
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torchvision import transforms as T

sys.path.insert(0, str(Path(__file__).parents[1] / "models/tests/golden"))
from backbones import EfficientNetLite

EACH, WAYS, SHOTS, QUERIES, EPISODES = 200, 5, 5, 10, 2000
FOLDER = "/usr/share/datasets/fashion-mnist"

NAMES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
# Classes of each split, and the pictures of each class.
SPLITS = {"train": ([0, 1, 5, 8], 100), "validation": ([3, 4, 7], 100), "test": ([2, 6, 9], 1000)}


def read(path, header):
    return np.frombuffer(gzip.open(path).read(), np.uint8)[header:]


def dataset(folder, part):
    """Images and labels of `train` or `t10k`."""
    return read(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28), read(folder / f"{part}-labels-idx1-ubyte.gz", 8)


def save(images, out):
    """The files of these images."""
    out.mkdir(parents=True, exist_ok=True)
    files = [out / f"{index:04}.png" for index in range(len(images))]
    for path, image in zip(files, images):
        Image.fromarray(image).save(path)
    return files


def pictures(folder, out):
    """The files of each class, by its number."""
    images, labels = dataset(folder, "t10k")
    return {label: save(images[labels == label][:EACH], out / str(label)) for label in range(10)}


def splits(folder, out):
    images, labels = dataset(folder, "train")
    for split, (classes, each) in SPLITS.items():
        for label in classes:
            save(images[labels == label][:each], out / split / NAMES[label])


def features(files, weights):
    network = EfficientNetLite()
    missing, _ = network.load_state_dict(torch.load(weights), strict=False)
    assert not missing, missing
    network.eval()
    prepare = T.Compose([
        T.Resize(256, T.InterpolationMode.BICUBIC),
        T.CenterCrop(224),
        T.ToTensor(),
        T.Normalize([127 / 255] * 3, [128 / 255] * 3),
    ])
    found = {}
    for label, paths in files.items():
        images = torch.stack([prepare(Image.open(path).convert("RGB")) for path in paths])
        with torch.inference_mode():
            found[str(label)] = torch.cat([network(part) for part in images.split(20)]).contiguous()
    return found


def nearest_neighbour(files):
    """Percent of queries, and the half-width of its 95 % interval."""
    pixels = np.stack([[np.asarray(Image.open(path)).ravel() for path in paths] for paths in files.values()]) / 255.0
    draw = np.random.default_rng(1)
    right = []
    for _ in range(EPISODES):
        classes = draw.choice(len(pixels), WAYS, replace=False)
        drawn = np.stack([pixels[of][draw.choice(EACH, SHOTS + QUERIES, replace=False)] for of in classes])
        support, queries = drawn[:, :SHOTS].reshape(-1, 784), drawn[:, SHOTS:].reshape(-1, 784)
        distances = (queries**2).sum(1)[:, None] - 2 * queries @ support.T + (support**2).sum(1)
        right.append((distances.argmin(1) // SHOTS == np.arange(len(queries)) // QUERIES).mean())
    right = 100 * np.array(right)
    return right.mean(), 1.96 * right.std(ddof=1) / len(right) ** 0.5


def main():
    weights, out = sys.argv[1], Path(sys.argv[2])
    folder = Path(sys.argv[3] if len(sys.argv) > 3 else FOLDER)
    if weights == "splits":
        return splits(folder, out)
    files = pictures(folder, out / "pictures")
    save_file(features(files, weights), out / "torch.safetensors")
    print("nearest neighbour by pixels: %.2f ± %.2f %%" % nearest_neighbour(files))


if __name__ == "__main__":
    main()
