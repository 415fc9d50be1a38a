"""Opens reports in a headless Chromium and checks what a reader does with them. Speaks the WebDriver protocol with nothing but the standard library."""

import base64
import json
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ENTER = "\ue007"
FLAGS = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync"]


class Browser:
    """A Chromium with a profile of its own, for as long as the `with` block lasts."""

    def __init__(self, profile):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = ""
        options = {"args": [f"--{flag}" for flag in FLAGS + [f"user-data-dir={profile}", "window-size=1200,1000"]]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = "/" + self.until_ready(lambda: self.call("POST", "", {"capabilities": {"alwaysMatch": wanted}}))["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(10)

    @staticmethod
    def until_ready(attempt):
        for _ in range(100):
            try:
                return attempt()
            except ConnectionError:
                time.sleep(0.1)
            except urllib.error.URLError as error:
                if not isinstance(error.reason, ConnectionError):
                    raise
                time.sleep(0.1)
        raise TimeoutError("chromedriver does not answer")

    def call(self, method, path, body=None):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        address = f"http://127.0.0.1:{self.port}/session{self.session}{path}"
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()}") from error

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def script(self, text, *arguments):
        return self.call("POST", "/execute/sync", {"script": text, "args": list(arguments)})

    def logged(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def elements(self, selector):
        found = self.call("POST", "/elements", {"using": "css selector", "value": selector})
        return [next(iter(element.values())) for element in found]

    def open(self, path):
        self.call("POST", "/url", {"url": path.resolve().as_uri()})

    def width(self, pixels):
        self.devtools("Emulation.setDeviceMetricsOverride", width=pixels, height=800, deviceScaleFactor=1, mobile=pixels < 500)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1}
        data = self.devtools("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


MISSING = "\u2013"
FIRST_TABLE = """
    const table = document.querySelector("table.sortable");
    const column = arguments[0];
    return [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim());
"""
SORT_STATES = """
    return [...document.querySelector("table.sortable").tHead.rows[0].cells].map((heading) => heading.getAttribute("aria-sort"));
"""
LUMINANCE = """
    const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
"""


def check(condition, sentence):
    if not condition:
        raise SystemExit(f"error: {sentence}")


def check_sorting(browser):
    values = lambda column: browser.script(FIRST_TABLE, column)
    states = lambda: browser.script(SORT_STATES)
    headings = browser.elements("#part-1-scores thead button")
    check(states().count(None) == len(states()), f"the table is marked as sorted before anyone sorted it: {states()}")
    check(len(headings) == len(states()), f"{len(headings)} of {len(states())} headings are buttons")
    order = values(0)
    check(len(order) >= 2, f"the table has the rows {order}")
    # A click on the first heading sorts names; another turns them round.
    for direction, expected in [("ascending", sorted(order, key=str.casefold)), ("descending", sorted(order, key=str.casefold, reverse=True))]:
        browser.call("POST", f"/element/{headings[0]}/click")
        check(values(0) == expected, f"a click sorts names to {values(0)}, not {expected}")
        check(states()[0] == direction and states().count(None) == len(states()) - 1, f"after sorting by names: {states()}")
    # The keyboard does the same with numbers: parameters are told apart by value and not by letters.
    column = browser.script("return [...document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells].findIndex((c) => c.textContent == 'parameters')")
    check(column > 0, "the table has no column of parameters")
    browser.script("document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells[arguments[0]].firstElementChild.focus()", column)
    for direction in ["ascending", "descending"]:
        typed = [{"type": "keyDown", "value": ENTER}, {"type": "keyUp", "value": ENTER}]
        browser.call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": typed}]})
        found = values(column)
        numbers = [float(value) for value in found if value != MISSING]
        # A row without parameters, such as that of a trivial baseline, comes last in both directions.
        expected = sorted(numbers, reverse=direction == "descending")
        check(found[: len(numbers)] == [value for value in found if value != MISSING] and numbers == expected, f"Enter sorts parameters to {found}")
        check(states()[column] == direction and states()[0] is None, f"after Enter: {states()}")
    said = browser.script("return document.querySelector('[role=status]').textContent")
    check("parameters, descending" in said, f"a screen reader is told {said!r}")


def check_page(browser, path, pictures):
    text = path.read_text()
    outside = re.findall(r"""(?:src|href|action)=["'](?!data:|\#)[^"']*|url\((?!#|["']?data:)[^)]*|@import[^;]*""", text)
    check(not outside, f"{path} points to {outside[:3]}")
    browser.scheme("light")
    browser.width(1200)
    browser.logged("browser"), browser.logged("performance")
    browser.open(path)
    parts = browser.script("return [...document.querySelectorAll('h2, h3')].map((heading) => heading.textContent)")
    for part in ["Seeds", "Learning curves", "Cost against quality", "Metrics", "Data", "How it was measured"]:
        check(part in parts, f"{path} has no part {part!r}: {parts}")
    unnamed = browser.script(
        "return [...document.querySelectorAll('svg[role=img], img, table')].filter((it) => !(it.ariaLabel || it.alt || it.caption?.textContent)).length")
    check(unnamed == 0, f"{unnamed} pictures or tables of {path} have no name for a screen reader")
    broken = browser.script("return [...document.images].filter((image) => !(image.complete && image.naturalWidth)).length")
    check(broken == 0, f"{broken} pictures of {path} do not show")
    duplicates = browser.script(
        "const ids = [...document.querySelectorAll('[id]')].map((it) => it.id); return ids.filter((id, at) => ids.indexOf(id) !== at)")
    check(not duplicates, f"{path} has the ids {duplicates} twice")
    browser.picture(pictures / f"{path.parent.name}-light.png")
    check_sorting(browser)
    light = browser.script(LUMINANCE)
    browser.scheme("dark")
    dark = browser.script(LUMINANCE)
    check(light > 200 and dark < 60, f"the background has a luminance of {light} in a light scheme and {dark} in a dark one")
    browser.picture(pictures / f"{path.parent.name}-dark.png")
    browser.script("for (const details of document.querySelectorAll('details')) details.open = true")
    browser.scheme("light")
    for width in [390, 768]:
        browser.width(width)
        browser.picture(pictures / f"{path.parent.name}-{width}.png")
        scrolled = browser.script("return [document.documentElement.scrollWidth, innerWidth]")
        check(scrolled[0] <= width and scrolled[1] <= width, f"{path} is {scrolled[0]} pixels wide on a screen of {width}")
    requests = [json.loads(entry["message"])["message"] for entry in browser.logged("performance")]
    asked = [event["params"]["request"]["url"] for event in requests if event["method"] == "Network.requestWillBeSent"]
    outside = [url for url in asked if not url.startswith("data:") and url != path.resolve().as_uri()]
    check(path.resolve().as_uri() in asked, "the browser tells nothing of its requests")
    check(not outside, f"{path} asks for {outside}")
    errors = [entry["message"] for entry in browser.logged("browser")]
    check(not errors, f"the console says {errors}")


def main():
    pictures = pathlib.Path(sys.argv[1])
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, Browser(profile) as browser:
        for path in map(pathlib.Path, sys.argv[2:]):
            check_page(browser, path, pictures)
            print(f"{path}: sorts, follows the colour scheme, fits a phone, asks for nothing, and the console is silent.")


main()
