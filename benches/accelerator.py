"""The training steps of docs/gpu.md on an accelerator, by the command: what the first one takes, and how many follow.

    cargo build --release --features cuda
    python benches/accelerator.py target/release/fewshot --data DIR [NAME...] [--backend cuda] [--seconds S]

DIR is Omniglot's. Every row trains three times. `first` and `again` are the seconds of two whole runs of 20 steps: with what
earlier runs left of compiled kernels (`--fresh` leaves none to the first row), and with all of them. Then steps are timed:
the third run has as many more as fill about S seconds, and its time less that of the second is theirs alone.
NAME is the beginning of names: `protonet-60`, `maml`. Pictures of 84 x 84 are noise, which takes as long.

    PYTHON=VENV/bin/python python benches/accelerator.py target/release/fewshot --data DIR [NAME...] --card software

needs no card: it counts the kernels of one step on kernels/tests/cuda/card, whose README says what VENV has and what the estimates
leave out. A line is a kernel at one grid: launches, estimated microseconds of all of them on an H100 and their share, the
bound, blocks, bytes asked for over bytes moved (read, written), and conflicts among wavefronts of shared memory. Lines below
`--share` percent are one. The sums follow, beside the time that one step takes the host.
"""

import argparse
import collections
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
SOFTWARE_CARD = pathlib.Path(__file__).parent.parent / "kernels/tests/cuda/card/with-card"
MAML = "--method maml --meta-batch"
# Options, tasks of a step, and whether the data are Omniglot, pictures, or none.
ROWS = {
    "protonet-60-way": ("--train-ways 60 --shots 1 --train-queries 5", 1, "omniglot"),
    "protonet-60-way-tf32": ("--train-ways 60 --shots 1 --train-queries 5 --precision tf32", 1, "omniglot"),
    "protonet-60-way-bf16": ("--train-ways 60 --shots 1 --train-queries 5 --precision bf16", 1, "omniglot"),
    "protonet-5-way": ("--train-ways 5 --shots 1 --train-queries 15", 1, "omniglot"),
    "protonet-5-way-bf16": ("--train-ways 5 --shots 1 --train-queries 15 --precision bf16", 1, "omniglot"),
    "protonet-84x84": ("--train-ways 30 --shots 1 --train-queries 15", 1, "pictures"),
    "protonet-84x84-tf32": ("--train-ways 30 --shots 1 --train-queries 15 --precision tf32", 1, "pictures"),
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
    """Seconds of a run, and its report."""
    command = [*arguments.card, arguments.fewshot, "train", "--backend", arguments.backend, *options, "--steps", str(steps), "--json"]
    command += ["--validate-every", "1000000", "--checkpoint-every", "1000000", "--validation-episodes", "1", "--eval-episodes", "1"]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        begin = time.perf_counter()
        try:
            process = subprocess.run([*command, "--out", f"{out}/run"], env=environment, capture_output=True, text=True)
        except OSError as error:
            sys.exit(f"{command[0]} cannot be run: {error}")
        seconds = time.perf_counter() - begin
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"status {process.returncode}"]
        sys.exit(f"{' '.join(command)}: {lines[-1]}")
    return seconds, json.loads(process.stdout)


def time_steps(arguments, name, options, tasks, folder, environment):
    """Prints seconds of two first runs, and milliseconds of a step after them."""
    first, _ = train(arguments, options, SHORT, folder, environment)
    again, report = train(arguments, options, SHORT, folder, environment)
    # A first guess, which has what starting costs in it, then as many as fill the time.
    more = max(SHORT, int(arguments.seconds * report["tasks_per_s"] / tasks))
    for _ in range(3):
        whole, report = train(arguments, options, SHORT + more, folder, environment)
        step = max(whole - again, 1e-6) / more
        if whole - again > arguments.seconds / 2:
            break
        more = int(min(10 * more, arguments.seconds / step))
    phases = {phase: round(ms, 3) for phase, ms in report["phase_ms"].items() if phase not in ("validate", "save")}
    print(f"{name:<22}{first:>9.2f}{again:>9.2f}{1e3 * step:>10.3f}{tasks / step:>12.0f}  {phases}", flush=True)


