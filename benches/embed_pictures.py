"""Seconds from 2000 JPEG files to their features: `fewshot embed --pictures`, and a DataLoader before PyTorch and ONNX Runtime.

pip install torch torchvision timm onnx onnxscript onnxruntime openvino
python benches/embed_pictures.py FEWSHOT PICTURES WEIGHTS [ROUNDS]

FEWSHOT is the command from a release build, WEIGHTS the file of EfficientNet-Lite0's. Pictures of 500x375 are made in the folder
PICTURES, if it is not there. All decode, resize to 256, crop to 224 and embed in f32 on two cores; the loader has two workers, the
networks two threads; the others' weights are drawn. The time of the command is that of its whole process, of the others without imports.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import timm
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from PIL import Image

from augment import CLASSES, make
from backbones import THREADS, session

warnings.filterwarnings("ignore")
PICTURES, BATCH = 2000, 32


class Pictures(Dataset):
    def __init__(self, files):
        self.files = files
        crop = [T.Resize(256, T.InterpolationMode.BICUBIC), T.CenterCrop(224)]
        self.transform = T.Compose([*crop, T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(Image.open(self.files[index]).convert("RGB"))


def traced(model, _):
    return torch.jit.optimize_for_inference(torch.jit.trace(model, torch.zeros(BATCH, 3, 224, 224)))


def onnx_runtime(model, folder):
    graph, dynamic = Path(folder, "graph.onnx"), {0: torch.export.Dim("batch")}
    torch.onnx.export(model, (torch.zeros(2, 3, 224, 224),), graph, dynamo=True, verbose=False, dynamic_shapes=(dynamic,))
    return session(graph)


def loaded(embed, files):
    start, rows = time.perf_counter(), 0
    with torch.inference_mode():
        for images in DataLoader(Pictures(files), BATCH, num_workers=2):
            rows += len(embed(images))
    assert rows == len(files)
    return time.perf_counter() - start


def command(fewshot, pictures, weights, folder):
    options = ["--backbone", f"efficientnet-lite0:{weights}", "--pictures", pictures, "--threads", str(THREADS)]
    start = time.perf_counter()
    subprocess.run([fewshot, "embed", *options, "--to", Path(folder, "features.safetensors")], check=True, capture_output=True)
    return time.perf_counter() - start


def main():
    fewshot, pictures, weights = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    torch.set_num_threads(THREADS)
    if not Path(pictures).exists():
        make(Path(pictures), PICTURES // CLASSES)
    files = sorted(Path(pictures).glob("*/*.jpg"))
    # The command embeds equal files once.
    assert len({file.read_bytes() for file in files}) == PICTURES, f"not {PICTURES} different files in {pictures}"
    model = timm.create_model("efficientnet_lite0", pretrained=False, num_classes=0).eval()
    with tempfile.TemporaryDirectory() as folder:
        peers = {way.__name__: way(model, folder) for way in (traced, onnx_runtime)}
        for _ in range(rounds):
            print(f"fewshot       {command(fewshot, pictures, weights, folder):6.1f} s", flush=True)
            for name, embed in peers.items():
                print(f"{name:<14}{loaded(embed, files):6.1f} s", flush=True)


if __name__ == "__main__":
    main()
