"""A small client of a real Chromium, through the DevTools protocol over a pipe.

The browser reads commands from file descriptor 3 and writes answers to 4: JSON, each message ended
by a zero byte. No port is opened, and nothing but the standard library is needed.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

KEYS = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "PageUp": 33,
    "PageDown": 34,
    "Tab": 9,
    " ": 32,
}


def find_chromium():
    """The browser's path, or None."""
    names = (os.environ.get("CHROME"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Chromium:
    """A headless browser; use it in a `with` statement."""

    def __init__(self, path, seconds=60):
        self.path, self.seconds = path, seconds
        self.number, self.buffer, self.events = 0, b"", []

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        # A shell puts the pipes at 3 and 4: preexec_fn must not be used beside threads.
        script = f'exec "$0" "$@" 3</dev/fd/{to_browser} 4>/dev/fd/{from_browser}'
        options = (
            *("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update"),
            f"--user-data-dir={self.folder}",
            "about:blank",
        )
        self.process = subprocess.Popen(
            ["sh", "-c", script, self.path, *options],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self.send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, session=None, **parameters):
        """Send a command and wait for its answer; events that come before are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.seconds
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self, deadline):
        """The next message; events are kept too."""
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.into, 1 << 16)
            if not part:
                raise RuntimeError("the browser has gone")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, file, *, width=1280, height=900, dark=False):
        """Open a file from disk in a new tab."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.send("Page.navigate", url=Path(file).resolve().as_uri())
        page.wait("document.readyState === 'complete'")
        return page


class Page:
    """One tab."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def resize(self, width, height):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, script):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def wait(self, condition, seconds=20):
        """Wait until an expression holds."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {condition}")
            time.sleep(0.02)

    def key(self, name, times=1):
        """Press a key, as a keyboard does."""
        event = {"key": name, "code": name, "windowsVirtualKeyCode": KEYS[name]}
        for _ in range(times):
            self.send("Input.dispatchKeyEvent", type="rawKeyDown", **event)
            self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def mouse(self, kind, x, y):
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def box(self, selector):
        """Left, top, width and height of an element, scrolled into view."""
        return self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.left, b.top, b.width, b.height]; }})"
            f"(document.querySelector({json.dumps(selector)}))"
        )

    def click(self, selector):
        left, top, width, height = self.box(selector)
        x, y = left + width / 2, top + height / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def drag(self, selector, start, end):
        """Drag along an element, from one share of its width to another."""
        left, top, width, height = self.box(selector)
        y = top + height / 2
        self.mouse("mousePressed", left + start * width, y)
        for step in range(1, 9):
            self.mouse("mouseMoved", left + (start + (end - start) * step / 8) * width, y)
        self.mouse("mouseReleased", left + end * width, y)

    def screenshot(self, path, whole=True):
        """A picture of the page."""
        answer = self.send(
            "Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole)
        )
        Path(path).write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "x": 0, "y": 0, "scale": 1}}

    def problems(self):
        """Errors, warnings, dialogs, and requests that left the page."""
        self.evaluate("1")  # what was under way has arrived after this
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, content = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(f"error: {content['exceptionDetails'].get('text')}")
            elif method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning"):
                found.append(f"console: {content['args']}")
            elif method == "Log.entryAdded":
                found.append(f"log: {content['entry']['text']}")
            elif method == "Page.javascriptDialogOpening":
                found.append(f"dialog: {content['message']}")
            elif method == "Network.requestWillBeSent":
                url = content["request"]["url"]
                if not url.startswith(("data:", "file:", "blob:")):
                    found.append(f"request: {url}")
        return found

    def requests(self):
        """Addresses of everything that was loaded but data inside the page."""
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("sessionId") == self.session
            and event["method"] == "Network.requestWillBeSent"
            and not event["params"]["request"]["url"].startswith("data:")
        ]
