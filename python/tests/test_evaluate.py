"""Tests over episodes are the command's, and Ctrl-C ends them."""

import json
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import fewshot
from fewshot import heads

# The last lines are of what Ctrl-C interrupts.
INTERRUPTED = """
import sys
import numpy as np
import fewshot

rows = np.random.default_rng(0).random((400, 256), np.float32)
print("started", flush=True)
try:
    fewshot.evaluate(rows, "tim-gd", episodes=1_000_000, labels=np.arange(400) % 8)
except KeyboardInterrupt:
    sys.exit(3)
"""


@pytest.mark.parametrize("method", ["prototypes", "simpleshot", "logistic", "bd-cspn", "pt-map", "deep-emd"])
def test_accuracies_are_those_of_the_command(method, features, command, tmp_path):
    rows, labels = features
    file = tmp_path / "features.npz"
    np.savez(file, embeddings=rows, labels=labels)
    words = ["--ways", 4, "--shots", 2, "--queries", 6, "--episodes", 40, "--seed", 9]
    report = command("eval", "--features", file, "--method", method, *words, "--json")
    [expected] = json.loads(report)["results"]
    found = fewshot.evaluate(rows, method, 4, 2, 40, 9, queries=6, labels=labels)
    assert round(found.accuracy, 2) == expected["accuracy"]
    assert round(found.ci95, 2) == expected["ci95"]
    assert found.settings == expected["settings"]
    assert 30 < found.accuracy < 100 and found.ci95 > 0
    assert (found.ways, found.shots, found.queries, found.episodes, found.seed) == (4, 2, 6, 40, 9)
    opened = fewshot.evaluate(fewshot.Features.open(file), method, 4, 2, 40, 9, queries=6)
    assert (opened.accuracy, opened.ci95) == (found.accuracy, found.ci95)
    assert f"{found.accuracy:.2f} ± {found.ci95:.2f} %" in str(found)


def test_episodes_of_a_sampler_are_those_of_a_test(features):
    rows, labels = features
    sampler = fewshot.Sampler(rows, 5, 3, 7, seed=2, labels=labels)
    head = heads.BdCspn()
    shares = []
    for index in range(20):
        episode = sampler.episode(index)
        assert episode.support.shape == (15, 24) and episode.queries.shape == (35, 24)
        assert episode.classes == sorted(set(episode.classes), key=episode.classes.index)
        of_class = rows[labels == int(episode.classes[episode.query_labels[0]])]
        assert (of_class == episode.queries[0]).all(1).any()
        found = head.predict(episode.support, episode.labels, episode.queries)
        shares.append((found == episode.query_labels).mean())
    expected = fewshot.evaluate(rows, head, 5, 3, 20, 2, queries=7, labels=labels)
    assert np.isclose(100 * np.mean(shares), expected.accuracy)
    assert np.isclose(100 * 1.96 * np.std(shares, ddof=1) / np.sqrt(20), expected.ci95)
    again = sampler.episode(7)
    assert (again.queries == sampler.episode(7).queries).all()
    assert (again.queries != sampler.episode(8).queries).any()


def test_features_are_taken_from_arrays_and_dictionaries(features):
    rows, labels = features
    by_class = {f"{label}": rows[labels == label] for label in range(8)}
    made = [fewshot.Features(rows, labels), fewshot.Features(by_class), fewshot.Features(rows, labels.astype(str))]
    found = {fewshot.evaluate(one, episodes=20).accuracy for one in made}
    assert len(found) == 1
    assert made[0].classes == sorted(by_class) and made[0].shape == (200, 24) and len(made[0]) == 200


def test_the_mean_of_base_classes_is_used_as_by_the_command(features):
    rows, labels = features
    shifted = rows + 3
    mean = shifted.mean(0)
    centred = fewshot.evaluate(fewshot.Features(shifted, labels, base_mean=mean), "simpleshot", episodes=50)
    by_head = fewshot.evaluate(shifted, heads.SimpleShot(base_mean=mean), episodes=50, labels=labels)
    plain = fewshot.evaluate(shifted, "simpleshot", episodes=50, labels=labels)
    assert centred.accuracy == by_head.accuracy != plain.accuracy


def refused(error, text, call, *args, **keywords):
    with pytest.raises(error, match=re.escape(text)):
        call(*args, **keywords)


def test_wrong_features_and_episodes_are_refused(features, tmp_path):
    rows, labels = features
    evaluate = fewshot.evaluate
    refused(TypeError, "labels are needed with an array of embeddings", evaluate, rows)
    refused(
        ValueError,
        "labels have the shape (199,): 200 embeddings have labels of (200,)",
        evaluate,
        rows,
        labels=labels[1:],
    )
    refused(ValueError, "a 9-way episode needs 9 classes, the split has 8", evaluate, rows, ways=9, labels=labels)
    refused(
        ValueError,
        "a 5-way 20-shot 15-query episode needs 35 examples a class",
        evaluate,
        rows,
        shots=20,
        labels=labels,
    )
    refused(ValueError, "an episode needs at least one way, shot and query", evaluate, rows, shots=0, labels=labels)
    refused(ValueError, "episodes are 0", evaluate, rows, episodes=0, labels=labels)
    refused(ValueError, 'there is no method "nearest"', evaluate, rows, "nearest", labels=labels)
    refused(TypeError, "method is int: it is a head or the name of one", evaluate, rows, 3, labels=labels)
    refused(
        ValueError, "a power must be positive", evaluate, rows, heads.PtMap(power_factor=0), labels=labels, episodes=3
    )
    wrong = rows.copy()
    wrong[5, 3] = np.nan
    refused(ValueError, "embeddings has nan in row 5, column 3", fewshot.Features, wrong, labels)
    refused(
        ValueError,
        "class b have 2 values, those of others 3",
        fewshot.Features,
        {"a": np.ones((4, 3)), "b": np.ones((4, 2))},
    )
    refused(FileNotFoundError, "absent.npz", fewshot.Features.open, tmp_path / "absent.npz")
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    refused(ValueError, "broken.npz", fewshot.Features.open, tmp_path / "broken.npz")


def test_ctrl_c_ends_a_long_test():
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"started\n"
    time.sleep(1)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 3
    assert time.monotonic() - sent < 20


def test_tests_in_several_threads_are_those_of_one(features):
    rows, labels = features
    features = fewshot.Features(rows, labels)
    methods = ["finetune", "tim-adm", "baseline", "pt-map"]
    alone = [fewshot.evaluate(features, method, episodes=12).accuracy for method in methods]
    found = [None] * len(methods)

    def run(place):
        found[place] = fewshot.evaluate(features, methods[place], episodes=12).accuracy

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(methods))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone
