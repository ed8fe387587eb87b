"""Each call on a file fails once: what the commands leave is the old file whole or the new one whole, and one error.

python3 tests/faults/faults.py BINARY [--short] [--only COMMAND]

On Linux, with a C compiler. The n-th call of a kind fails, for n = 1, 2, ... until a command ends before its n-th call.
The short form takes a few n of each.
"""

import argparse
import collections
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from shutil import rmtree

from files import PATIENCE, TRAIN, Fault, check, checkpoint, digest, fixture, fresh, left_behind, model, png, run

ERRORS = {
    "open": ["EIO", "EINTR"],
    "read": ["EIO", "EINTR"],
    "write": ["ENOSPC", "EIO", "EINTR"],
    "sync": ["EIO", "ENOSPC", "EINTR"],
    "rename": ["EIO", "ENOSPC"],
    "map": ["ENOMEM"],
    "close": ["EIO"],
    "truncate": ["EIO"],
    "thread": ["EAGAIN"],
}

class Command:
    """A command that makes `file`, and what must be true of it after a fault."""

    def __init__(self, name, words, file):
        self.name, self.words, self.file = name, words, file

    def start(self, binary, root, environment):
        pipe = subprocess.PIPE
        return subprocess.Popen([binary, *self.words], cwd=root, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, binary, root, environment):
        process = self.start(binary, root, environment)
        try:
            _, stderr = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Fault(f"no end after {PATIENCE} s") from None
        return process.returncode, stderr

    def state(self, root):
        return model(root / self.file)

    def after(self, binary, root, old, new, code):
        found = self.state(root)
        check(found in (old, new), f"{self.file} is neither the old one nor the new one")
        check(code or found == new, f"exit 0, and {self.file} is not the new one")


class Train(Command):
    """Checkpoints are whole or absent, and the run goes on to the same end."""

    def state(self, root):
        return [checkpoint(root / self.file / name) for name in ("best.ckpt", "last.ckpt")]

    def after(self, binary, root, old, new, code):
        found = self.state(root)
        check(code or found == new, "exit 0, and the checkpoints are others")
        if not code:
            return
        if found == [None, None]:
            rmtree(root / self.file, ignore_errors=True)
        again = self.words + ["--resume"] * (found[1] is not None)
        done = run(binary, again, root)
        check(done.returncode == 0, f"what is left cannot be resumed: {done.stderr.strip()}")
        check(self.state(root) == new, "resumed, the checkpoints are others")


class Pack(Command):
    """A pack is whole or absent, byte for byte."""

    def state(self, root):
        path = root / self.file
        return digest(path.read_bytes()) if path.exists() else None


class Serve(Command):
    """An addition that is answered with 201 is in the file, any other is not."""

    def run(self, binary, root, environment):
        process = self.start(binary, root, environment)
        try:
            line = process.stdout.readline()
            if " at http" not in line:
                _, stderr = process.communicate(timeout=PATIENCE)
                return process.returncode, stderr
            url = line.strip().split(" at ")[1] + "/v1/classes/blue/examples"
            try:
                self.status = urllib.request.urlopen(url, png((9, 9, 200)), timeout=PATIENCE).status
            except urllib.error.HTTPError as error:
                self.status = error.code
            except OSError as error:
                self.status = None
                if process.poll() is None:
                    raise Fault(f"the server lives and does not answer: {error}") from None
            if process.poll() is not None:
                return process.returncode, process.stderr.read()
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=PATIENCE)
            # A signal ends the server; what came of the addition tells whether the fault was met.
            if self.status == 201:
                return 0, stderr
            return 1, stderr + f"error: answered {self.status}\n"
        except subprocess.TimeoutExpired:
            raise Fault(f"no end after {PATIENCE} s") from None
        finally:
            process.kill()
            process.wait()

    def after(self, binary, root, old, new, code):
        super().after(binary, root, old, new, code)
        done = run(binary, ["predict", self.file, "more/blue/0.png"], root)
        check(done.returncode == 0, f"the model does not open: {done.stderr.strip()}")


COMMANDS = [
    Command("adapt", "adapt run --support pictures/test --out new.fewshot --threads 2".split(), "new.fewshot"),
    Command("adapt --add", "adapt m.fewshot --add more/blue --threads 2".split(), "m.fewshot"),
    Train("train", ["train", "--data", "folder:pictures", *TRAIN, "--steps", "4", "--out", "run2"], "run2"),
    Command("embed", "embed run --data folder:pictures --to f.safetensors --threads 2".split(), "f.safetensors"),
    Pack("data pack", "data pack folder:pictures --image-size 16 --to p.pack".split(), "p.pack"),
    Serve("serve", "serve m.fewshot --port 0 --threads 2".split(), "m.fewshot"),
]


def numbers(short):
    """1, 2, 3, ..., and in the short form fewer and fewer."""
    n = 1
    while True:
        yield n
        n += n if short else 1


def once(binary, command, template, root, library, kind, name, n):
    """Whether there was an n-th call; raises `Fault` where what is promised is not so."""
    fresh(template, root)
    old = command.state(root)
    log = root.with_suffix(".log")
    log.unlink(missing_ok=True)
    environment = dict(os.environ, LD_PRELOAD=str(library), FAULT_FOLDER=str(root), FAULT_CALL=kind, FAULT_AT=str(n))
    environment |= {"FAULT_ERROR": str(getattr(errno, name)), "FAULT_LOG": str(log)}
    code, stderr = command.run(binary, root, environment)
    if not log.exists():
        check(code == 0, f"no call failed, and yet: {stderr}")
        return None
    met = log.read_text().strip()
    try:
        check(code >= 0, f"ended by signal {-code}: {stderr}")
        check("panicked" not in stderr and "RUST_BACKTRACE" not in stderr, f"a panic: {stderr}")
        errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
        if code:
            check(len(errors) == 1, f"exit {code} with {len(errors)} errors: {stderr}")
        left = left_behind(root)
        check(not left, f"left behind: {', '.join(left)}")
        command.after(binary, root, old, command.new, code)
    except Fault as fault:
        raise Fault(f"{met}: {fault}") from None
    return "refused" if code else "passed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", help="one command by its name")
    args = parser.parse_args()
    binary = str(args.binary.resolve())
    here = Path(__file__).resolve().parent
    failures, start = [], time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch).resolve()
        library = scratch / "faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, here / "preload.c", "-ldl"], check=True)
        template, root = scratch / "template", scratch / "work"
        template.mkdir()
        fixture(binary, template)
        for command in COMMANDS:
            if args.only not in (None, command.name):
                continue
            fresh(template, root)
            code, stderr = command.run(binary, root, dict(os.environ))
            check(code == 0, f"{command.name} without a fault: {stderr}")
            command.new = command.state(root)
            for kind, errors in ERRORS.items():
                for name in errors[:1] if args.short else errors:
                    counts = collections.Counter()
                    for n in numbers(args.short):
                        try:
                            outcome = once(binary, command, template, root, library, kind, name, n)
                        except Fault as fault:
                            failures.append(f"{command.name}, {name}: {fault}")
                            print(failures[-1], file=sys.stderr, flush=True)
                            counts["FAILED"] += 1
                            continue
                        if outcome is None:
                            break
                        counts[outcome] += 1
                    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
                    print(f"{command.name}: {kind} {name}: {told or 'no call'}", flush=True)
    print(f"{time.monotonic() - start:.0f} s, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
