#!/usr/bin/env python3
"""Drives a headless Chromium for tests: a command a line in, a line of JSON out.

    open URL          goes there and waits for the page to have loaded
    eval EXPRESSION   its value; a promise is waited for
    key NAME          presses a key, like ArrowRight or Tab
    size W H          the window's size in CSS pixels
    media NAME=VALUE  prefers-color-scheme=dark, prefers-reduced-motion=reduce
    shot FILE         the whole page as PNG
    errors            what the console and failed requests complained of so far
    fetched           the addresses of everything that was asked for so far

It speaks the DevTools protocol over the pipe that --remote-debugging-pipe
opens: descriptor 3 is the browser's to read, 4 its to write, and a message is
JSON with a NUL behind it. A failed command's answer is {"error": ...}.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_S = 100


class Browser:
    """One browser with one page. Not thread-safe, except for its reader
    thread."""

    def __init__(self, program: str, profile: str):
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (to_read, to_write), "sh",
             program, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--mute-audio", "--hide-scrollbars",
             "--user-data-dir=" + profile, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._answers: dict[int, dict] = {}
        self._changed = threading.Condition()
        self._ended = False
        self._loaded = 0
        self.errors: list[str] = []
        self.fetched: list[str] = []
        threading.Thread(target=self._hear, daemon=True).start()
        self._session = ""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(domain + ".enable")

    def _hear(self) -> None:
        rest = b""
        while True:
            try:
                piece = os.read(self._read, 1 << 16)
            except OSError:
                piece = b""
            *messages, rest = (rest + piece).split(b"\0")
            with self._changed:
                for message in messages:
                    self._take(json.loads(message))
                self._ended = not piece
                self._changed.notify_all()
            if not piece:
                return

    def _take(self, message: dict) -> None:
        if "id" in message:
            self._answers[message["id"]] = message
            return
        what = message["params"]
        method = message["method"]
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Network.requestWillBeSent":
            self.fetched.append(what["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(what["exceptionDetails"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.errors.append(what["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning"):
            self.errors.append(json.dumps(what["args"]))

    def _wait(self, there) -> None:
        if not self._changed.wait_for(lambda: there() or self._ended, PATIENCE_S):
            raise RuntimeError("no answer from the browser")
        if not there():
            raise RuntimeError("the browser ended")

    def _call(self, method: str, **params) -> dict:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._changed:
            self._wait(lambda: number in self._answers)
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def open(self, url: str) -> bool:
        before = self._loaded
        self._call("Page.navigate", url=url)
        with self._changed:
            self._wait(lambda: self._loaded > before)
        return True

    def eval(self, expression: str):
        said = self._call("Runtime.evaluate", expression=expression,
                          returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"]["exception"]["description"])
        return said["result"].get("value")

    def key(self, name: str) -> bool:
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                       windowsVirtualKeyCode={"Tab": 9}.get(name, 0))
        return True

    def size(self, width: str, height: str) -> bool:
        self._call("Emulation.setDeviceMetricsOverride", width=int(width),
                   height=int(height), deviceScaleFactor=1, mobile=False)
        return True

    def media(self, *features: str) -> bool:
        self._call("Emulation.setEmulatedMedia", features=[
            dict(zip(("name", "value"), feature.split("="))) for feature in features])
        return True

    def shot(self, path: str) -> bool:
        picture = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))
        return True

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def carry_out(browser: Browser, line: str):
    """Runs the command on this line and returns its result."""
    verb, _, rest = line.partition(" ")
    if verb in ("errors", "fetched"):
        return getattr(browser, verb)
    if verb in ("open", "eval", "key", "shot"):
        return getattr(browser, verb)(rest)
    if verb in ("size", "media"):
        return getattr(browser, verb)(*rest.split())
    raise RuntimeError("unknown command " + verb)


def remove(folder: str) -> None:
    """Removes the profile, retrying because a killed browser's children may
    still write into it."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


def main() -> int:
    program = shutil.which("chromium")
    if program is None:
        print("browser.py: chromium is missing; run scripts/setup", file=sys.stderr)
        return 1
    profile = tempfile.mkdtemp(prefix="fineserve-browser-")
    browser = Browser(program, profile)
    sys.stdout.reconfigure(encoding="utf-8")
    print("ready", flush=True)
    try:
        for line in sys.stdin:
            try:
                print(json.dumps(carry_out(browser, line.strip()),
                                 ensure_ascii=False), flush=True)
            except RuntimeError as e:
                print(json.dumps({"error": str(e)}), flush=True)
    finally:
        browser.end()
        remove(profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
