"""The page in a headless Chromium beside the command.

    page.py BINARY PAGE WEIGHTS

BINARY is the command `fewshot`, PAGE the folder that web/build.sh makes, WEIGHTS the published weights of EfficientNet-Lite0. WebGPU
runs on SwiftShader, a graphics processor in software; without one in Chromium, its tests are not run, and that is said.
"""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

from browser import Browser, Server

# Of probabilities, with the rounding to four digits in what `predict` prints.
MOST = 1e-4
SECONDS = 1.5
MEBIBYTES = 8
# Of WebGPU in software.
SOFTWARE_SECONDS = 60
MOST_CLASSES = 9
NETWORK = "efficientnet-lite0"
# Pages of 64 KiB in which the network fits, and a picture of 100 million pixels does not.
PAGES = 4000
CORPUS = pathlib.Path(__file__).parents[2] / "fuzz" / "corpus" / "pictures"
FORMATS = ["baseline.jpg", "progressive.jpg", "turned.jpg", "four_inks.jpg", "lossy.webp", "transparent.png", "16_bit.png", "colour.bmp",
           "one.gif", "another_format.tif"]
METHODS = ["prototypes", "matching", "meta-baseline", "logistic", "meta-opt-net", "finetune"]
COLOURS = {"amber": (190, 120, 40), "plum": (120, 40, 110), "teal": (40, 110, 120)}
VERDICT = "document.querySelector('#answers .verdict').textContent"
PROBLEM = "document.querySelector('#problem').textContent"
QUIET = "document.querySelector('#progress').hidden"
COMPUTE = "document.querySelector('#compute').textContent"
ON_GPU = "Computes on the graphics processor by WebGPU ("
ON_CPU = "Computes on the processor: "
SOFTWARE_GPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]


def png(width, height, pixel):
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height))
    return packed(width, height, zlib.compress(rows))


def packed(width, height, data):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def wall(side):
    """A large picture of one colour in a small file."""
    packer = zlib.compressobj(1)
    row = bytes(1 + 3 * side)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    return packed(side, side, data)


def draw(folder):
    """A folder of pictures for each class."""
    for kind, (name, colour) in enumerate(COLOURS.items()):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            def pixel(x, y):
                speck = (x * (7 + kind) + y * 13 + x * y // (5 + number) + number * 29) % 61
                return [min(255, value + speck) for value in colour]

            (folder / name / f"{number}.png").write_bytes(png(300 + 20 * number, 280 - 10 * kind, pixel))


def header(model):
    """The header of a model's file as JSON, and the rest."""
    length = int.from_bytes(model[:8], "little")
    return json.loads(model[8:8 + length]), model[8 + length:]


def of_another_network(model):
    """The same model as one of another network."""
    found, rest = header(model)
    found["__metadata__"]["fewshot_adapted"] = found["__metadata__"]["fewshot_adapted"].replace(NETWORK, "resnet18")
    text = json.dumps(found).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + rest


class Command:
    def __init__(self, binary, folder, weights):
        self.binary, self.folder, self.weights = binary, folder, weights

    def run(self, *words):
        done = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True, cwd=self.folder)
        assert done.returncode == 0, f"fewshot {' '.join(map(str, words))}: {done.stderr}"
        return done.stdout

    def predict(self, model, pictures, weights=None):
        weights = ["--weights", self.weights] if weights is None else weights
        lines = self.run("predict", model, *weights, "--top", MOST_CLASSES, "--json", *pictures).splitlines()
        return [{of["class"]: of["probability"] for of in json.loads(line)["classes"]} for line in lines]


