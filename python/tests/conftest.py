"""What tests share: the command, whose path is in FEWSHOT_COMMAND, drawn embeddings, and a model of pictures."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def command():
    """Runs the command; its standard output."""
    binary = os.environ["FEWSHOT_COMMAND"]

    def run(*words):
        words = [binary, *map(str, words)]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    return run


@pytest.fixture(scope="session")
def golden():
    """Values of easyfsl 1.5.0, which tests/golden/easyfsl.py has made."""
    return json.loads((REPOSITORY / "tests/golden/easyfsl.json").read_text())


def drawn_task(ways=5, shots=5, queries=15, length=32, seed=0):
    """A task of classes that overlap: support, labels, queries and the labels of these."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(0.2, 0.7, (ways, length))

    def around(count):
        labels = generator.permutation(np.arange(ways * count) % ways)
        noise = generator.normal(0, 0.6, (ways * count, length))
        return np.maximum(centres[labels] + noise, 0).astype(np.float32), labels

    return *around(shots), *around(queries)


@pytest.fixture
def task():
    return drawn_task()


@pytest.fixture(scope="session")
def features():
    """Embeddings of eight classes of 25 each, and their labels."""
    support, labels, _, _ = drawn_task(ways=8, shots=25, queries=1, length=24, seed=3)
    return support, labels


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder of pictures of three colours, four of each."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(1)
    for name, colour in [("blue", (20, 30, 200)), ("green", (20, 180, 30)), ("red", (200, 30, 20))]:
        (folder / name).mkdir()
        for number in range(4):
            noise = generator.integers(-20, 20, (40, 30, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def colour_model(command, pictures, tmp_path_factory):
    """A file of a model with a network, adapted to the pictures by the command; no test writes to it."""
    folder = tmp_path_factory.mktemp("model")
    sizes = ["--ways", 3, "--train-ways", 3, "--shots", 1, "--queries", 1, "--train-queries", 1]
    short = ["--steps", 1, "--eval-episodes", 2, "--data", f"folder:{pictures}"]
    command("train", "--out", folder / "run", *sizes, *short)
    command("adapt", folder / "run", "--support", pictures, "--out", folder / "colours.fewshot")
    return folder / "colours.fewshot"
