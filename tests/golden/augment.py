"""Pixels of torchvision's transforms on images of PIL, by their random numbers.

python tests/golden/augment.py    (torchvision 0.29.2, Pillow 13.0)
"""

import base64
import json
from pathlib import Path

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

HERE = Path(__file__).parent
HEIGHT, WIDTH = 17, 23


def picture(channels):
    """[c, h, w] bytes, with edges, slopes, grey pixels and saturated ones; the test makes the same."""
    image = np.zeros((channels, HEIGHT, WIDTH), np.uint8)
    for c in range(channels):
        for y in range(HEIGHT):
            for x in range(WIDTH):
                if (x + y) % 7 == 0:
                    value = 40 * (x % 6)
                else:
                    value = (x * x * (c + 1) + y * (11 + 6 * c) + (90 if x > y else 0)) % 256
                image[c, y, x] = value
    return image


def to_pil(image):
    return Image.fromarray(image[0], "L") if len(image) == 1 else Image.fromarray(image.transpose(1, 2, 0), "RGB")


def from_pil(image):
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def crop(image, top, left, height, width):
    return F.resized_crop(image, top, left, height, width, [HEIGHT, WIDTH], InterpolationMode.BILINEAR, antialias=True)


def pad(image, padding, top, left):
    return F.crop(F.pad(image, [padding] * 4, 0), top, left, HEIGHT, WIDTH)


def jitter(image, *adjustments):
    functions = {
        "brightness": F.adjust_brightness,
        "contrast": F.adjust_contrast,
        "saturation": F.adjust_saturation,
        "hue": F.adjust_hue,
    }
    for name, factor in adjustments:
        image = functions[name](image, factor)
    return image


def grey(image):
    return F.rgb_to_grayscale(image, num_output_channels=3)


def rotate(image, degrees):
    return F.rotate(image, degrees, InterpolationMode.BILINEAR)


def erase(image, top, left, height, width):
    tensor = F.erase(F.pil_to_tensor(image), top, left, height, width, torch.zeros(1, dtype=torch.uint8))
    return F.to_pil_image(tensor)


CROPS = [[0, 0, 17, 23], [3, 5, 9, 7], [2, 1, 15, 21], [16, 22, 1, 1], [0, 4, 17, 6], [5, 0, 4, 23]]
ROTATIONS = [0.0, 15.0, -7.25, 45.0, 90.0, 180.0, -133.7]
JITTERS = [[[name, factor]] for name in ["brightness", "contrast"] for factor in [0.0, 0.6, 1.0, 1.4, 2.5]]
COLOR_JITTERS = [[["saturation", factor]] for factor in [0.0, 0.6, 1.0, 1.37]]
COLOR_JITTERS += [[["hue", shift]] for shift in [-0.5, -0.1, 0.0, 0.033, 0.25, 0.5]]
COLOR_JITTERS += [
    [["contrast", 0.71], ["hue", -0.07], ["saturation", 1.31], ["brightness", 1.17]],
    [["hue", 0.1], ["brightness", 0.8], ["contrast", 1.4], ["saturation", 0.6]],
]


def main():
    plans = [(channels, crop, window) for channels in [1, 3] for window in CROPS]
    plans += [(channels, pad, [4, top, left]) for channels in [1, 3] for top, left in [(4, 4), (0, 8), (7, 1)]]
    plans += [(3, pad, [30, 1, 2]), (3, pad, [30, 59, 30])]
    plans += [(channels, rotate, [degrees]) for channels in [1, 3] for degrees in ROTATIONS]
    plans += [(channels, jitter, adjustments) for channels in [1, 3] for adjustments in JITTERS]
    plans += [(3, jitter, adjustments) for adjustments in COLOR_JITTERS]
    plans += [(3, grey, []), (3, F.hflip, []), (1, F.hflip, []), (3, erase, [2, 3, 8, 11])]
    cases = []
    for channels, function, draws in plans:
        pixels = from_pil(function(to_pil(picture(channels)), *draws))
        assert pixels.shape == (channels, HEIGHT, WIDTH), (function, pixels.shape)
        pixels = base64.b64encode(np.ascontiguousarray(pixels).tobytes()).decode()
        cases.append({"part": function.__name__, "channels": channels, "draws": draws, "pixels": pixels})
    golden = {"torchvision": torchvision.__version__, "pillow": PIL.__version__, "cases": cases}
    (HERE / "augment.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