def counted(arguments, options, steps, folder, environment):
    """Sums over the launches of a run, for each kernel, grid and size of block; and the bound of each."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        path = pathlib.Path(out, "kernels")
        train(arguments, options, steps, folder, environment | {"SOFTWARE_CUDA_STATS": str(path)})
        kernels, bounds = collections.defaultdict(collections.Counter), {}
        for line in path.read_text().splitlines():
            line = json.loads(line)
            key = line["kernel"], tuple(line["grid"]), tuple(line["threads"])
            bounds[key] = line["bound"]
            kernels[key] = sums = collections.Counter({field: line[field] for field in COUNTED})
            sums["us"] = line["launches"] * line["estimated_us"]
            for way in ("read", "write"):
                moved = 32 * line["sectors_read" if way == "read" else "sectors_written"]
                sums[f"{way}_moved"], sums[f"{way}_asked"] = moved, moved * line[f"{way}_efficiency"]
        return kernels, bounds


COUNTED = ("launches", "shared_wavefronts", "bank_conflicts", "footprint_bytes")


def percent(part, whole):
    return f"{100 * part / whole:.0f}" if whole else "-"


def count_kernels(arguments, name, options, folder, environment):
    """Prints the kernels of a step: those of a run of two steps without those of a run of one."""
    (one, _), (kernels, bounds) = (counted(arguments, options, steps, folder, environment) for steps in (1, 2))
    for key, sums in kernels.items():
        sums.subtract(one[key])
    kernels = {key: sums for key, sums in kernels.items() if sums["launches"]}
    whole = sum(kernels.values(), collections.Counter())
    skipped = environment | {"SOFTWARE_CUDA_EXECUTES": "64", "FEWSHOT_KERNEL_CACHE": "off"}
    short, long = (train(arguments, options, steps, folder, skipped)[0] for steps in (SHORT, 5 * SHORT))
    print(f"\n{name}: {whole['launches']} launches, {whole['us']:.0f} us, {whole['footprint_bytes'] / 1e6:.1f} MB; ", end="")
    print(f"the host {1e3 * (long - short) / (4 * SHORT):.2f} ms")
    print(f"{'kernel':<44}{'launches':>9}{'us':>9}{'%':>5}  {'bound':<17}{'blocks':>7}{'read %':>8}{'write %':>8}{'conflicts %':>12}")
    rest = collections.Counter()
    for key, sums in sorted(kernels.items(), key=lambda kernel: -kernel[1]["us"]):
        if sums["us"] < arguments.share / 100 * whole["us"]:
            rest += sums
            continue
        kernel, grid, _ = key
        print(
            f"{kernel[:43]:<44}{sums['launches']:>9}{sums['us']:>9.1f}{percent(sums['us'], whole['us']):>5}  {bounds[key]:<17}"
            f"{grid[0] * grid[1] * grid[2]:>7}{percent(sums['read_asked'], sums['read_moved']):>8}"
            f"{percent(sums['write_asked'], sums['write_moved']):>8}{percent(sums['bank_conflicts'], sums['shared_wavefronts']):>12}"
        )
    print(f"{'others':<44}{rest['launches']:>9}{rest['us']:>9.1f}{percent(rest['us'], whole['us']):>5}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fewshot")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", required=True, metavar="DIR")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--card", choices=["software"])
    parser.add_argument("--share", type=float, default=1.0)
    arguments = parser.parse_intermixed_args()
    arguments.card = [str(SOFTWARE_CARD)] if arguments.card else []
    names = arguments.names or [""]
    chosen = {name: row for name, row in ROWS.items() if any(name.startswith(prefix) for prefix in names)}
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
        if not arguments.card:
            print(f"{'':<22}{'first, s':>9}{'again, s':>9}{'step, ms':>10}{'tasks/s':>12}  ms of the host by phase", flush=True)
        for name, (options, tasks, kind) in chosen.items():
            options = options.split() + data.get(kind, [])
            if arguments.card:
                count_kernels(arguments, name, options, folder, environment)
            else:
                time_steps(arguments, name, options, tasks, folder, environment)


if __name__ == "__main__":
    main()