class Page:
    def __init__(self, browser, server, query=""):
        self.browser, self.server, self.query = browser, server, query

    def begin(self):
        self.browser.open(self.server.url + self.query)
        return self.browser.until("document.body.dataset.ready")

    def compute(self):
        return self.browser.value(COMPUTE)

    def load(self, weights):
        self.browser.choose("#weights", weights)
        return self.browser.until(f"document.body.dataset.network === '{NETWORK}'")

    def teach(self, name, files):
        self.browser.write("#name", name)
        self.browser.choose("#new .drop", *files)
        self.browser.until(f"document.querySelectorAll('[data-class=\"{name}\"] .examples img').length === {len(files)} && {QUIET}")

    def open(self, model):
        self.browser.choose("#open", model)
        self.browser.until(f"document.querySelector('#file').textContent === '{model.name}' && {QUIET}")

    def predict(self, pictures):
        """The probabilities of classes for each picture, and the seconds that each took."""
        self.browser.run("document.querySelector('#answers').replaceChildren();")
        self.browser.choose("#unnamed", *pictures)
        self.browser.until(f"document.querySelectorAll('#answers > li').length === {len(pictures)} && {QUIET}")
        answers = self.browser.value("[...document.querySelectorAll('#answers > li')].reverse().map((li) => "
                                     "[li.dataset.classes ?? null, Number(li.dataset.milliseconds) / 1000, li.innerText])")
        assert all(classes for classes, _, _ in answers), answers
        return [{of["class"]: of["probability"] for of in json.loads(classes)} for classes, _, _ in answers], \
            [seconds for _, seconds, _ in answers]

    def refuses(self, place, file, words):
        self.browser.choose(place, file)
        self.browser.until(f"{PROBLEM}.includes({json.dumps(words)}) && {QUIET}")
        assert "\n" not in self.browser.value(PROBLEM), self.browser.value(PROBLEM)

    def download(self, folder, name):
        (folder / name).unlink(missing_ok=True)
        self.browser.click("#download")
        for _ in range(500):
            if (folder / name).exists():
                return folder / name
            self.browser.run("return new Promise((done) => setTimeout(done, 20));")
        raise AssertionError(f"no {name} was downloaded")


def same(page, command):
    off = max(abs(one[name] - other[name]) for one, other in zip(page, command, strict=True) for name in COLOURS)
    assert off < MOST, f"probabilities differ by {off}"
    return off


def answers_are_those_of_the_command(page, command, folder, pictures):
    classes = {name: sorted((folder / "support" / name).iterdir()) for name in COLOURS}
    started = page.begin()
    on_gpu = page.compute().startswith(ON_GPU)
    page.browser.choose("#unnamed", pictures[0])
    page.browser.until(f"{VERDICT} === 'the model has no classes: add pictures of two classes or more'")
    loaded = page.load(command.weights)
    for name, files in classes.items():
        page.teach(name, files)
    answers, seconds = page.predict(pictures)
    command.run("adapt", "--backbone", f"{NETWORK}:{command.weights}", "--support", folder / "support", "--out", "command.fewshot")
    expected = command.predict("command.fewshot", pictures)
    off = same(answers, expected)
    assert max(seconds) < (SOFTWARE_SECONDS if on_gpu else SECONDS), seconds
    print(f"started in {started:.2f} s, weights loaded in {loaded:.2f} s, a picture in {sum(seconds) / len(seconds):.3f} s "
          f"(at most {max(seconds):.3f} s), probabilities within {off:.1e}")
    taken = page.download(folder, "model.fewshot")
    same(command.predict(taken, pictures), expected)
    found, own = (header(file.read_bytes())[0] for file in (taken, folder / "command.fewshot"))
    assert found["__metadata__"]["fewshot_digests"] == own["__metadata__"]["fewshot_digests"]
    assert found["__metadata__"]["fewshot_thumbnails"] == own["__metadata__"]["fewshot_thumbnails"]
    page.begin()
    # Its weights are asked for, and then it is there.
    page.refuses("#open", folder / "command.fewshot", f"the model needs the weights of {NETWORK} with the sha256 ")
    page.browser.choose("#weights", command.weights)
    page.browser.until(f"document.querySelector('#file').textContent === 'command.fewshot' && {QUIET}")
    same(page.predict(pictures)[0], expected)


def models_of_other_methods_open(page, command, folder, pictures):
    support = ["--support", folder / "support", "--out", "other.fewshot"]
    for method in METHODS:
        command.run("adapt", "--backbone", f"{NETWORK}:{command.weights}", "--method", method, *support)
        page.open(folder / "other.fewshot")
        same(page.predict(pictures[:3])[0], command.predict("other.fewshot", pictures[:3]))


