#!/usr/bin/env python3
"""resources/readme/regenerate.py on documents of its own: what is run, what is replaced, and that nothing is where something fails."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "resources" / "readme"))
import regenerate  # noqa: E402

OLD = "```text\nold\n```\n"


def output(command, options=""):
    return f"<!-- output{options}: {command} -->\n{OLD}<!-- end -->\n"


class Regenerate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def files(self, *texts):
        paths = [self.folder / f"{i}.md" for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="utf-8")
        return paths

    def run_on(self, paths):
        """Exit status; 0 where it returns."""
        with contextlib.redirect_stderr(io.StringIO()) as self.said:
            try:
                regenerate.main([str(path) for path in paths])
            except SystemExit as end:
                return end.code
        return 0

    def test_outputs_of_all_documents_are_replaced(self):
        paths = self.files("# a\n" + output("echo one") + "between\n" + output("seq 5", " lines=1 tail=1"), output("echo two"))
        self.assertEqual(self.run_on(paths), 0)
        self.assertEqual(paths[0].read_text(), "# a\n<!-- output: echo one -->\n```text\n$ echo one\none\n```\n<!-- end -->\nbetween\n"
                         "<!-- output lines=1 tail=1: seq 5 -->\n```text\n$ seq 5\n1\n…\n5\n```\n<!-- end -->\n")
        self.assertIn("\ntwo\n", paths[1].read_text())

    def test_a_command_of_two_documents_runs_once_and_files_are_shared(self):
        count = self.folder / "count"
        (self.folder / "once.sh").write_text(f"echo run >> {count}\necho made > made.txt\n")
        script = f"sh {self.folder}/once.sh"
        paths = self.files(f"<!-- run: {script} -->\n" + output("cat made.txt"), f"<!-- run: {script} -->\n" + output("cat made.txt"))
        self.assertEqual(self.run_on(paths), 0)
        self.assertEqual(count.read_text(), "run\n")
        for path in paths:
            self.assertIn("\nmade\n", path.read_text())

    def test_nothing_is_replaced_where_a_later_document_fails(self):
        for bad, status in ((output("false"), 1), ("<!-- output: echo x -->\n", 2), (output("echo x", " times=2"), 2)):
            paths = self.files(output("echo one"), bad)
            self.assertEqual(self.run_on(paths), status, bad)
            self.assertEqual([path.read_text() for path in paths], [output("echo one"), bad])

    def test_an_expected_status_is_no_failure(self):
        paths = self.files(output("false", " status=1"))
        self.assertEqual(self.run_on(paths), 0)

    def test_cells_run_one_after_the_other_as_in_a_notebook(self):
        def cell(source, printed=""):
            return f"<!-- cell -->\n```python\n{source}\n```\n{printed}<!-- end -->\n"

        regenerate.PYTHON = sys.executable
        paths = self.files(cell("x = 1") + "between\n" + cell("print(x)\nx + 1", OLD) + cell("x", OLD))
        self.assertEqual(self.run_on(paths), 0)
        self.assertEqual(paths[0].read_text(), cell("x = 1") + "between\n" + cell("print(x)\nx + 1", "```text\n1\n2\n```\n") +
                         cell("x", "```text\n1\n```\n"))
        broken = self.files(cell("1 / 0", OLD))
        self.assertEqual(self.run_on(broken), 1)
        self.assertIn("ZeroDivisionError", self.said.getvalue())
        self.assertEqual(broken[0].read_text(), cell("1 / 0", OLD))

    def test_the_documents_it_takes_by_itself_are_there(self):
        for name in regenerate.DOCUMENTS:
            self.assertTrue((regenerate.ROOT / name).is_file(), name)


if __name__ == "__main__":
    unittest.main()
