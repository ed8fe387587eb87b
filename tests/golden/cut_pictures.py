"""Small pictures in formats that Rust's encoders do not write, with what PIL makes of them cut at every byte.

python tests/golden/cut_pictures.py    (Pillow 13.0)
"""

import io
import json
import struct
import zlib
from pathlib import Path

import PIL
from PIL import Image

HERE = Path(__file__).parent
PIXELS = [[(x * 11 % 256, y * 17 % 256, (x * y * 3) % 256) for x in range(23)] for y in range(19)]


def picture(mode="RGB"):
    image = Image.new("RGB", (23, 19))
    image.putdata([pixel for row in PIXELS for pixel in row])
    return image.convert(mode)


def encoded(kind, mode="RGB", **options):
    file = io.BytesIO()
    picture(mode).save(file, kind, **options)
    return file.getvalue()


def interlaced():
    """A PNG by Adam7, which Pillow reads but does not write."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for left, top, across, down in passes:
        for row in PIXELS[top::down]:
            if row[left::across]:
                raw += b"\0" + bytes(value for pixel in row[left::across] for value in pixel)

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 23, 19, 8, 2, 0, 0, 1)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def refused(content):
    """Lengths of the file's beginning that PIL does not read."""
    lengths = []
    for length in range(len(content)):
        try:
            Image.open(io.BytesIO(content[:length])).load()
        except Exception:
            lengths.append(length)
    return lengths


def main():
    quality = {"quality": 40, "optimize": True}
    files = {
        "baseline.jpg": encoded("JPEG", **quality),
        "grey.jpg": encoded("JPEG", "L", **quality),
        "progressive.jpg": encoded("JPEG", progressive=True, **quality),
        "restarts.jpg": encoded("JPEG", restart_marker_blocks=1, **quality),
        "whole_colour.jpg": encoded("JPEG", subsampling=0, restart_marker_rows=1, **quality),
        "interlaced.png": interlaced(),
        "lossy.webp": encoded("WEBP", quality=30),
        "palette.png": encoded("PNG", "P"),
        "palette.bmp": encoded("BMP", "P"),
        "lzw.tif": encoded("TIFF", compression="tiff_lzw"),
        "deflate.tif": encoded("TIFF", compression="tiff_deflate"),
        "plain.tif": encoded("TIFF"),
        "turned.tif": encoded("TIFF", "L", tiffinfo={0x112: 6}),
    }
    assert list(Image.open(io.BytesIO(files["interlaced.png"])).getdata()) == list(picture().getdata())
    folder = HERE.parent / "fixtures" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    cuts = {}
    for name, content in files.items():
        lengths = refused(content)
        # The first length that is read, where all from it on are.
        assert lengths == list(range(len(lengths))), name
        cuts[name] = {"bytes": len(content), "read_from": len(lengths)}
    golden = {"pillow": PIL.__version__, "cuts": cuts}
    (HERE / "cut_pictures.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
