"""What torchvision's transforms on PIL images make of pictures for pretrained networks.

    python tests/golden/pictures.py

writes pictures.json beside this file: every 499th value of the image that a network takes, for pictures of two shapes whose
bytes a formula gives. How each network's pictures are prepared is said here in torchvision's words.
"""
# torch==2.15.0
# torchvision==0.29.2
# pillow==13.0.0

import json
from pathlib import Path

import PIL
import torchvision
from PIL import Image
from torchvision import transforms as T
from torchvision.transforms import InterpolationMode as Mode

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
LITE = ([127 / 255] * 3, [128 / 255] * 3)
HOW = {
    "torchvision": (256, 224, Mode.BILINEAR, IMAGENET),
    "dinov2": (256, 224, Mode.BICUBIC, IMAGENET),
    "clip": (224, 224, Mode.BICUBIC, CLIP),
    "efficientnet_lite": (256, 224, Mode.BICUBIC, LITE),
    "mini_imagenet": (92, 84, Mode.BILINEAR, IMAGENET),
}
# Larger and smaller than what is cropped, wide and tall.
SIZES = [(401, 333), (97, 150)]


def picture(width, height):
    """Waves, with an edge."""
    data = bytes(
        (x * x // 7 + y * (3 + channel) + (90 if x > y else 0)) % 256
        for y in range(height)
        for x in range(width)
        for channel in range(3)
    )
    return Image.frombytes("RGB", (width, height), data)


def main():
    cases = []
    for name, (resize, crop, mode, (mean, std)) in HOW.items():
        steps = [T.Resize(resize, mode), T.CenterCrop(crop), T.ToTensor(), T.Normalize(mean, std)]
        for width, height in SIZES:
            image = T.Compose(steps)(picture(width, height))
            values = [float(f"{x:.7g}") for x in image.flatten()[::499].tolist()]
            cases.append({"how": name, "size": [width, height], "values": values})
    written = {
        "made_by": "tests/golden/pictures.py",
        "torchvision": torchvision.__version__.split("+")[0],
        "pillow": PIL.__version__,
        "cases": cases,
    }
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(written, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
