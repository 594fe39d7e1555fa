#!/usr/bin/env python3
"""The documents agree with the tree: links and anchors lead somewhere, files that they name exist, every room and command is in its table, and they
stay as short as they promise to be."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "layering"))
import check_layering  # noqa: E402

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "resources" / "docs").glob("*.md"))]
MADE = {"models.md"}  # by a program, with lines of any length
OF_OTHERS = {"README.md", "guide.md", "commands.md", "CONTRIBUTING.md"}  # quote names of torch's, of style and of examples
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"(?:app|engine|backends|simulator|schedules|resources|tests)/[\w./{},*-]+")


def prose(path):
    """(line number, line) of a document outside fenced blocks."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(path):
    """The anchors of a document's headings, as GitHub makes them."""
    made = []
    for _, line in prose(path):
        if line.startswith("#"):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            made.append(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return made


def expanded(name):
    """`a.{h,cpp}` to its names."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    return ["".join(words) for words in itertools.product(*(part if i % 2 else [",".join(part)] for i, part in enumerate(parts)))]


class Documents(unittest.TestCase):
    def test_links_lead_to_files_and_headings(self):
        for path in DOCUMENTS:
            for number, line in prose(path):
                for match in LINK.finditer(line):
                    target, _, anchor = (match[1] or match[2]).partition("#")
                    if "://" in target:
                        continue
                    file = (path.parent / target).resolve() if target else path
                    where = f"{path.relative_to(ROOT)}:{number}: {match[0]}"
                    self.assertTrue(file.exists(), where)
                    if anchor:
                        self.assertIn(anchor, anchors(file), where)

    def test_headings_are_told_apart_by_their_anchors(self):
        for path in DOCUMENTS:
            made = anchors(path)
            self.assertEqual(sorted(set(made)), sorted(made), path)

    def test_files_that_they_name_exist(self):
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
        names = 0
        for path in DOCUMENTS:
            for number, line in prose(path):
                for quoted in re.findall(r"`([^`]+)`", line):
                    if "NAME" in quoted or not PATH.fullmatch(quoted):
                        continue
                    for name in expanded(quoted):
                        names += 1
                        found = any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()
                        self.assertTrue(found, f"{path.relative_to(ROOT)}:{number}: there is no {name}")
                        if listed and not os.path.isdir(ROOT / name) and "*" not in name:
                            self.assertIn(name, listed, f"{path.relative_to(ROOT)}:{number}: git does not have {name}")
        self.assertGreater(names, 200)

    def test_names_of_the_code_that_they_use_are_in_the_code(self):
        words = set()
        for path in check_layering.code_files(ROOT):
            words.update(re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8")))
        names = 0
        for path in DOCUMENTS:
            for number, line in prose(path):
                for quoted in re.findall(r"`([^`]+)`", line):
                    name = re.fullmatch(r"(?:\w+::)*(\w*[a-z]\w*[A-Z]\w*)(?:\([\w&:, ]*\))?", quoted)
                    if name and "NAME" not in quoted and path.name not in MADE and path.name not in OF_OTHERS:
                        names += 1
                        self.assertTrue(name[1] in words, f"{path.relative_to(ROOT)}:{number}: the code has no {quoted}")
        self.assertGreater(names, 60)

    def test_architecture_has_every_folder_and_room(self):
        text = (ROOT / "resources" / "docs" / "architecture.md").read_text(encoding="utf-8")
        rooms = [f"{folder}/{room}" for folder, all in check_layering.ROOMS.items() for room in all
                 if folder != "backends/torch" and room != check_layering.BESIDE]
        for name in check_layering.CHAIN[1:] + rooms:
            if name == "app/cli" or "/" not in name or name == "app/gui":
                self.assertIn(f"| `{name}` |", text)
            else:
                self.assertRegex(text, rf"\n\| `{name}` \| .+ \| `{name}/[\w./]+` \|\n")

    def test_every_command_is_shown_with_its_options(self):
        table = re.search(r"kCommands = std::to_array<Entry>\(\{(.*?)\}\);", (ROOT / "app" / "cli" / "main.cpp").read_text(encoding="utf-8"), re.S)
        names = re.findall(r'\{"(\w+)", add', table[1])
        self.assertGreater(len(names), 10)
        text = (ROOT / "resources" / "docs" / "commands.md").read_text(encoding="utf-8")
        for name in names:
            self.assertIn(f"## {name}\n\n<!-- output: pipewright {name} --help -->\n```text\n", text)

    def test_the_columns_of_a_study_are_listed_with_their_types(self):
        code = (ROOT / "backends" / "store" / "study_store.cpp").read_text(encoding="utf-8")
        columns = re.findall(r'Column\{"(\w+)", (?:k(\w+)|"(\w+)[^"]*")', code)
        self.assertGreater(len(columns), 20)
        text = (ROOT / "resources" / "docs" / "formats.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| ([^|]*) \| (INTEGER|REAL|TEXT) \|", text, re.M)
        listed = [(name, kind) for names, kind in rows for name in re.findall(r"`(\w+)`", names)]
        self.assertEqual(sorted(listed), sorted((name, (kind or key).upper()) for name, kind, key in columns))

    def test_they_are_as_short_as_they_promise(self):
        lines = (ROOT / "README.md").read_text(encoding="utf-8").count("\n")
        self.assertLessEqual(lines, 220)
        rows = [line for _, line in prose(ROOT / "resources" / "docs" / "glossary.md") if line.startswith("|")]
        self.assertLessEqual(len(rows) - 2, 40)
        for path in DOCUMENTS:
            for number, line in prose(path):
                if path.name not in MADE and not line.startswith(("|", "<!--", "![")):
                    self.assertLessEqual(len(line), 140, f"{path.relative_to(ROOT)}:{number}")


if __name__ == "__main__":
    unittest.main()
