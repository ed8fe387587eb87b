"""Training and serving are killed at random moments: a run that is resumed ends as one that was not killed, and what the
server has answered is in the file.

python3 tests/faults/kills.py BINARY [--count 200] [--seed 1]

Half of the kills are of training, half of a server under additions. On Linux and macOS.
"""

import argparse
import http.client
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from files import PATIENCE, TRAIN, Fault, check, checkpoint, fixture, fresh, model, png, run

STEPS = "40"
# Seconds that a process lives at most before it is killed.
LIFE = 1.0


def killed(process, after):
    """Whether the process was killed, and had not ended before."""
    try:
        process.wait(timeout=after)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def figures(folder):
    """The metrics of a run without what its phases took."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: of for name, of in line.items() if name != "phase_ms"} for line in lines]


def state(folder):
    return [checkpoint(folder / name) for name in ("best.ckpt", "last.ckpt")] + [figures(folder)]


def train(binary, root, count, draw):
    """Kills of training; a run that has ended begins anew."""
    words = ["train", "--data", "folder:pictures", *TRAIN, "--steps", STEPS, "--json"]
    whole = run(binary, [*words, "--out", "whole"], root)
    check(whole.returncode == 0, f"training without a kill: {whole.stderr}")
    told, wanted = json.loads(whole.stdout), state(root / "whole")
    kills = number = 0
    folder = root / "killed0"
    while kills < count:
        again = [*words, "--out", folder.name] + ["--resume"] * (folder / "last.ckpt").exists()
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([binary, *again], cwd=root, stdout=quiet, stderr=subprocess.PIPE, text=True)
        if killed(process, draw.uniform(0, LIFE)):
            kills += 1
            for name in ("best.ckpt", "last.ckpt"):
                checkpoint(folder / name)
        else:
            check(process.returncode == 0, f"after {kills} kills: {process.stderr.read()}")
            check(state(folder) == wanted, f"{folder.name} is another run than one without a kill")
            number += 1
            folder = root / f"killed{number}"
        if kills == count and folder.exists():
            again = [*words, "--out", folder.name] + ["--resume"] * (folder / "last.ckpt").exists()
            done = run(binary, again, root)
            check(done.returncode == 0, f"after {kills} kills: {done.stderr}")
            check(state(folder) == wanted, f"{folder.name} is another run than one without a kill")
            found = json.loads(done.stdout)
            check(found["accuracy"] == told["accuracy"], f"accuracy {found['accuracy']}, without a kill {told['accuracy']}")
    print(f"train: {kills} kills, {number + 1} runs as without a kill")


def examples(binary, root):
    """How many examples of each class a server finds in the file."""
    process, connection = served(binary, root)
    try:
        connection.request("GET", "/v1/model")
        classes = json.loads(connection.getresponse().read())["classes"]
        return {of["class"]: len(of["examples"]) for of in classes}
    finally:
        process.kill()
        process.wait()


def served(binary, root):
    words = [binary, "serve", "m.fewshot", "--port", "0", "--threads", "2"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, cwd=root, stdout=pipe, stderr=pipe, text=True)
    line = process.stdout.readline()
    check(" at http" in line, f"the server does not start: {line}{'' if line else process.stderr.read()}")
    return process, http.client.HTTPConnection(line.split("http://")[1].strip(), timeout=PATIENCE)


def serve(binary, root, count, draw):
    """Kills of a server under additions, each of another picture."""
    found = examples(binary, root)
    sent = answered = 0
    for kill in range(count):
        process, connection = served(binary, root)
        timer = threading.Timer(draw.uniform(0, LIFE), process.kill)
        timer.start()
        added = asked = 0
        try:
            while True:
                sent += 1
                asked += 1
                connection.request("POST", "/v1/classes/blue/examples", png((sent % 251, sent // 251, 200), sent))
                status = connection.getresponse()
                text = status.read()
                check(status.status == 201, f"answered {status.status}: {text}")
                added += 1
        except (OSError, http.client.HTTPException):
            pass
        timer.join()
        process.wait()
        answered += added
        again = examples(binary, root)
        # One that was in the file before it could be answered may be there.
        grown = again.get("blue", 0) - found.get("blue", 0)
        check(added <= grown <= asked, f"kill {kill}: {added} additions were answered, {asked} were sent, {grown} are there")
        check({**again, "blue": 0} == {**found, "blue": 0}, f"kill {kill}: other classes have changed: {again}")
        check(model(root / "m.fewshot") is not None, f"kill {kill}: there is no file")
        found = again
    print(f"serve: {count} kills, {answered} additions answered of {sent}, none lost")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    binary, draw, start = str(args.binary.resolve()), random.Random(args.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        template = Path(scratch).resolve() / "template"
        template.mkdir()
        try:
            fixture(binary, template)
            for campaign, count in ((train, args.count - args.count // 2), (serve, args.count // 2)):
                root = template.with_name(campaign.__name__)
                fresh(template, root)
                campaign(binary, root, count, draw)
        except Fault as fault:
            print(f"FAILED: {fault}", file=sys.stderr)
            return 1
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
