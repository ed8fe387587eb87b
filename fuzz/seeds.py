"""Seeds of every kind but models and checkpoints, which `cargo test --test reliability -- --ignored` writes.

fonttools==4.63.0 numpy==2.4.6 pillow==13.0.0 safetensors==0.8.0 torch==2.15.0
"""

import collections
import hashlib
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image
from safetensors.torch import save

CORPUS = Path(__file__).parent / "corpus"


def put(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pack(name, image, counts, pixels, train):
    """A pack of one class in each split, of so many images; `train` has more fields of the first class."""
    channels, height, width = image
    each, first, splits = channels * height * width, 0, {}
    for split, (of, count) in zip(("train", "validation", "test"), counts.items()):
        own = pixels[first * each : (first + count) * each]
        described = {"name": of, "first": first, "images": count, "files": hashlib.sha256(own).hexdigest()[:16]}
        scaling = {"mean": [0.0] * channels, "std": [1.0] * channels}
        classes = [described | (train if split == "train" else {})]
        splits[split] = {"scaling": scaling, "draws_turns": split == "test", "classes": classes}
        first += count
    header = {"created_by": "fewshot 0.1.0", "source": "nothing", "images": first, "shades": "kept"} | splits
    header["image"] = {"channels": channels, "height": height, "width": width}
    header["sha256"] = hashlib.sha256(pixels).hexdigest()
    header = json.dumps(header).encode()
    numbers = struct.pack("<QQQ", 1, 4096 + len(pixels), len(header))
    beginning = b"fewshot pack".ljust(16, b"\0") + numbers + hashlib.sha256(header).digest()
    put("packs", name, beginning.ljust(4096, b"\0") + pixels + header)


def packs():
    pack("three_classes", (3, 2, 2), {"a": 2, "b": 1, "c": 1}, bytes([7] * 48), {})
    pack("turned", (1, 3, 3), {"a/rot090": 1, "b": 2, "c": 1}, bytes(range(36)), {"turn": "R90"})


def pictures():
    shades = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3)
    colour = Image.fromarray(shades)
    turned = Image.Exif()
    turned[0x112] = 6
    put("pictures", "grey.png", encoded(Image.new("L", (1, 1), 128), "PNG"))
    put("pictures", "colour.png", encoded(colour, "PNG"))
    put("pictures", "palette.png", encoded(colour.quantize(4), "PNG"))
    put("pictures", "transparent.png", encoded(colour.convert("RGBA"), "PNG"))
    put("pictures", "16_bit.png", encoded(Image.fromarray(np.arange(6, dtype=np.uint16).reshape(2, 3)), "PNG"))
    put("pictures", "turned.png", encoded(colour, "PNG", exif=turned))
    put("pictures", "moving.png", encoded(colour, "PNG", save_all=True, append_images=[colour.rotate(180)]))
    put("pictures", "baseline.jpg", encoded(colour, "JPEG"))
    put("pictures", "progressive.jpg", encoded(colour, "JPEG", progressive=True))
    put("pictures", "four_inks.jpg", encoded(colour.convert("CMYK"), "JPEG"))
    put("pictures", "turned.jpg", encoded(colour, "JPEG", exif=turned))
    put("pictures", "colour.bmp", encoded(colour, "BMP"))
    put("pictures", "palette.bmp", encoded(colour.quantize(4), "BMP"))
    put("pictures", "one.gif", encoded(colour, "GIF"))
    put("pictures", "two.gif", encoded(colour, "GIF", save_all=True, append_images=[colour.rotate(180)]))
    put("pictures", "lossy.webp", encoded(colour, "WEBP"))
    put("pictures", "lossless.webp", encoded(colour, "WEBP", lossless=True))
    put("pictures", "moving.webp", encoded(colour, "WEBP", save_all=True, append_images=[colour.rotate(180)]))
    put("pictures", "transparent.webp", encoded(colour.convert("RGBA"), "WEBP"))
    put("pictures", "another_format.tif", encoded(colour, "TIFF"))