def a_model_with_its_network_opens(page, command, folder, pictures):
    # A network that was trained here is in the file, and needs no weights; a page without a network opens it.
    if not (folder / "run").exists():
        command.run("train", "--steps", 2, "--eval-episodes", 2, "--out", "run")
    command.run("adapt", "run", "--support", folder / "support", "--out", "other.fewshot")
    page.begin()
    page.open(folder / "other.fewshot")
    page.teach("large", [pictures[0]])
    page.browser.run("window.confirm = () => true;")
    page.browser.click('[data-class="large"] .remove')
    page.browser.until(f"document.querySelectorAll('#classes > li').length === {len(COLOURS)} && {QUIET}")
    same(page.predict(pictures[:3])[0], command.predict("other.fewshot", pictures[:3], []))
    page.load(command.weights)
    page.open(folder / "command.fewshot")


def bad_input_changes_nothing(page, command, folder, pictures):
    before, _ = page.predict(pictures[:2])
    noise, text = folder / "weights.pth", folder / "notes.png"
    noise.write_bytes(b"no weights")
    text.write_bytes(b"no picture")
    other = folder / "other.fewshot"
    other.write_bytes(of_another_network((folder / "command.fewshot").read_bytes()))
    page.refuses("#weights", noise, "cannot read weights from weights.pth: it is neither a safetensors file nor one of torch.save")
    page.refuses("#open", text, "notes.png is no adapted model")
    page.refuses("#open", other, "the model needs the weights of resnet18 with the sha256 ")
    page.refuses("#weights", command.weights, f"{pathlib.Path(command.weights).name} is a published file of {NETWORK}, not of resnet18")
    page.browser.run("const choice = document.querySelector('#network'); choice.value = arguments[0]; choice.onchange();", NETWORK)
    page.browser.write("#name", "amber")
    page.refuses("#new .drop", text, "notes.png: ")
    page.browser.until("document.querySelector('#name').value === ''")
    page.browser.run("document.querySelector('#answers').replaceChildren();")
    page.browser.choose("#unnamed", text)
    page.browser.until(f"document.querySelector('#answers') && {QUIET} && {VERDICT}.includes('notes.png')")
    page.refuses("#new .drop", pictures[0], "Name the class first.")
    assert page.predict(pictures[:2])[0] == before


def without_a_server_the_page_is_there(page, command, folder, pictures):
    before, _ = page.predict(pictures[:1])
    page.browser.until("navigator.serviceWorker.controller !== null")
    assert all(path.split("?")[0].lstrip("/") in FILES for path in page.server.requests), page.server.requests
    page.server.stop()
    page.begin()
    page.load(command.weights)
    page.open(folder / "command.fewshot")
    assert page.predict(pictures[:1])[0] == before


def without_memory_nothing_is_lost(page, command, folder, pictures):
    large = folder / "large.png"
    large.write_bytes(wall(9_999))
    page.begin()
    page.load(command.weights)
    page.open(folder / "command.fewshot")
    page.teach("large", [pictures[0]])
    before, _ = page.predict(pictures[:2])
    page.browser.run("document.querySelector('#answers').replaceChildren();")
    page.browser.choose("#unnamed", large)
    page.browser.until(f"{VERDICT}.includes('the browser gives no more memory than the ') && {QUIET}")
    page.browser.write("#name", "large")
    page.refuses("#new .drop", large, "large.png: the browser gives no more memory than the ")
    after, _ = page.predict(pictures[:2])
    assert all(abs(one[name] - other[name]) < 1e-9 for one, other in zip(before, after, strict=True) for name in one), (before, after)


def altered(built, folder, file, change):
    """A copy of the page in which a file has other content."""
    copy = folder / f"altered-{file}"
    shutil.copytree(built, copy)
    (copy / file).write_bytes(change((copy / file).read_bytes()))
    return Server(copy)


def computes_on_the_processor(page, reason):
    page.browser.until(f"{COMPUTE}.startsWith({json.dumps(ON_CPU + 'WebGPU failed: ' + reason)})")
    print(page.compute())


def a_lost_graphics_processor_loses_nothing(page, command, folder, pictures):
    page.begin()
    page.load(command.weights)
    page.open(folder / "command.fewshot")
    page.teach("large", [pictures[0]])
    before, _ = page.predict(pictures[:2])
    assert page.compute().startswith(ON_GPU)
    page.browser.crash_graphics()
    computes_on_the_processor(page, "the graphics processor ")
    after, _ = page.predict(pictures[:2])
    same(after, before)
    page.teach("small", [pictures[1]])
    same(page.predict(pictures[:2])[0], command.predict(page.download(folder, "command.fewshot"), pictures[:2]))


