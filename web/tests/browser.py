"""A headless Chromium by the W3C's WebDriver protocol, and the server of a folder."""

import contextlib
import functools
import http.server
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

# Seconds that something may take to appear.
PATIENCE = 120
# The key under which the protocol names elements.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def send(url, body, method="POST"):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error.read().decode()}") from None


class Browser:
    """A browser that downloads into a folder; `flags` are those of its JavaScript engine, `switches` its own."""

    def __init__(self, downloads, flags="", switches=()):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        port = next(filter(None, (re.search(r"started successfully on port (\d+)", line) for line in self.driver.stdout)))
        words = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"] + [f"--js-flags={flags}"] * bool(flags)
        words += switches
        options = {"args": words, "prefs": {"download.default_directory": str(downloads)}}
        session = f"http://127.0.0.1:{port[1]}/session"
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "unhandledPromptBehavior": "accept"}}}
        self.session = f"{session}/{send(session, wanted)['sessionId']}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            send(self.session, None, "DELETE")
        self.driver.kill()
        self.driver.wait()

    def command(self, path, body):
        return send(f"{self.session}/{path}", body)

    def open(self, url):
        self.command("url", {"url": url})

    def crash_graphics(self):
        """Ends the process that computes on the graphics processor."""
        self.command("goog/cdp/execute", {"cmd": "Browser.crashGpuProcess", "params": {}})

    def element(self, selector):
        return self.command("element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.command(f"element/{self.element(selector)}/click", {})

    def write(self, selector, text):
        self.command(f"element/{self.element(selector)}/value", {"text": text})

    def choose(self, selector, *files):
        self.write(f"{selector} input[type=file]", "\n".join(map(str, files)))

    def run(self, script, *arguments):
        return self.command("execute/sync", {"script": script, "args": arguments})

    def value(self, expression):
        return self.run(f"return {expression};")

    def until(self, expression):
        """Waits until an expression is true, and returns the seconds that it took."""
        begin = time.monotonic()
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() - begin > PATIENCE:
                raise AssertionError(f"not after {PATIENCE} s: {expression}\n{self.value('document.body.innerText')}")
            time.sleep(0.02)
        return time.monotonic() - begin


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append(self.path)
        super().do_GET()

    def do_POST(self):
        self.server.requests.append(f"POST {self.path}")
        self.send_error(405)


class Server:
    """A static server of a folder, which knows what was asked of it."""

    def __init__(self, folder):
        handler = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.requests = self.requests = []
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