def features():
    rows = {"cat": torch.tensor([[1.0, 0.0], [0.9, 0.1]]), "dog": torch.tensor([[0.0, 1.0]])}
    put("features", "plain", save(rows))
    put("features", "base_mean", save(rows, {"base_mean": "[0.5, 0.25]", "backbone": "conv4"}))
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        put("features", str(kind).removeprefix("torch."), save({name: of.to(kind) for name, of in rows.items()}))
    single, labels = torch.cat([rows["cat"], rows["dog"]]), np.array(["cat", "cat", "dog"])
    put("features", "labels", save({"embeddings": single}, {"labels": json.dumps(labels.tolist())}))
    put("features", "table", "x,y,label\n1,0,cat\n0.9,0.1,cat\n0,1,dog\n")
    single = single.numpy()

    def written(write, *arrays, **named):
        file = io.BytesIO()
        write(file, *arrays, **named)
        return file.getvalue()

    put("features", "array", written(np.save, single))
    put("features", "fortran_order", written(np.save, np.asfortranarray(single.astype(">f8"))))
    put("features", "archive_of_rows", written(np.savez, embeddings=single, labels=labels))
    put("features", "archive_of_classes", written(np.savez_compressed, cat=single[:2], dog=single[2:].astype(np.float16)))


def lists():
    put("csv_lists", "splits", "path,label,split\na.png,x,train\nb.png,y,val\nc.png,z,test\nd.png,z,test\n")
    put("csv_lists", "classes", 'label,path\nowl,a.png\n"red ""fox""",b.png\ncat,c.png\ncat,d.png\n')
    put("csv_lists", "windows", "\ufeffpath,label\r\na.png,x\r\nb.png,y\r\nc.png,z\r\n")


def omniglot():
    page = Image.new("1", (105, 105), 1)
    page.paste(0, (40, 40, 60, 50))
    page = encoded(page, "PNG")
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as archive:
            for character in ("01", "02"):
                archive.writestr(f"images/Greek/character{character}/1.png", page)
        put("omniglot", name, file.getvalue())


def pickles():
    images = np.arange(2 * 2 * 2 * 3, dtype=np.uint8).reshape(2, 2, 2, 3)
    coded = encoded(Image.fromarray(images[0]), "PNG")
    values = {
        "mini": {"image_data": images, "class_dict": {"owl": [0], "fox": [1]}},
        "cifar": {"data": images, "labels": [3, 4]},
        "tiered_images": [coded, np.frombuffer(coded, dtype=np.uint8)],
        "tiered_labels": {"label_specific": np.array([0, 1]), "label_specific_str": ["owl", "fox"]},
    }
    for name, value in values.items():
        for protocol in (2, 4):
            put("pickles", f"{name}_{protocol}", pickle.dumps(value, protocol=protocol))


def network():
    """The parameters of a DINOv2 of two channels and one block."""
    shapes = {
        "cls_token": (1, 1, 2), "pos_embed": (1, 5, 2),
        "patch_embed.proj.weight": (2, 3, 1, 1), "patch_embed.proj.bias": (2,),
        "blocks.0.norm1.weight": (2,), "blocks.0.norm1.bias": (2,),
        "blocks.0.attn.qkv.weight": (6, 2), "blocks.0.attn.qkv.bias": (6,),
        "blocks.0.attn.proj.weight": (2, 2), "blocks.0.attn.proj.bias": (2,),
        "blocks.0.ls1.gamma": (2,), "blocks.0.norm2.weight": (2,), "blocks.0.norm2.bias": (2,),
        "blocks.0.mlp.fc1.weight": (8, 2), "blocks.0.mlp.fc1.bias": (8,),
        "blocks.0.mlp.fc2.weight": (2, 8), "blocks.0.mlp.fc2.bias": (2,),
        "blocks.0.ls2.gamma": (2,), "norm.weight": (2,), "norm.bias": (2,),
    }
    return collections.OrderedDict((name, torch.full(shape, 0.5)) for name, shape in shapes.items())