def a_graphics_processor_that_does_not_start_is_left(page, command, folder, pictures):
    page.begin()
    computes_on_the_processor(page, "")
    page.load(command.weights)
    page.open(folder / "model.fewshot")
    same(page.predict(pictures[:2])[0], command.predict("model.fewshot", pictures[:2]))


def what_a_graphics_processor_refuses_is_no_answer(page, command, folder, pictures):
    page.begin()
    assert page.compute().startswith(ON_GPU)
    page.load(command.weights)
    page.open(folder / "model.fewshot")
    same(page.predict(pictures[:2])[0], command.predict("model.fewshot", pictures[:2]))
    computes_on_the_processor(page, "")


# Kernels of a language that no graphics processor has.
NO_KERNELS = b"GPUDevice.prototype.createShaderModule = ((original) => function () {\n" \
    b"  return original.call(this, { code: 'none' });\n})(GPUDevice.prototype.createShaderModule);\n"


def on_the_graphics_processor(folder, built, command, pictures):
    """The tests of WebGPU, or the reason why they are not run."""
    with Browser(folder, switches=SOFTWARE_GPU) as browser:
        def run(test, server):
            test(Page(browser, server, "?compute=gpu"), command, folder, pictures)
            print(f"on the graphics processor, {test.__name__}: ok", flush=True)
            server.stop()

        server = Server(built)
        page = Page(browser, server, "?compute=gpu")
        page.begin()
        if not page.compute().startswith(ON_GPU):
            server.stop()
            return page.compute()
        print(page.compute())
        for test in answers_are_those_of_the_command, a_model_with_its_network_opens:
            # In software, a picture takes seconds.
            test(page, command, folder, pictures[:3])
            assert page.compute().startswith(ON_GPU), page.compute()
            print(f"on the graphics processor, {test.__name__}: ok", flush=True)
        page.query = "?compute=cpu"
        page.begin()
        assert page.compute() == f"{ON_CPU}the address asks for it", page.compute()
        page.query = ""
        page.begin()
        assert page.compute() == f"{ON_CPU}WebGPU has only software here", page.compute()
        server.stop()
        cut = altered(built, folder, "fewshot_web_gpu_bg.wasm", lambda content: content[:len(content) // 2])
        run(a_graphics_processor_that_does_not_start_is_left, cut)
        run(what_a_graphics_processor_refuses_is_no_answer, altered(built, folder, "gpu.js", lambda content: NO_KERNELS + content))
        # The last one, as it leaves a browser without a graphics processor.
        run(a_lost_graphics_processor_loses_nothing, Server(built))
    return None


FILES = ["", "favicon.ico"]


def main(binary, built, weights):
    built = pathlib.Path(built)
    FILES.extend(file.name for file in built.iterdir())
    for program in built.glob("*.wasm"):
        size = program.stat().st_size
        assert size <= MEBIBYTES << 20, f"{program.name}: {size} bytes of WebAssembly"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        draw(folder / "support")
        command = Command(str(pathlib.Path(binary).resolve()), folder, str(pathlib.Path(weights).resolve()))
        pictures = sorted((folder / "support").glob("*/2.png")) + [CORPUS / name for name in FORMATS]
        tests = [answers_are_those_of_the_command, models_of_other_methods_open, a_model_with_its_network_opens,
                 bad_input_changes_nothing, without_a_server_the_page_is_there]
        with Browser(folder) as browser:
            page = Page(browser, Server(built))
            for test in tests:
                test(page, command, folder, pictures)
                print(f"{test.__name__}: ok", flush=True)
        with Browser(folder, f"--wasm-max-mem-pages={PAGES}") as browser:
            page = Page(browser, Server(built))
            without_memory_nothing_is_lost(page, command, folder, pictures)
            print(f"{without_memory_nothing_is_lost.__name__}: ok", flush=True)
            page.server.stop()
        left_out = on_the_graphics_processor(folder, built, command, pictures)
        if left_out:
            print(f"not run: tests of WebGPU: {left_out}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
