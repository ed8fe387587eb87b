"""Heads on arrays of every kind, their refusals, and several threads."""

import inspect
import pickle
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fewshot
from conftest import drawn_task
from fewshot import heads
from fewshot.heads import Head, Prototypes, PtMap, Tim

CLASSES = [getattr(heads, name) for name in heads.__all__ if name != "Head"]
# Fewer steps than by default, for speed.
QUICK = {Tim: {"fine_tuning_steps": 20}}


def made(kind):
    return kind(**QUICK.get(kind, {}))


@pytest.mark.parametrize("kind", CLASSES)
def test_defaults_are_the_settings_of_the_papers(kind):
    head = kind()
    assert head.settings == Head(head.name).settings


def test_every_method_has_a_class():
    names = {kind().name for kind in CLASSES} | {Tim(solver="adm").name}
    assert names == set(fewshot.METHODS)
    assert Tim(solver="adm").settings == Head("tim-adm").settings
    assert fewshot.heads.PtMap().transductive and not Prototypes().transductive


@pytest.mark.parametrize("kind", CLASSES)
def test_predictions_are_the_classes_of_the_best_logits(kind, task):
    support, labels, queries, query_labels = task
    head = made(kind)
    logits = head.logits(support, labels, queries)
    assert logits.dtype == np.float32 and logits.shape == (75, 5)
    predicted = head.predict(support, labels, queries)
    assert (predicted == logits.argmax(1)).all()
    assert (predicted == query_labels).mean() > 0.6
    probabilities = head.predict_proba(support, labels, queries)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities.argmax(1) == predicted).all()
    words = np.array(["ant", "bee", "cat", "dog", "elk"])
    assert (head.predict(support, words[labels], queries) == words[predicted]).all()
    assert (head.predict(support, list(words[labels]), queries) == words[predicted]).all()
    # A class keeps its queries whatever its label is.
    assert (head.predict(support, 100 - labels, queries) == 100 - predicted).mean() > 0.95


@pytest.mark.parametrize("kind", CLASSES)
def test_tasks_of_a_batch_are_computed_alone(kind):
    tasks = [drawn_task(seed=seed) for seed in (4, 5, 6)]
    support, labels, queries, _ = map(np.stack, zip(*tasks))
    head = made(kind)
    together = head.logits(support, labels, queries)
    assert together.shape == (3, 75, 5)
    for row, (support_of_one, labels_of_one, queries_of_one, _) in zip(together, tasks):
        alone = head.logits(support_of_one, labels_of_one, queries_of_one)
        assert np.allclose(row, alone, rtol=1e-3, atol=1e-3)
    assert (head.predict(support, labels, queries) == together.argmax(2)).all()


def test_arrays_of_every_kind_are_taken_right(task):
    support, labels, queries, _ = task
    head = PtMap()
    expected = head.logits(support, labels, queries)
    padded = np.zeros((150, 64), np.float32)
    padded[::2, ::2] = queries
    read_only = queries.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + queries.tobytes(), np.float32, offset=1).reshape(75, 32)
    kinds = {
        "Fortran order": np.asfortranarray(queries),
        "steps between values": padded[::2, ::2],
        "reversed": queries[::-1][::-1],
        "read-only": read_only,
        "unaligned": unaligned,
        "float64": queries.astype(np.float64),
        "other bytes first": queries.astype(">f4"),
        "lists": queries.tolist(),
    }
    for name, kind in kinds.items():
        logits = head.logits(support, labels.astype(np.uint8), kind)
        assert (logits == expected).all(), name
    rounded = queries.astype(np.float16)
    assert (head.logits(support, labels, rounded) == head.logits(support, labels, rounded.astype(float))).all()
    whole = np.round(queries * 10)
    assert (head.logits(support, labels, whole.astype(int)) == head.logits(support, labels, whole)).all()


def test_arrays_are_read_in_place_and_stay_as_they_are(task):
    support, labels, queries, _ = task
    before = [array.copy() for array in (support, labels, queries)]
    for kind in CLASSES:
        made(kind).logits(support, labels, queries)
    for array, old in zip((support, labels, queries), before):
        assert (array == old).all()


def refused(error, text, call, *args):
    with pytest.raises(error, match=re.escape(text)):
        call(*args)


def changed(array, place, value):
    array = np.array(array, np.float64)
    array[place] = value
    return array


