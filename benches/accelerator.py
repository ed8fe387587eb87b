"""The training steps of docs/gpu.md on an accelerator, by the command: what the first one takes, and how many follow.

    cargo build --release --features cuda
    python benches/accelerator.py target/release/fewshot --data DIR [NAME...] [--backend cuda] [--seconds S]

DIR is Omniglot's. Every row trains three times. `first` and `again` are the seconds of two whole runs of 20 steps: with what
earlier runs left of compiled kernels (`--fresh` leaves none to the first row), and with all of them. Then steps are timed:
the third run has as many more as fill about S seconds, and its time less that of the second is theirs alone.
NAME is the beginning of names: `protonet-60`, `maml`. Pictures of 84 x 84 are noise, which takes as long.
"""

import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

SHORT = 20
MAML = "--method maml --meta-batch"
# Options, tasks of a step, and whether the data are Omniglot, pictures, or none.
ROWS = {
    "protonet-60-way": ("--train-ways 60 --shots 1 --train-queries 5", 1, "omniglot"),
    "protonet-60-way-tf32": ("--train-ways 60 --shots 1 --train-queries 5 --precision tf32", 1, "omniglot"),
    "protonet-60-way-bf16": ("--train-ways 60 --shots 1 --train-queries 5 --precision bf16", 1, "omniglot"),
    "protonet-5-way": ("--train-ways 5 --shots 1 --train-queries 15", 1, "omniglot"),
    "protonet-5-way-bf16": ("--train-ways 5 --shots 1 --train-queries 15 --precision bf16", 1, "omniglot"),
    "protonet-84x84": ("--train-ways 30 --shots 1 --train-queries 15", 1, "pictures"),
    "protonet-84x84-bf16": ("--train-ways 30 --shots 1 --train-queries 15 --precision bf16", 1, "pictures"),
    "maml": (f"{MAML} 32", 32, "omniglot"),
    "maml-5-steps": (f"{MAML} 32 --inner-steps 5", 32, "omniglot"),
    "sinusoid-25": (f"{MAML} 25 --data sinusoid", 25, None),
    "sinusoid-1000": (f"{MAML} 1000 --data sinusoid", 1000, None),
}


def write_pictures(folder, classes=64, each=20, side=84):
    """Bitmaps of noise, a folder for each class."""
    noise = random.Random(0)
    pixels = side * side * 3
    head = struct.pack("<2sIHHI", b"BM", 54 + pixels, 0, 0, 54)
    head += struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, pixels, 0, 0, 0, 0)
    for name in range(classes):
        (folder / f"{name:02}").mkdir(parents=True)
        for index in range(each):
            (folder / f"{name:02}" / f"{index}.bmp").write_bytes(head + noise.randbytes(pixels))


def train(arguments, options, steps, folder, environment):
    """Seconds of a run, and what it printed."""
    command = [arguments.fewshot, "train", "--backend", arguments.backend, *options, "--steps", str(steps), "--json"]
    command += ["--validate-every", "1000000", "--checkpoint-every", "1000000", "--eval-episodes", "1"]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        begin = time.perf_counter()
        try:
            done = subprocess.run([*command, "--out", f"{out}/run"], env=environment, capture_output=True, text=True)
        except OSError as error:
            sys.exit(f"{arguments.fewshot} cannot be run: {error}")
        seconds = time.perf_counter() - begin
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        sys.exit(f"{' '.join(command)}: {said[-1]}")
    return seconds, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fewshot")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--fresh", action="store_true")
    arguments = parser.parse_intermixed_args()
    names = arguments.names or [""]
    chosen = {name: row for name, row in ROWS.items() if any(name.startswith(wanted) for wanted in names)}
    if not chosen:
        sys.exit(f"no row begins with {' or '.join(names)}: {', '.join(ROWS)}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = dict(os.environ)
        if arguments.fresh:
            environment |= {"FEWSHOT_KERNEL_CACHE": f"{folder}/kernels", "CUDA_CACHE_PATH": f"{folder}/driver"}
        data = {"omniglot": ["--data", f"omniglot:{arguments.data}"], "pictures": ["--data", f"folder:{folder}/pictures"]}
        if any(kind == "pictures" for _, _, kind in chosen.values()):
            write_pictures(folder / "pictures")
        print(f"{'':<22}{'first, s':>9}{'again, s':>9}{'step, ms':>10}{'tasks/s':>12}  ms of the host by phase", flush=True)
        for name, (options, tasks, kind) in chosen.items():
            options = options.split() + data.get(kind, [])
            first, _ = train(arguments, options, SHORT, folder, environment)
            again, found = train(arguments, options, SHORT, folder, environment)
            # A first guess, which has what starting costs in it, then as many as fill the time.
            more = max(SHORT, int(arguments.seconds * found["tasks_per_s"] / tasks))
            for _ in range(3):
                whole, found = train(arguments, options, SHORT + more, folder, environment)
                step = max(whole - again, 1e-6) / more
                if whole - again > arguments.seconds / 2:
                    break
                more = int(min(10 * more, arguments.seconds / step))
            phases = {phase: round(ms, 3) for phase, ms in found["phase_ms"].items() if phase not in ("validate", "save")}
            print(f"{name:<22}{first:>9.2f}{again:>9.2f}{1e3 * step:>10.3f}{tasks / step:>12.0f}  {phases}", flush=True)


if __name__ == "__main__":
    main()
