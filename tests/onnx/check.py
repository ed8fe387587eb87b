"""Compares exported ONNX files, as onnxruntime computes them, with the library.

    check.py BINARY NETWORKS [LITE0]

BINARY is the command `fewshot`; NETWORKS a folder with NAME.onnx and NAME.safetensors of every network, which has images and
the library's embeddings of them; LITE0 the published weights of EfficientNet-Lite0. The pictures that models are compared on
have the size that the network takes already, or that it is resized to, so that no two resizers are compared.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy
import onnx
import onnxruntime
from PIL import Image
from safetensors.numpy import load_file

# Of embeddings, a share of the largest value; of probabilities, with the rounding to four digits in what `predict` prints.
MOST = 1e-4

METHODS = ["prototypes", "simpleshot", "matching", "meta-baseline", "simple-cnaps", "r2d2", "meta-opt-net", "logistic", "baseline",
           "baseline++", "finetune"]
COLOURS = {"amber": (190, 120, 40), "olive": (120, 125, 40), "plum": (120, 40, 110), "teal": (40, 110, 120)}
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "onnx.md"


def fewshot(*words):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"fewshot {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def session(path):
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options)


def networks(folder):
    """Embeddings of drawn networks."""
    files = sorted(pathlib.Path(folder).glob("*.onnx"))
    assert files, f"no networks in {folder}"
    for file in files:
        expected = load_file(file.with_suffix(".safetensors"))
        images, expected = expected["images"], expected["embeddings"]
        run = session(file)
        found = run.run(["embeddings"], {"images": images})[0]
        alone = run.run(["embeddings"], {"images": images[1:2]})[0]
        assert found.shape == expected.shape, (file.name, found.shape, expected.shape)
        largest = numpy.abs(expected).max()
        off = max(numpy.abs(found - expected).max(), numpy.abs(alone - expected[1:2]).max()) / largest
        print(f"{file.stem}: {found.shape[1]} values, off by {off:.1e} of the largest")
        assert off <= MOST, file.name


def draw(folder, size, draws, count, grey=False, prefix=""):
    """Pictures of every class and of none, which mix two colours and have noise."""
    colours = [numpy.array(colour) for colour in COLOURS.values()]
    for place, name in enumerate([*COLOURS, "none"]):
        (folder / f"{prefix}{name}").mkdir(parents=True)
        for number in range(count):
            own, other = colours[place % 4], colours[(place + 1 + number) % 4]
            share = draws.uniform(0.0, 0.45) if name != "none" else draws.uniform(1.5, 3.0)
            mixed = own * (1 - share) + other * share
            rows = numpy.arange(size)[:, None, None] * (place + 2) * 255 / (3 * size) % 90
            pixels = mixed + rows + draws.normal(0, 20, (size, size, 3))
            picture = Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))
            (picture.convert("L") if grey else picture).save(folder / f"{prefix}{name}" / f"{number}.png")


def pixels(path, how):
    """A picture as the graph takes it."""
    picture = Image.open(path)
    if how["fit"] == "crop":
        assert min(picture.size) == how["resize"]
        before = (how["resize"] - how["crop"]) // 2
        picture = picture.crop((before, before, before + how["crop"], before + how["crop"]))
    assert picture.size == (how["width"], how["height"])
    values = numpy.asarray(picture)
    return values[None] if how["channels"] == 1 else values.transpose(2, 0, 1)


def compare(model, pictures, *words):
    """The largest difference between what `predict` prints and what the exported graph gives."""
    graph = model.with_suffix(".onnx")
    fewshot("export", model, "--to", graph, *words)
    run = session(graph)
    metadata = run.get_modelmeta().custom_metadata_map
    classes, how = json.loads(metadata["classes"]), json.loads(metadata["preprocessing"])
    expected = [json.loads(line) for line in fewshot("predict", model, pictures, "--json", "--top", len(classes)).splitlines()]
    values = numpy.stack([pixels(line["file"], how) for line in expected])
    if "f32" in words:
        values = values.astype(numpy.float32) / numpy.float32(255)
    outputs = dict(zip([of.name for of in run.get_outputs()], run.run(None, {"pictures": values})))
    assert metadata["created_by"].startswith("fewshot ") and sorted(classes) == classes
    off, of_known, unlike = 0.0, 0.0, set()
    for line, probabilities, place in zip(expected, outputs["probabilities"], range(len(expected))):
        printed = {of["class"]: of["probability"] for of in line["classes"]}
        # The same class, unless two are as likely.
        assert probabilities[classes.index(line["class"])] >= probabilities.max() - MOST, (model, line)
        off = max([off, *(abs(printed[name] - p) for name, p in zip(classes, probabilities))])
        unlike.add(round(float(probabilities.max()), 4))
        if line["known"] is None:
            assert "known" not in outputs
        else:
            of_known = max(of_known, abs(line["known"] - outputs["known"][place]))
    # --unknown rejects the same pictures.
    if "known" in outputs:
        known = numpy.sort(outputs["known"])
        gap = numpy.argmax(numpy.diff(known))
        least = float(known[gap] + known[gap + 1]) / 2
        lines = fewshot("predict", model, pictures, "--json", "--unknown", least).splitlines()
        rejected = [json.loads(line)["class"] is None for line in lines]
        assert rejected == [known < least for known in outputs["known"]] and any(rejected), model
    assert max(off, of_known) <= MOST, (model, off, of_known)
    return off, of_known, len(unlike)


def models(folder, run, size, methods, words=(), grey=False):
    """Models of every method on a network, a run of `train` or a backbone."""
    draws = numpy.random.default_rng(7)
    pictures = folder / "queries"
    draw(pictures, size, draws, 6, grey)
    draw(folder / "drawn", size, draws, 4, grey)
    # One class has fewer examples.
    for place, name in enumerate(COLOURS):
        (folder / "support" / name).mkdir(parents=True)
        for number in range(4 if place else 3):
            os.rename(folder / "drawn" / name / f"{number}.png", folder / "support" / name / f"{number}.png")

    def one(method):
        model = folder / f"{method}.fewshot"
        fewshot("adapt", *run, "--support", folder / "support", "--method", method, "--out", model, "--no-thumbnails")
        off, of_known, unlike = compare(model, pictures, *words)
        print(f"{folder.name}, {method}: off by {off:.1e}, known by {of_known:.1e}; {unlike} different confidences", flush=True)

    with ThreadPoolExecutor(2) as both:
        list(both.map(one, methods))


def trained(folder, steps, *words):
    """A run of a few steps on pictures of colours."""
    draws = numpy.random.default_rng(3)
    draw(folder / "pictures", 32, draws, 6)
    draw(folder / "pictures", 32, draws, 6, prefix="pale-")
    out = folder / "run"
    fewshot("train", "--data", f"folder:{folder / 'pictures'}", "--ways", 2, "--train-ways", 5, "--queries", 1, "--train-queries", 3,
            "--steps", steps, "--eval-episodes", 2, "--validation-episodes", 1, "--validate-every", steps, "--out", out, *words)
    return out


def example(model, picture):
    """The example of the document, on a model and a picture of its names."""
    text = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        fewshot("export", model, "--to", place / "birds.onnx")
        Image.open(picture).resize((400, 300)).save(place / "photo.jpg")
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)
        printed = fewshot("predict", model, place / "photo.jpg")
    assert done.returncode == 0, done.stderr
    found, expected = done.stdout.split(), printed.split(": ")[1].split()
    # Two resizers round otherwise, by a level of 255.
    assert found[0] == expected[0] and abs(float(found[1]) - float(expected[1])) < 0.02, (found, expected)
    print(f"the example of the document: {done.stdout.strip()}, and predict {' '.join(expected)}")


def main(root):
    networks(NETWORKS)
    (root / "conv4").mkdir()
    run = trained(root / "conv4", 100, "--image-size", 16)
    models(root / "conv4-models", [run], 16, METHODS)
    (root / "resnet12").mkdir()
    # Methods without distances to class means: these are near beside the length of embeddings after so few steps, and `predict`
    # rounds by more than the tolerance.
    run = trained(root / "resnet12", 6, "--image-size", 16, "--encoder", "resnet12")
    models(root / "resnet12-models", [run], 16, ["simple-cnaps", "r2d2"], ["--input", "f32"])
    # Dark ink on white paper: shades are inverted.
    fewshot("train", "--steps", 2, "--train-ways", 2, "--train-queries", 1, "--eval-episodes", 2, "--validation-episodes", 1,
            "--validate-every", 2, "--out", root / "glyphs")
    models(root / "glyphs-models", [root / "glyphs"], 28, ["prototypes", "logistic"], grey=True)
    fewshot("export", root / "conv4" / "run", "--to", root / "run.onnx")
    model = root / "conv4-models" / "prototypes.fewshot"
    fewshot("export", model, "--embeddings", "--to", root / "model.onnx")
    images = {"pictures": numpy.random.default_rng(1).integers(0, 255, (3, 3, 16, 16), numpy.uint8)}
    of_run, of_model = (session(root / name).run(None, images)[0] for name in ["run.onnx", "model.onnx"])
    assert numpy.array_equal(of_run, of_model) and of_run.shape[0] == 3
    if LITE0:
        backbone = ["--backbone", f"efficientnet-lite0:{LITE0}"]
        models(root / "lite0", backbone, 256, ["simpleshot", "logistic", "baseline++"])
        example(root / "lite0" / "simpleshot.fewshot", root / "lite0" / "queries" / "plum" / "1.png")
    else:
        print("no weights of EfficientNet-Lite0: neither it nor the example of the document is compared")


BINARY, NETWORKS, LITE0 = (*sys.argv[1:3], sys.argv[3] if len(sys.argv) > 3 else "")
BINARY = os.path.abspath(BINARY)
with tempfile.TemporaryDirectory() as scratch:
    main(pathlib.Path(scratch))
