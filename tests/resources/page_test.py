"""The web page that `export --to html` writes, in a headless Chromium: what it draws and says against the traces it was made of.

    page_test.py PIPEWRIGHT      exit status 77: there is no Chromium (Debian: chromium-headless-shell)
"""

import base64
import csv
import fcntl
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PIPEWRIGHT = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
CHROMIUM = next((found for name in ("chromium-headless-shell", "chromium", "google-chrome") if (found := shutil.which(name))), None)
WAITS = ("WAIT_F", "WAIT_B")
CTRL = 2  # of modifiers in the protocol
PATIENCE = 60  # seconds


class Browser:
    """A headless Chromium, driven over its debugging pipe (file descriptors 3 and 4)."""

    def __init__(self, folder):
        ours = os.pipe(), os.pipe()
        reads, writes = fcntl.fcntl(ours[0][0], fcntl.F_DUPFD, 50), fcntl.fcntl(ours[1][1], fcntl.F_DUPFD, 50)

        def descriptors():
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self.process = subprocess.Popen([CHROMIUM, *flags, "about:blank"], preexec_fn=descriptors, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for descriptor in (reads, writes, ours[0][0], ours[1][1]):
            os.close(descriptor)
        self.to, self.back = ours[0][1], ours[1][0]
        self.count, self.buffer, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                part = os.read(self.back, 1 << 20)
                if not part:
                    raise RuntimeError(f"{CHROMIUM} ended")
                self.buffer += part
            one, self.buffer = self.buffer.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def js(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {json.dumps(answer['exceptionDetails'])[:400]}")
        return answer["result"].get("value")

    def open(self, file, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=file.as_uri())
        deadline = time.monotonic() + PATIENCE
        while self.js("document.readyState === 'complete' && location.protocol === 'file:' && !!window.pipewright") is not True:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{file} does not load")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def close(self):
        self.process.kill()
        self.process.wait()


def call(*words):
    return subprocess.run([PIPEWRIGHT, *map(str, words)], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


def spans_of(text):
    return [{key: value if key == "kind" else int(value) for key, value in row.items()} for row in csv.DictReader(text.splitlines())]


def warped(spans, seed):
    """The step as if measured: a random clock that only goes forward, so that order and overlaps stay."""
    chance, clock, now, before = random.Random(seed), {}, 0, 0
    for moment in sorted({span[key] for span in spans for key in ("start_ns", "end_ns")}):
        now += int((moment - before) * chance.uniform(0.8, 1.7))
        clock[moment], before = now, moment
    return [{**span, "start_ns": clock[span["start_ns"]], "end_ns": clock[span["end_ns"]]} for span in spans]


def duration(nanoseconds):
    """As formatDuration: three significant digits."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= size * 0.9995:
            value = nanoseconds / size
            return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
    return f"{nanoseconds} ns"


@unittest.skipUnless(CHROMIUM, "there is no Chromium")
class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pipewright-page-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.page, cls.lanes = cls.make("run", 4, 8, "zb-h1")
        cls.browser = Browser(cls.folder / "browser")
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def make(cls, name, ranks, microbatches, schedule):
        """A page of a plan and a step, and the spans of both."""
        plan, measured, page = (cls.folder / f"{name}{ending}" for ending in (".json", ".csv", ".html"))
        call("plan", SOURCE / "resources/models/gpt_small.pt2", "--ranks", ranks, "--microbatches", microbatches, "--microbatch", 1,
             "--schedule", schedule, "--cluster", "cpu-workstation", "--out", plan)
        text = call("export", plan, "--to", "csv")
        predicted = spans_of(text)
        rows = warped(predicted, 7)
        measured.write_text(text.splitlines()[0] + "\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
        call("export", plan, "--trace", measured, "--to", "html", "--out", page)
        return page, [predicted, rows]

    def load(self, width=1024, height=700, dark=False):
        self.browser.open(self.page, width, height, dark)

    def place(self, lane, span):
        """Where the middle of a block is, in the window."""
        return self.browser.js(
            "(() => { const box = document.querySelector('#view canvas').getBoundingClientRect(), p = pipewright;"
            f"return [box.left + (Math.max(p.xOf({span['start_ns']}), p.xOf(p.shown[0])) + Math.min(p.xOf({span['end_ns']}), p.xOf(p.shown[1]))) / 2,"
            f"box.top + p.topOf({span['rank']}, {lane}) + 5 - document.getElementById('view').scrollTop]; }})()")

    def tip(self):
        return self.browser.js("[...document.getElementById('tip').children].map((line) => line.textContent)")

    def test_draws_every_span_of_both_traces(self):
        for width, height in ((1024, 700), (1920, 1080)):
            self.load(width, height)
            drawn = self.browser.js("pipewright.painted.map((p) => [p.lane, p.rank, p.span.kind, p.span.stage, p.span.microbatch, p.span.start, p.span.end])")
            kinds = self.browser.js("data.kinds.map(([name]) => name)")
            found = sorted((lane, rank, kinds[kind], stage, microbatch, start, end) for lane, rank, kind, stage, microbatch, start, end in drawn)
            wanted = sorted((lane, s["rank"], s["kind"], s["stage"], s["microbatch"], s["start_ns"], s["end_ns"])
                            for lane, spans in enumerate(self.lanes) for s in spans if s["kind"] not in WAITS)
            self.assertEqual(found, wanted)

    def test_says_what_is_at_the_pointer(self):
        self.load()
        chance = random.Random(3)
        for lane, spans in enumerate(self.lanes):
            for span in chance.sample([s for s in spans if s["kind"] in "FBIW"], 12):
                self.browser.js(f"pipewright.show({span['start_ns'] - 1000}, {span['end_ns'] + 1000})")
                self.browser.mouse("mouseMoved", *self.place(lane, span))
                tip = self.tip()
                self.assertTrue(tip and tip[0].startswith(f"{span['stage']}{span['kind']}{span['microbatch']} "), tip)
                self.assertIn(f"rank {span['rank']}, ", tip[1])
                self.assertIn(f": {duration(span['end_ns'] - span['start_ns'])} at ", tip[1])
                same = next(s for s in self.lanes[1 - lane] if all(s[k] == span[k] for k in ("rank", "kind", "stage", "microbatch")))
                self.assertIn(duration(same["end_ns"] - same["start_ns"]), tip[2])
        self.browser.mouse("mouseMoved", 5, 5)
        self.assertEqual(self.tip(), [])

    def test_says_why_a_rank_waits(self):
        self.load()
        for lane, spans in enumerate(self.lanes):
            for rank in range(4):
                row = [s for s in spans if s["rank"] == rank and s["kind"] in ("F", "B", "I", "W", "OPTIMIZER")]
                gaps = [(b["start_ns"] - a["end_ns"], a, b) for a, b in zip(row, row[1:])]
                idle, before, after = max(gaps, key=lambda gap: gap[0])
                self.browser.js(f"pipewright.show({before['end_ns'] - 1000}, {after['start_ns'] + 1000})")
                self.browser.mouse("mouseMoved", *self.place(lane, {"rank": rank, "start_ns": before["end_ns"], "end_ns": after["start_ns"]}))
                tip = self.tip()
                self.assertTrue(tip and tip[0].startswith(f"bubble of rank {rank}, "), tip)
                self.assertIn(f": {duration(idle)} at ", tip[0])
                self.assertEqual(len(tip), 2, tip)
                # The prediction has the chain of causes, a measured step what it waited for.
                awaited = f"{after['stage']}{after['kind']}{after['microbatch']}"
                wanted = f"rank {rank} waits " if lane == 0 else f"of stage {after['stage']}, microbatch {after['microbatch']}"
                self.assertIn(wanted, tip[1], awaited)

    def test_zooms_at_the_pointer_pans_and_fits(self):
        self.load()
        whole = self.browser.js("pipewright.shown")
        self.assertEqual(whole, [0, max(s["end_ns"] for spans in self.lanes for s in spans)])
        x, y = self.place(0, self.lanes[0][5])
        at = "(() => { const [a, b] = pipewright.shown, c = document.querySelector('#view canvas').getBoundingClientRect();" \
             f"return a + ({x} - c.left - pipewright.xOf(a)) / (pipewright.xOf(b) - pipewright.xOf(a)) * (b - a); }})()"
        before = self.browser.js(at)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300, modifiers=CTRL)
        self.browser.js("new Promise((done) => requestAnimationFrame(done))")
        first, last = self.browser.js("pipewright.shown")
        self.assertAlmostEqual((last - first) / whole[1], 0.8**3, places=3)
        self.assertAlmostEqual(self.browser.js(at), before, delta=whole[1] / 500)
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
        self.browser.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
        moved = self.browser.js("pipewright.shown")
        self.assertGreater(moved[0], first)
        self.assertAlmostEqual(moved[1] - moved[0], last - first, delta=1)
        self.browser.js("document.getElementById('view').focus()")
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", key="f", code="KeyF", text="f")
        self.assertEqual(self.browser.js("pipewright.shown"), whole)

    def test_labels_and_tables_have_what_the_command_line_says(self):
        self.load()
        text = self.browser.js("document.body.innerText")
        for word in ("zb-h1", "Error by kind", "Error by stage", "Error by rank", "Stages", "Ranks, predicted"):
            self.assertIn(word, text)
        metrics = json.loads(call("simulate", self.page.with_suffix(".json"), "--json"))
        self.assertIn(duration(metrics["makespan_ns"]), text)
        self.assertIn(f"{100 * metrics['bubble_fraction']:.1f} %", text)

    def test_needs_no_network_and_follows_a_dark_page(self):
        base = {}
        for dark in (False, True):
            self.load(1920, 1080, dark)
            base[dark] = self.browser.js("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(base, {False: "rgb(240, 241, 244)", True: "rgb(37, 41, 48)"})
        for event in self.browser.events:
            self.assertNotEqual(event.get("method"), "Runtime.exceptionThrown", event)
            if event.get("method") == "Network.requestWillBeSent":
                self.assertTrue(event["params"]["request"]["url"].startswith(("file:", "about:")), event)

    def test_ten_thousand_actions_are_at_most_a_megabyte(self):
        page, lanes = self.make("large", 4, 1250, "1f1b")
        self.assertEqual(sum(s["kind"] in "FBIW" for s in lanes[0]), 10_000)
        self.assertLessEqual(page.stat().st_size, 1_000_000)
        self.browser.open(page, 1024, 700)
        self.assertEqual(self.browser.js("pipewright.lanes.map((l) => l.ranks.reduce((n, r) => n + r.compute.length + r.messages.length, 0))"),
                         [sum(s["kind"] not in WAITS for s in spans) for spans in lanes])

    def test_pictures(self):
        """With PW_PICTURES=FOLDER: how it looks."""
        folder = os.environ.get("PW_PICTURES")
        for width, height in ((1024, 700), (1920, 1080)) if folder else ():
            for dark in (False, True):
                self.load(width, height, dark)
                span = [s for s in self.lanes[1] if s["kind"] == "F"][3]
                self.browser.mouse("mouseMoved", *self.place(1, span))
                png = self.browser.call("Page.captureScreenshot", format="png")["data"]
                (pathlib.Path(folder) / f"page_{width}_{'dark' if dark else 'light'}.png").write_bytes(base64.b64decode(png))


if __name__ == "__main__":
    if not CHROMIUM:
        print("page_test: skipped, there is no Chromium (Debian: chromium-headless-shell)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
