"""Adapted models classify as the command does, and lose nothing."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fewshot
from fewshot import AdaptedModel


@pytest.fixture
def model_file(colour_model, tmp_path):
    """A copy that a test may write to."""
    return Path(shutil.copy(colour_model, tmp_path))


@pytest.fixture
def of_embeddings(features):
    rows, labels = features
    return AdaptedModel.from_embeddings(rows[:80], labels[:80])


def predicted(line):
    return {one["class"]: one["probability"] for one in json.loads(line)["classes"]}


def close(prediction, expected):
    found = prediction.probabilities
    assert found.keys() == expected.keys()
    assert all(abs(found[name] - expected[name]) < 1e-4 for name in expected)
    assert prediction.label == next(iter(found)) and prediction.probability == max(found.values())


def test_pictures_are_classified_as_by_the_command(model_file, pictures, command):
    files = sorted(pictures.glob("*/*.png"))
    lines = command("predict", model_file, *files, "--top", 3, "--json").splitlines()
    model = AdaptedModel.open(model_file)
    assert model.classes == ["blue", "green", "red"]
    assert model.examples == {"blue": 4, "green": 4, "red": 4}
    arrays = [np.asarray(Image.open(file)) for file in files]
    kinds = [files, [str(file) for file in files], [Image.open(file) for file in files], arrays]
    kinds.append(np.stack(arrays))
    kinds.append([Image.open(file).convert("RGBA") for file in files])
    for kind in kinds:
        for prediction, line in zip(model.predict(kind), lines, strict=True):
            close(prediction, predicted(line))
            assert abs(prediction.known - json.loads(line)["known"]) < 1e-4


def test_embeddings_are_classified_as_by_the_command(features, command, tmp_path):
    rows, labels = features
    np.savez(tmp_path / "few.npz", embeddings=rows[:80], labels=labels[:80])
    np.save(tmp_path / "others.npy", rows[80:90])
    command("adapt", "--features", tmp_path / "few.npz", "--out", tmp_path / "few.fewshot")
    lines = command("predict", tmp_path / "few.fewshot", "--features", tmp_path / "others.npy", "--top", 8, "--json")
    for model in (AdaptedModel.from_embeddings(rows[:80], labels[:80]), AdaptedModel.open(tmp_path / "few.fewshot")):
        for prediction, line in zip(model.classify(rows[80:90]), lines.splitlines(), strict=True):
            close(prediction, predicted(line))


def test_a_saved_model_is_one_of_the_command(model_file, pictures, command, tmp_path):
    model = AdaptedModel.open(model_file)
    yellow = [Image.new("RGB", (30, 40), (220, 210, shade)) for shade in (10, 20, 30)]
    yellow[0].save(tmp_path / "yellow.png")
    assert model.add("yellow", [tmp_path / "yellow.png", *yellow[1:]]) == 3
    assert model.add("yellow", [tmp_path / "yellow.png", yellow[2]]) == 0
    assert model.examples["yellow"] == 3
    model.remove("green")
    model.save()
    files = sorted(pictures.glob("red/*.png"))
    lines = command("predict", model_file, *files, "--top", 3, "--json").splitlines()
    for prediction, line in zip(model.predict(files), lines, strict=True):
        assert sorted(predicted(line)) == ["blue", "red", "yellow"]
        close(prediction, predicted(line))
    model.save(tmp_path / "other.fewshot")
    assert AdaptedModel.open(tmp_path / "other.fewshot").examples == model.examples


def refused(error, text, call, *args, **keywords):
    with pytest.raises(error, match=re.escape(text)):
        call(*args, **keywords)


def test_a_failed_change_changes_nothing(of_embeddings, features, model_file, pictures, tmp_path):
    rows, _ = features
    model = of_embeddings
    before = (model.examples, [one.probabilities for one in model.classify(rows[80:85])])
    wrong = rows[:4].copy()
    wrong[2, 1] = np.inf
    refused(
        ValueError, "embeddings have 23 values, those of the model have 24", model.add_embeddings, "new", rows[:, 1:]
    )
    refused(ValueError, "embeddings has inf in row 2, column 1", model.add_embeddings, "new", wrong)
    refused(ValueError, "it has no network, and takes no pictures", model.add, "new", [pictures / "red/0.png"])
    refused(ValueError, "it has no network, and takes no pictures", model.predict, [pictures / "red/0.png"])
    refused(ValueError, 'there is no class "new"', model.remove, "new")
    refused(ValueError, "path is needed", model.save)
    assert before == (model.examples, [one.probabilities for one in model.classify(rows[80:85])])

    model = AdaptedModel.open(model_file)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    good = pictures / "red/0.png"
    before = model_file.read_bytes(), model.examples
    refused(ValueError, "broken.png is not a readable image", model.add, "new", [good, tmp_path / "broken.png"])
    refused(FileNotFoundError, "absent.png", model.predict, [good, tmp_path / "absent.png"])
    refused(ValueError, "class new has no pictures", model.add, "new", [])
    refused(
        TypeError,
        "picture 1 has the dtype float64: arrays of pictures are uint8",
        model.predict,
        [good, np.ones((4, 4, 3))],
    )
    refused(
        ValueError,
        "picture 0 has the shape (3, 8, 9): arrays of pictures are",
        model.predict,
        [np.zeros((3, 8, 9), np.uint8)],
    )
    refused(ValueError, "picture 0 is empty: its shape is (0, 9, 3)", model.predict, [np.zeros((0, 9, 3), np.uint8)])
    refused(ValueError, "picture 0 has the mode I;16", model.predict, [Image.new("I;16", (8, 8))])
    refused(TypeError, "picture 0 is a NoneType", model.predict, [None])
    refused(TypeError, "pictures are one str: they are a list of pictures", model.predict, str(good))
    refused(TypeError, "pictures are a int", model.predict, 5)
    refused(FileNotFoundError, "no/such", model.save, tmp_path / "no/such/folder.fewshot")
    assert before == (model_file.read_bytes(), model.examples)


def test_what_another_program_has_changed_is_not_overwritten(model_file, pictures, command):
    model = AdaptedModel.open(model_file)
    command("adapt", model_file, "--remove", "red")
    changed = model_file.read_bytes()
    refused(ValueError, "has been changed since it was opened", model.save)
    assert model_file.read_bytes() == changed


def test_files_that_are_no_models_are_refused(tmp_path):
    (tmp_path / "text.fewshot").write_text("no model")
    refused(ValueError, "text.fewshot", AdaptedModel.open, tmp_path / "text.fewshot")
    refused(FileNotFoundError, "absent.fewshot", AdaptedModel.open, tmp_path / "absent.fewshot")
    refused(ValueError, 'there is no backbone "resnet19"', fewshot.Backbone, "resnet19")
    refused(TypeError, "backbone is a int", fewshot.embed, 5, [])
    refused(FileNotFoundError, "absent.pth", fewshot.embed, f"resnet18:{tmp_path / 'absent.pth'}", [])


def test_the_network_of_a_model_embeds(model_file, pictures):
    model = AdaptedModel.open(model_file)
    files = sorted(pictures.glob("*/*.png")) * 4
    rows = fewshot.embed(model.backbone, files)
    assert rows.dtype == np.float32 and rows.shape == (48, model.backbone.length)
    assert fewshot.embed(model.backbone, iter(files[:3])).tobytes() == rows[:3].tobytes()
    assert fewshot.embed(model.backbone, []).shape == (0, model.backbone.length)
    by_rows = model.classify(rows)
    assert [one.probabilities for one in by_rows] == [one.probabilities for one in model.predict(files)]
    again = AdaptedModel.from_embeddings(
        rows[:12], [file.parent.name for file in files[:12]], model.method, backbone=model.backbone
    )
    assert [one.probabilities for one in again.predict(files)] == [one.probabilities for one in by_rows]
    refused(
        ValueError,
        "embeddings have 3 values, those of the network",
        AdaptedModel.from_embeddings,
        np.eye(3),
        [0, 1, 1],
        backbone=model.backbone,
    )


def test_pictures_of_pillow_are_turned_as_the_camera_noted(model_file, tmp_path):
    model = AdaptedModel.open(model_file)
    pixels = np.random.default_rng(2).integers(0, 255, (30, 50, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.png", exif=exif)
    by_path = model.backbone.embed([tmp_path / "turned.png"])
    assert (model.backbone.embed([Image.open(tmp_path / "turned.png")]) == by_path).all()
    assert (model.backbone.embed([np.rot90(pixels, -1)]) == by_path).all()
    assert (model.backbone.embed([pixels]) != by_path).any()


def test_threads_share_a_model(of_embeddings, features):
    rows, _ = features
    expected = [one.probabilities for one in of_embeddings.classify(rows[80:])]

    def classified(_):
        return [one.probabilities for one in of_embeddings.classify(rows[80:])]

    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(classified, range(20)))
    with ThreadPoolExecutor(4) as pool:
        added = pool.map(lambda row: of_embeddings.add_embeddings("new", rows[row : row + 1]), range(90, 110))
        assert sum(added) == 20
    assert of_embeddings.examples["new"] == 20
