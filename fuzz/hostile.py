"""Inputs that a stranger would make to take memory or time, or to be believed; written to `found/`.

After `seeds.py` and the seeds of models, of which some are changed.
"""

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path

HERE = Path(__file__).parent
LEGACY = [b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x02M\xe9\x03.", b"\x80\x02}."]
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n(("
STORAGE = b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpu"


def put(target, name, content):
    folder = HERE / "found" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def integer(value):
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


def sizes(values):
    return b"(" + b"".join(map(integer, values)) + b"t"


def tensor(shape, strides, elements, offset=0):
    """A dictionary with one tensor."""
    storage = STORAGE + integer(elements) + b"tQ"
    rest = integer(offset) + sizes(shape) + sizes(strides) + b"\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}X\x01\0\0\0w" + TENSOR + storage + rest + b"s."


def text(number):
    return b"X\x02\0\0\0%02d" % number


def nested(times):
    """A dictionary in a dictionary in a dictionary, so deep."""
    return b"\x80\x02}X\x01\0\0\0wq\0" + b"}h\0" * times + b"N" + b"s" * (times + 1) + b"."


def doubled(begin, twice, times):
    """A dictionary in which each value but the first holds the one before it twice."""
    items = text(0) + begin + b"q\0s"
    for level in range(times):
        items += text(level + 1) + twice(b"h" + bytes([level])) + b"q" + bytes([level + 1]) + b"s"
    return b"\x80\x02}" + items + b"."


def both(name, pickle):
    """The same in both of PyTorch's containers."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/data/0", b"\0" * 16)
        archive.writestr("archive/version", b"3\n")
    put("weights", f"{name}_zip", file.getvalue())
    keys = b"\x80\x02]X\x01\0\0\x000a."
    put("weights", f"{name}_legacy", b"".join(LEGACY) + pickle + keys + struct.pack("<Q", 4) + b"\0" * 16)


def weights():
    both("list_that_doubles", doubled(b"]", lambda of: b"](" + of + of + b"e", 40))
    both("tuple_that_doubles", doubled(b")", lambda of: of + of + b"\x86", 40))
    both("dictionary_that_doubles", doubled(b"}", lambda of: b"}(" + text(0) + of + text(1) + of + b"u", 40))
    both("list_in_itself", b"\x80\x02}X\x01\0\0\0w]q\0h\0as.")
    both("nested_dictionaries", nested(20_000))
    both("elements_without_strides", tensor([2**40], [0], 4))
    both("many_elements", tensor([2**40], [1], 2**40))
    both("product_that_overflows", tensor([2**33, 2**33], [2**33, 1], 4))
    both("axis_of_zero", tensor([0, 2**62], [2**62, 1], 4))
    both("beyond_the_storage", tensor([4], [1], 4, offset=2**61))
    both("negative_size", tensor([-1], [1], 4))
    both("long_text", b"\x80\x02}X\xff\xff\xff\xffw")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" + b"N" * (16 << 20) + b".")
    put("weights", "inflates", file.getvalue())
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}).encode()
    put("weights", "overflow_safetensors", struct.pack("<Q", len(header)) + header)
    put("weights", "header_of_ages", struct.pack("<Q", 2**62) + b"{}")


def adapted():
    seed = (HERE / "corpus/adapted/two_classes").read_bytes()
    begin = 8 + int.from_bytes(seed[:8], "little")
    header = json.loads(seed[8:begin])
    noted = json.loads(header["__metadata__"]["fewshot_adapted"])
    conv4 = noted["backbone"]["conv4"]

    def changed(name, change, data=seed[begin:]):
        found = json.loads(json.dumps(noted))
        change(found)
        header["__metadata__"]["fewshot_adapted"] = json.dumps(found)
        text = json.dumps(header).encode()
        put("adapted", name, struct.pack("<Q", len(text)) + text + data)

    for key in ("channels", "blocks", "halve_every"):
        assert key in conv4
        for number in (0, 100_000, 2**32, 2**63):
            changed(f"{key}_{number}", lambda of: of["backbone"]["conv4"].update({key: number}))
    for number in (0, 100_000, 2**32, 2**63):
        changed(f"image_{number}", lambda of: of["backbone"]["conv4"].update(image=[3, number, number]))
    changed("temperature_0", lambda of: of["calibration"].update(temperature=0.0))
    for value, name in ((float("nan"), "nan"), (float("inf"), "infinite")):
        end = min(of["data_offsets"][0] for key, of in header.items() if key in ("green", "red"))
        row = bytearray(seed[begin:])
        row[end : end + 4] = struct.pack("<f", value)
        changed(f"embedding_{name}", lambda of: None, bytes(row))


def pictures():
    def chunk(kind, content):
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    def png(width, height, lines):
        size = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")

    line = zlib.compress(b"\0" * (1 << 20), 9)
    put("pictures", "a_wall.png", png(32768, 16383, line))
    put("pictures", "of_no_width.png", png(0, 10, line))
    put("pictures", "longer_than_counted.png", png(2**31 - 1, 2**31 - 1, line))


def pickles():
    put("pickles", "list_that_doubles", doubled(b"]", lambda of: b"](" + of + of + b"e", 40))
    put("pickles", "nested_dictionaries", nested(20_000))
    put("pickles", "long_text", b"\x80\x02}X\xff\xff\xff\xffw")


for write in (weights, adapted, pictures, pickles):
    write()
