"""What a function of `--data module:function` starts ends with the process that gives its batches."""

import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "resources", "stream_batches.py")
PATIENCE_S = 60

MODULE = """
import os, subprocess, sys, time
def batches():
    child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open("pid.part", "w") as file:
        file.write(str(child.pid))
    os.rename("pid.part", "pid")
    while os.path.exists("stays"):
        time.sleep(0.01)
    return []
"""


class Streams(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("loads.py", MODULE)

    def write(self, name, text=""):
        with open(os.path.join(self.folder.name, name), "w", encoding="utf-8") as file:
            file.write(text)

    def start(self):
        """The process, and its child's descriptor."""
        stream = subprocess.Popen([sys.executable, "-B", SCRIPT, "loads:batches", "0", "0", "x"], cwd=self.folder.name, stdout=subprocess.PIPE)
        path = os.path.join(self.folder.name, "pid")
        while not os.path.exists(path):
            self.assertIsNone(stream.poll())
        with open(path, encoding="utf-8") as file:
            return stream, os.pidfd_open(int(file.read()))

    def ends(self, child):
        """Whether it ends. What stays is ended here."""
        ended = bool(select.select([child], [], [], PATIENCE_S)[0])
        if not ended:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
        return ended

    def test_children_end_when_the_process_is_killed(self):
        self.write("stays")
        stream, child = self.start()
        stream.kill()
        stream.wait()
        self.assertTrue(self.ends(child))
        self.assertEqual(stream.stdout.read(), b"", "the rank sees the end of the pipe")
        stream.stdout.close()

    def test_children_end_with_the_last_batch(self):
        self.write("stays")
        stream, child = self.start()
        os.remove(os.path.join(self.folder.name, "stays"))
        self.assertIn(b'{"end": 0}', stream.stdout.read())
        self.assertEqual(stream.wait(), 0)
        self.assertTrue(self.ends(child))
        stream.stdout.close()


if __name__ == "__main__":
    unittest.main()
