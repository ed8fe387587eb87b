"""Images a second of a PyTorch DataLoader with two workers: JPEG files or decoded images, augmented as FEAT does it at 84x84.

pip install torch torchvision
python benches/augment.py PICTURES

makes 400 pictures of 500x375 in the folder PICTURES, if it is not there, and times the loader on them. The same by this project:

FEWSHOT_PICTURES=PICTURES RAYON_NUM_THREADS=2 cargo bench --bench augment

which reads the files once (`read/jpeg/84`), and augments what lies in memory for each step (`standard/84`).
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

CLASSES, EACH, BATCH, ROUNDS = 10, 40, 160, 5


def make(folder, each):
    """So many pictures of each of the classes, in folders."""
    y, x = np.mgrid[:375, :500]
    for number in range(CLASSES * each):
        edge = np.where((x // 50 + y // 40 + number) % 3 == 0, 60, 0)
        noise = np.random.default_rng(number).integers(0, 17, x.shape)
        pixels = np.stack([x // 3 + edge + noise, y // 2 + edge + noise, (x + y) // 6 + edge + noise], -1)
        path = folder / str(number // each) / f"{number % each:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=75)


class Pictures(Dataset):
    def __init__(self, files, transform, in_memory):
        self.files, self.transform = files, transform
        resize = T.Resize((84, 84))
        self.images = [resize(Image.open(file).convert("RGB")) for file in files] if in_memory else None

    def __len__(self):
        return ROUNDS * len(self.files)

    def __getitem__(self, index):
        index %= len(self.files)
        image = self.images[index] if self.images else Image.open(self.files[index]).convert("RGB")
        return self.transform(image)


def rate(files, transform, in_memory):
    loader = DataLoader(Pictures(files, transform, in_memory), BATCH, num_workers=2)
    batches = iter(loader)
    next(batches)
    start, images = time.perf_counter(), 0
    for batch in batches:
        images += len(batch)
    return images / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    if not folder.exists():
        make(folder, EACH)
    files = sorted(folder.glob("*/*.jpg"))
    jitter = T.ColorJitter(0.4, 0.4, 0.4)
    plans = {
        "read": [T.Resize((84, 84)), T.ToTensor()],
        "flip-crop": [T.RandomCrop(84, padding=8), T.RandomHorizontalFlip(), T.ToTensor()],
        "standard": [T.RandomResizedCrop(84), jitter, T.RandomHorizontalFlip(), T.ToTensor()],
    }
    for name, steps in plans.items():
        kinds = [False] if name == "read" else [False, True] if name == "standard" else [True]
        for in_memory in kinds:
            source = "decoded images" if in_memory else "JPEG files"
            print(f"{name} of {source}: {rate(files, T.Compose(steps), in_memory):.0f} images/s")


if __name__ == "__main__":
    main()
