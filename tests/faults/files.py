"""What files of models and checkpoints say, and the pictures, run and model that the campaigns begin with."""

import hashlib
import json
import re
import shutil
import struct
import subprocess
import zlib

# Seconds that a command of a second may take.
PATIENCE = 60
TRAIN = """--image-size 16 --ways 2 --shots 1 --queries 2 --train-ways 2 --train-queries 1 --validate-every 2
    --validation-episodes 2 --checkpoint-every 2 --eval-episodes 2 --threads 2""".split()
MAGIC = b"FEWSHOT2"
DIGEST = 32
# Parameters have a name that is drawn anew in each process, and optimizers list their states in the order of its hash.
DRAWN = re.compile(rb"\xad[0-9a-v]{13}")
# What follows the last state of an optimizer, whichever that is.
END = b"\xa2_b\x90"


class Fault(Exception):
    """What is promised and was not so."""


def check(holds, text):
    if not holds:
        raise Fault(text)


def model(path):
    """What a safetensors file says, whatever the order of its parts; None where there is no file."""
    if not path.exists():
        return None
    whole = path.read_bytes()
    check(len(whole) >= 8, f"{path.name} is cut")
    begin = 8 + int.from_bytes(whole[:8], "little")
    check(begin <= len(whole), f"{path.name} is cut in its header")
    header = json.loads(whole[8:begin])
    metadata = header.pop("__metadata__", {})
    places = {name: of["data_offsets"] for name, of in header.items()}
    end = max(end for _, end in places.values())
    check(begin + end == len(whole), f"{path.name} is cut in its tensors")
    tensors = {name: digest(whole[begin + start : begin + end]) for name, (start, end) in places.items()}
    return json.dumps([metadata, header, tensors], sort_keys=True)


def checkpoint(path):
    """Progress and numbers of a checkpoint, whatever its parameters are called; None where there is no file."""
    if not path.exists():
        return None
    whole = path.read_bytes()
    check(whole.startswith(MAGIC), f"{path.name} is no checkpoint")
    check(hashlib.sha256(whole[:-DIGEST]).digest() == whole[-DIGEST:], f"{path.name} is cut or changed")
    begin = 16 + int.from_bytes(whole[8:16], "little")
    header = json.loads(whole[16:begin])
    records = {}
    for entry in header["records"]:
        record = whole[begin : begin + entry["bytes"]]
        records[entry["name"]] = sorted(digest(part.removesuffix(END)) for part in DRAWN.split(record))
        begin += entry["bytes"]
    return json.dumps([header["architecture"], header["progress"], records], sort_keys=True)


def digest(content):
    return hashlib.sha256(content).hexdigest()


def run(binary, words, folder):
    return subprocess.run([binary, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def fixture(binary, root):
    """Pictures, a run on them and a model on it."""
    for part in ("train", "val", "test"):
        for number in range(3):
            draw(root / "pictures" / part / f"{part}{number}", (40 * number, 200 - 40 * number, 10))
    draw(root / "more" / "blue", (10, 10, 200), 2)
    for words in (
        ["train", "--data", "folder:pictures", *TRAIN, "--steps", "4", "--out", "run"],
        ["adapt", "run", "--support", "pictures/test", "--out", "m.fewshot", "--threads", "2"],
    ):
        done = run(binary, words, root)
        check(done.returncode == 0, f"{words} without a fault: {done.stderr}")


def draw(folder, colour, count=4):
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(png(colour, number))


def png(colour, number=0):
    """A picture of about this colour, another one for each number."""

    def chunk(kind, content):
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    pixels = [bytes((value + 3 * number + 7 * column) % 256 for value in colour) for column in range(12)]
    header = struct.pack(">IIBBBBB", 12, 12, 8, 2, 0, 0, 0)
    lines = zlib.compress((b"\0" + b"".join(pixels)) * 12)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def fresh(template, root):
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)


def left_behind(root):
    """Temporary files that a command should have taken away."""
    return [str(path.relative_to(root)) for path in root.rglob("*") if re.search(r"partial|\btmp\b|\.tmp", path.name)]