def weights():
    def written(value, new):
        file = io.BytesIO()
        torch.save(value, file, _use_new_zipfile_serialization=new)
        return file.getvalue()

    whole = network()
    few = collections.OrderedDict(list(whole.items())[:2])
    few["transposed"] = torch.arange(6.0).reshape(2, 3).t()
    few["parameter"] = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    put("weights", "zip", written(whole, True))
    put("weights", "legacy", written(whole, False))
    put("weights", "safetensors", save(dict(whole)))
    put("weights", "few_zip", written({"state_dict": few, "epoch": 3}, True))
    put("weights", "few_legacy", written({"state_dict": few, "epoch": 3}, False))
    put("weights", "half", save({name: of.half() for name, of in few.items() if name != "transposed"}))


def fonts():
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "A", "B", "C"])
    builder.setupCharacterMap({ord("A"): "A", ord("B"): "B", ord("C"): "C"})
    glyphs = {".notdef": TTGlyphPen(None).glyph()}
    for number, name in enumerate("ABC"):
        pen = TTGlyphPen(None)
        pen.moveTo((0, 0))
        pen.lineTo((0, 500))
        pen.qCurveTo((200 + 100 * number, 700), (400, 0))
        pen.closePath()
        glyphs[name] = pen.glyph()
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics({name: (500, 0) for name in glyphs})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({})
    builder.setupOS2()
    builder.setupPost(keepGlyphNames=False)
    file = io.BytesIO()
    builder.save(file)
    put("fonts", "three_letters", file.getvalue())


def runs():
    config = {"architecture": "protonet", "backend": "flex", "steps": 4, "user": {"method": "protonet", "data": "glyphs"}}
    phases = {"data": 0.25, "forward": 16, "backward": 24.5, "reduce": 0, "step": 3, "validate": 0, "save": 0}
    step = {"step": 1, "loss": 1.5, "accuracy": 40.0, "learning_rate": 0.001, "phase_ms": phases}
    checked = {"step": 2, "validation": {"measure": "accuracy", "mean": 50.0, "ci95": 1.5}}
    lines = "\n".join(json.dumps(line) for line in (step, checked))
    put("runs", "made_up", json.dumps(config) + "\0" + lines + "\n")


def requests():
    def request(line, body=b"", *headers):
        head = [line + " HTTP/1.1", "Host: 127.0.0.1", *headers]
        if body:
            head.append(f"Content-Length: {len(body)}")
        return "\r\n".join(head).encode() + b"\r\n\r\n" + body

    colour = encoded(Image.new("RGB", (4, 4), (200, 10, 10)), "PNG")
    put("requests", "page", request("GET /"))
    put("requests", "script", request("GET /page.js"))
    put("requests", "model", request("GET /v1/model"))
    put("requests", "file", request("GET /v1/model/file"))
    put("requests", "predict", request("POST /v1/predict?top=2&unknown=0.5", colour))
    one, several = ({"embedding": [0.5] * 8}, {"embeddings": [[0.5] * 8, [1] * 8]})
    one, several = (json.dumps(body).encode() for body in (one, several))
    as_json = "Content-Type: application/json"
    put("requests", "embedding", request("POST /v1/predict", one, as_json))
    put("requests", "embeddings", request("POST /v1/predict", several, as_json))
    put("requests", "add_embedding", request("POST /v1/classes/red/examples", one, as_json))
    put("requests", "add", request("POST /v1/classes/red/examples", colour))
    put("requests", "add_named", request("POST /v1/classes/sky%20blue%2F%C3%A9/examples", colour))
    put("requests", "remove_class", request("DELETE /v1/classes/third"))
    put("requests", "remove_example", request("DELETE /v1/examples/4"))
    put("requests", "picture", request("GET /v1/examples/0/picture"))
    put("requests", "nothing", request("PATCH /v1/nothing"))
    put("requests", "of_another_site", request("GET /v1/model", b"", "Origin: http://example.org"))
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(colour), colour)
    put("requests", "chunks", request("POST /v1/predict", b"", "Transfer-Encoding: chunked") + chunks)
    form = b'--x\r\nContent-Disposition: form-data; name="picture"; filename="x.png"\r\n\r\n' + colour + b"\r\n--x--\r\n"
    put("requests", "form", request("POST /v1/predict", form, "Content-Type: multipart/form-data; boundary=x"))
    put("requests", "broken", request("POST /v1/predict", colour[: len(colour) // 2]))


for write in (pictures, features, lists, omniglot, packs, pickles, weights, fonts, runs, requests):
    write()