def test_wrong_arrays_are_refused_with_a_clear_error(task):
    support, labels, queries, _ = task
    predict = Prototypes().predict
    cases = [
        (ValueError, "queries have 31 values, those of the support have 32", support, labels, queries[:, 1:]),
        (ValueError, "queries has nan in row 3, column 7: embeddings are finite numbers of float32", support, labels, changed(queries, (3, 7), np.nan)),
        (ValueError, "support has -inf in row 24, column 0", changed(support, (24, 0), -np.inf), labels, queries),
        (ValueError, "queries has 1e+300 in row 0, column 1", support, labels, changed(queries, (0, 1), 1e300)),
        (ValueError, "queries is empty: its shape is (0, 32)", support, labels, queries[:0]),
        (ValueError, "support is empty: its shape is (25, 0)", support[:, :0], labels, queries),
        (ValueError, "support has the shape (32,): embeddings are [n, d]", support[0], labels, queries),
        (ValueError, "queries is no array: ", support, labels, [[1.0, 2.0], [3.0]]),
        (TypeError, "queries has the dtype <U5: embeddings are real numbers", support, labels, [["three"]]),
        (TypeError, "queries has the dtype bool", support, labels, queries > 0),
        (TypeError, "queries has the dtype complex64", support, labels, queries.astype(np.complex64)),
        (TypeError, "queries has the dtype object", support, labels, queries.astype(object)),
        (ValueError, "labels have the shape (24,): a support of this shape has labels of (25,)", support, labels[1:], queries),
        (ValueError, "labels have the shape (25, 1)", support, labels[:, None], queries),
        (TypeError, "labels have the dtype float64: they are whole numbers or text", support, labels.astype(float), queries),
        (TypeError, "labels have the dtype object", support, [None] * 25, queries),
        (ValueError, "labels have 1 class: it takes at least two to choose among", support, labels * 0, queries),
        (ValueError, "queries are of a single task, the support of 1 task in a batch", support[None], labels[None], queries),
        (ValueError, "queries are of 3 tasks in a batch, the support of 1 task in a batch", support[None], labels[None], np.stack([queries] * 3)),
        (ValueError, "task 1 has no example of class 4: tasks of one call share their classes", np.stack([support] * 2), np.stack([labels, labels % 4]), np.stack([queries] * 2)),
        (ValueError, "queries has nan in task 1, row 2, column 3", np.stack([support] * 2), np.stack([labels] * 2), changed(np.stack([queries] * 2), (1, 2, 3), np.nan)),
    ]
    for error, text, *arrays in cases:
        refused(error, text, predict, *arrays)


def test_values_that_overflow_are_refused_not_misjudged(task):
    support, labels, queries, _ = task
    refused(ValueError, "logits of query 0 by prototypes are not finite", Prototypes().predict, support, labels, queries * 1e30)


def test_wrong_settings_are_refused(task):
    refused(ValueError, "pt-map has no setting rounds", Head, "pt-map", {"rounds": 3})
    refused(ValueError, 'setting steps of pt-map is "many"', PtMap, "many")
    refused(ValueError, "settings are finite numbers, text and lists", Head, "pt-map", {"rate": float("nan")})
    refused(ValueError, "unknown variant `sideways`", lambda: PtMap(after_power="sideways"))
    refused(ValueError, "a power must be positive, found -1", PtMap(power_factor=-1).predict, *task[:3])
    refused(ValueError, "a rate is from 0 to 1, found 3", PtMap(fine_tuning_lr=3).predict, *task[:3])
    refused(ValueError, "solver is 'newton': there are 'gd' and 'adm'", lambda: Tim(solver="newton"))
    refused(ValueError, 'there is no method "nearest": there are prototypes, simpleshot', Head, "nearest")
    refused(ValueError, "feat has weights of its own", Head, "feat")
    refused(ValueError, "embeddings have 32 values, maps of (2, 3, 4) have 24", heads.Dn4((2, 3, 4)).predict, *task[:3])


def test_maps_have_places(task):
    support, labels, queries, _ = task
    of_maps = heads.Dn4((2, 4, 4)).logits(support, labels, queries)
    assert not np.allclose(of_maps, heads.Dn4().logits(support, labels, queries))


def test_heads_can_be_pickled(task):
    for head in (PtMap(fine_tuning_steps=7), heads.Dn4((2, 4, 4)), heads.MatchingNet(None)):
        copy = pickle.loads(pickle.dumps(head))
        assert copy.name == head.name and copy.settings == head.settings
        assert (copy.logits(*task[:3]) == head.logits(*task[:3])).all()


def test_signatures_can_be_read():
    assert list(inspect.signature(PtMap).parameters)[:2] == ["fine_tuning_steps", "fine_tuning_lr"]
    assert list(inspect.signature(PtMap().predict).parameters) == ["support", "labels", "queries"]
    assert "pt-map" in repr(PtMap()) or "PtMap" in repr(PtMap())


@pytest.mark.parametrize("kind", [heads.Finetune, Tim, heads.TransductiveFinetuning, PtMap, heads.Baseline])
def test_threads_give_what_one_thread_gives(kind):
    tasks = [drawn_task(seed=seed)[:3] for seed in range(12)]
    head = made(kind)
    alone = [head.logits(*task) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda task: head.logits(*task), tasks * 3))
    for number, logits in enumerate(together):
        assert (logits == alone[number % 12]).all(), number


def test_other_threads_run_meanwhile():
    support, labels, queries, _ = drawn_task(ways=10, queries=30, length=256)
    head = Tim(fine_tuning_steps=400)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    head.predict(support, labels, queries)
    end = time.perf_counter()
    done.set()
    ticker.join()
    within = [at for at in ticks if start < at < end]
    # A lock of the interpreter held throughout would leave one or none.
    assert len(within) >= 5, (len(within), end - start)
