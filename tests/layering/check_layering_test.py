#!/usr/bin/env python3
"""The layering check's own test: violations planted one by one in a clean tree must each be found."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_layering  # noqa: E402

CLEAN = {
    "CMakeLists.txt": "main.cpp launcher.cpp stage.cpp store.cpp plan.cpp ids.cpp store_test.cpp plan_test.cpp",
    "README.md": "",
    "LICENSE": "",
    "dev": "",
    ".gitignore": "",
    "app/cli/main.cpp": '#include <CLI/CLI.hpp>\n#include <fmt/format.h>\n#include "engine/processes/launcher.h"\nint main() {}\n',
    "engine/processes/launcher.cpp": '#include <sys/wait.h>\n#include "engine/processes/launcher.h"\n#include "schedules/ids.h"\n',
    "engine/processes/launcher.h": '#pragma once\n#include <vector>\n#include "simulator/plan/plan.h"\n',
    "backends/stage.cpp": '#include <ATen/ATen.h>\n#include <torch/csrc/autograd/autograd.h>\n#include "simulator/plan/plan.h"\n',
    "backends/stage.h": "#pragma once\n",
    "backends/store.h": "#pragma once\n",
    "backends/store.cpp": "#include <fmt/format.h>\n#include <sqlite3.h>\n#include <zip.h>\n#include <nlohmann/json.hpp>\n",
    "simulator/plan/plan.cpp": '#include <Eigen/Dense>\n#include <nlohmann/json.hpp>\n#include "schedules/ids.h"\n',
    "simulator/plan/plan.h": '#include <cstdint>\n#include "schedules/ids.h"\n',
    "schedules/ids.cpp": '#include "schedules/ids.h"\n#include <fmt/format.h>\n',
    "schedules/ids.h": "#pragma once\n#include <compare>\n",
    "tests/backends/store_test.cpp": '#include <gtest/gtest.h>\n#include <zip.h>\n#include "tests/support/fakes.h"\n',
    "tests/simulator/plan/plan_test.cpp": '#include <gtest/gtest.h>\n#include "backends/store.h"\n',
    "tests/support/fakes.h": "#include <gtest/gtest.h>\n",
}


def write(root, tree):
    """Makes the files of this dict from path to text; None makes none."""
    for path, text in tree.items():
        if text is not None:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)


def check(changes, is_built=True, has_headers=True):
    """Violations of the clean tree with these files added or replaced (None: taken away), built, each source with a header; also its warnings."""
    with tempfile.TemporaryDirectory() as root:
        tree = {**CLEAN, **changes}
        if has_headers:
            headers = {os.path.splitext(path)[0] + ".h": "" for path in changes if path.endswith((".cpp", ".cu")) and not path.startswith("tests/")}
            tree = {**headers, **tree}
        if is_built:
            tree["CMakeLists.txt"] = " ".join(os.path.basename(path) for path in tree)
        write(root, tree)
        violations, warnings, _ = check_layering.check(root)
        return violations, warnings


class CheckLayering(unittest.TestCase):
    def clean(self, changes):
        self.assertEqual(check(changes)[0], [])

    def found(self, path, text, *words):
        """Exactly one violation, which names the file and these words."""
        violations, _ = check({path: text})
        self.assertEqual(len(violations), 1, violations)
        for word in (path, *words):
            self.assertIn(word, violations[0])

    def test_a_clean_tree_passes(self):
        self.assertEqual(check({}), ([], []))

    def test_types_of_one_name_are_found(self):
        plan = "#include <cstdint>\nnamespace pw {\nstruct Part {\n};\n}  // namespace pw\n"
        again = "namespace pw {\nclass Part final : public Base {\n};\n}  // namespace pw\n"
        self.clean({"simulator/plan/plan.h": plan})
        violations, _ = check({"simulator/plan/plan.h": plan, "backends/stage.h": again})
        self.assertEqual(len(violations), 1, violations)
        for word in ("pw::Part", "simulator/plan/plan.h", "backends/stage.h"):
            self.assertIn(word, violations[0])
        violations, _ = check({"simulator/plan/plan.h": plan, "backends/stage.h": "namespace at {\nclass Tensor;\n}\n" + again})
        self.assertEqual(len(violations), 1, violations)
        for other in (
            again.replace("namespace pw {", "namespace pw {\nnamespace {", 1).replace("}  // namespace pw", "}  // namespace\n}  // namespace pw"),
            again.replace("namespace pw", "namespace pw::traces"),
            again.replace("Part", "Piece"),
            "namespace pw {\nstruct Part;\n}  // namespace pw\n",
        ):
            self.clean({"simulator/plan/plan.h": plan, "backends/stage.h": other})

    def test_a_source_without_a_header_of_its_name_is_found(self):
        violations, _ = check({"engine/new.cpp": '#include "engine/processes/launcher.h"\n'}, has_headers=False)
        self.assertEqual(violations, ["engine/new.cpp: has no header of its name, and is of no family in SEVERAL_SOURCES"])
        self.assertEqual(check({"engine/new.cpp": "int main() {}\n", "tests/new.cpp": ""}, has_headers=False)[0], [])

    def test_a_source_of_a_family_includes_the_familys_header(self):
        family = {"schedules/families.h": "", "schedules/new.cpp": '#include "schedules/families.h"\n'}
        self.assertEqual(check(family, has_headers=False)[0], [])
        self.assertEqual(len(check({**family, "schedules/new.cpp": ""}, has_headers=False)[0]), 1)

    def test_an_include_of_an_upper_room_is_found_for_every_pair_of_rooms(self):
        for folder in ("simulator", "backends/torch"):
            rooms = check_layering.ROOMS[folder]
            for lower, room in enumerate(rooms):
                for upper, reached in enumerate(rooms):
                    with self.subTest(folder=folder, room=room, reached=reached):
                        text = f'#include "{folder}/{reached}/other.h"\n'
                        if upper < lower:
                            self.found(f"{folder}/{room}/new.h", text, f"{folder}/{room} stands below")
                        else:
                            self.clean({f"{folder}/{room}/new.h": text})

    def test_a_file_beside_the_rooms_stands_above_them(self):
        self.clean({"app/gui/new.h": '#include "app/gui/window/other.h"\n'})
        self.found("app/gui/window/new.h", '#include "app/gui/other.h"\n', "stands below")

    def test_a_file_beside_the_rooms_stands_where_the_list_has_it(self):
        self.clean({"engine/run/new.h": '#include "engine/other.h"\n'})
        self.found("engine/new.h", '#include "engine/run/other.h"\n', "engine stands below")

    def test_a_room_without_a_place_is_found(self):
        for room in ("simulator/cellar", "schedules/cellar", "engine/run/cellar", "app/cli/text/cellar", "app/python/cellar", "app/cellar/deep", "app/gui/drawing"):
            for name in ("new.h", "new.py"):
                with self.subTest(room=room, name=name):
                    self.assertEqual(check({f"{room}/{name}": ""})[0], [f"{room}: a room that ROOMS does not place"])
        self.clean({"tests/schedules/cellar/new.h": "", "schedules/__pycache__/new.py": "", "schedules/notes/read.txt": ""})

    def test_the_module_without_torch_stands_above_the_one_with_it(self):
        self.clean({"app/python/new.cpp": '#include "app/python/torch/other.h"\n'})
        self.found("app/python/torch/new.cpp", '#include "app/python/other.h"\n', "app/python/torch stands below")

    def test_a_folder_of_many_files_is_found(self):
        def folder(name, count):
            return check({f"{name}/new_{i}.h": "" for i in range(count)})

        for name in ("schedules", "simulator/trace", "tests/engine"):
            there = sum(os.path.dirname(path) == name for path in CLEAN if path.endswith((".h", ".cpp")))
            with self.subTest(name=name):
                self.assertEqual(folder(name, 40 - there), ([], []))
                for count in (41, 45):
                    self.assertEqual(folder(name, count - there), ([], [f"{name}: {count} files, a folder should have at most 40"]))
                violations, warnings = folder(name, 46 - there)
                self.assertEqual((len(violations), warnings), (1, []))
                self.assertIn(f"{name}: 46 files", violations[0])

    def test_an_include_to_the_left_is_found_for_every_pair_of_folders(self):
        chain = ["app", "engine", "backends", "simulator", "schedules"]
        for right, folder in enumerate(chain):
            for left, reached in enumerate(chain):
                with self.subTest(folder=folder, reached=reached):
                    text = f'#include "{reached}/new.h"\n'
                    if left < right:
                        self.found(f"{folder}/new.h", text, f"{folder}/new.h:1", f"right of {reached}")
                    else:
                        self.clean({f"{folder}/new.h": text})

    def test_what_has_one_place_is_found_elsewhere(self):
        self.found("engine/new.cpp", "auto j = nlohmann::ordered_json::parse(text);\n", "engine/new.cpp:1", "readJson")
        self.found("app/gui/new.cpp", "\nQJsonDocument::fromJson(text);\n", "new.cpp:2", "readJson")
        self.clean({"simulator/text/json_text.cpp": "Json::sax_parse(a, b, &c);\n", "tests/app/new.cpp": "nlohmann::json::parse(text);\n"})
        for call in ('fmt::print("x");', 'std::printf("x");', "std::cout << 1;", "fputs(text, stdout);", "std::fwrite(a, 1, 1, stdout);"):
            self.found("app/cli/new.cpp", call + "\n", "new.cpp:1", "print and warn")
        self.clean({"app/cli/text/output.cpp": 'fmt::print("x");\n', "app/cli/new.cpp": 'print(fmt::format("x"));\nstd::snprintf(a, 1, "x");\n// std::cout\n'})

    def test_a_file_that_a_comment_names_is_there(self):
        for name in ("ids.h", "plan.cpp", "engine/processes/launcher.h", "<sys/wait.h>", "models/plan.json"):
            self.assertEqual(check({"simulator/plan/plan.h": f'#include "schedules/ids.h"\n// see {name}\n'})[0], [], name)
        for name in ("gone.h", "launcher.h", "engine/launcher.h", "ids.cpp"):
            found = check({"simulator/plan/plan.h": f'#include "schedules/ids.h"\nint a;  // see {name}\n'})[0]
            self.assertEqual(len(found), 1, name)
            self.assertIn(f"simulator/plan/plan.h:2: {name} ", found[0])

    def test_odd_spellings_of_an_include_are_seen(self):
        for text in ('  #  include "app/x.h"', '#include"app/x.h"', '#include "app/x.h"  // why', '/* a */ #include "app/x.h"'):
            with self.subTest(text=text):
                self.found("schedules/new.h", f"\n{text}\n", "new.h:2", "app")
        self.found("schedules/new.h", "#include <app/x.h>\n", "in quotes")
        self.found("schedules/new.h", "#include WHAT\n", "macro")
        self.found("schedules/new.cpp", 'auto url = "http://x";\n#include "app/x.h"\n', "new.cpp:2")
        self.found("schedules/new.cpp", '// "quoted" words\n#include "app/x.h"\n', "new.cpp:2")

    def test_an_include_in_a_comment_or_a_raw_string_is_none(self):
        self.clean({"schedules/new.h": '/*\n#include "app/x.h"\n*/\n// #include "engine/processes/launcher.h"\n'})
        self.clean({"schedules/new.cpp": 'auto s = R"x(\n#include "app/x.h"\n)x";\n'})

    def test_an_include_not_written_from_the_root_is_found(self):
        for target in ("ids.h", "../schedules/ids.h", "schedules/../app/x.h", "shared/x.h"):
            with self.subTest(target=target):
                self.found("schedules/new.h", f'#include "{target}"\n', "root")

    def test_product_code_may_not_include_tests(self):
        self.found("engine/new.cpp", '#include "tests/support/fakes.h"\n', "test's file")

    def test_a_heavy_library_outside_its_folder_is_found(self):
        cases = {
            "torch/torch.h": "engine", "ATen/ATen.h": "simulator", "c10/core/Scalar.h": "app", "gloo/types.h": "engine",
            "cuda_runtime.h": "engine", "nccl.h": "app", "ucp/api/ucp.h": "engine", "sqlite3.h": "simulator",
            "SQLiteCpp/Database.h": "app", "zip.h": "simulator", "Eigen/Dense": "schedules",
            "nlohmann/json.hpp": "schedules", "QWidget": "engine", "QtWidgets/QWidget": "backends", "CLI/CLI.hpp": "engine",
        }  # fmt: skip
        for target, folder in cases.items():
            for brackets in ("<{}>", '"{}"'):
                with self.subTest(target=target, brackets=brackets):
                    self.found(f"{folder}/new.cpp", f"#include {brackets.format(target)}\n", f"in {folder}")
        self.found("tests/engine/new_test.cpp", "#include <sqlite3.h>\n", "SQLite in engine")
        self.clean({"tests/support/new.cpp": "#include <sqlite3.h>\n"})

    def test_a_heavy_library_in_a_header_is_found(self):
        for path, target in (
            ("backends/new.h", "torch/torch.h"), ("backends/new.h", "sqlite3.h"), ("simulator/new.h", "nlohmann/json.hpp"),
            ("simulator/new.h", "Eigen/Core"), ("schedules/new.h", "fmt/format.h"), ("app/new.h", "CLI/CLI.hpp"),
            ("backends/made.h.in", "zip.h"), ("tests/support/new.h", "fmt/format.h"),
        ):  # fmt: skip
            with self.subTest(path=path, target=target):
                self.found(path, f"#include <{target}>\n", "in a header")
        self.clean({"backends/new.cu": "#include <cuda_runtime.h>\n#include <nccl.h>\n"})

    def test_a_private_header_may_hold_its_library_and_is_for_its_module(self):
        self.clean({"backends/torch/stage/in_flight.h": "#include <ATen/ATen.h>\n", "backends/torch/new.cpp": '#include "backends/torch/stage/in_flight.h"\n'})
        self.found("backends/torch/stage/in_flight.h", "#include <nccl.h>\n", "NCCL in a header")
        for path in ("backends/new.cpp", "engine/new.cpp", "tests/engine/new_test.cpp"):
            with self.subTest(path=path):
                self.found(path, '#include "backends/torch/stage/in_flight.h"\n', "includes Torch")

    def test_fmt_beside_torch_is_found(self):
        self.found("backends/new.cpp", "#include <ATen/ATen.h>\n#include <fmt/format.h>\n", "new.cpp:2", "another fmt")

    def test_test_libraries_outside_tests_are_found(self):
        self.found("engine/new.cpp", "#include <gtest/gtest.h>\n", "outside tests")

    def test_an_unknown_library_is_found(self):
        self.found("engine/new.cpp", "#include <boost/asio.hpp>\n", "no library")

    def test_a_local_name_of_two_sources_of_a_folder_is_found(self):
        def source(definition, name="simulator/text/first.cpp"):
            return {name: "namespace pw {\nnamespace {\n\n" + definition + "\n\n}  // namespace\n}  // namespace pw\n"}

        second = source("std::string wordsOf(const Style& style) {\n  return {};\n}", "simulator/text/second.cpp")
        for definition in ("std::string_view wordsOf(std::string_view text) { return text; }", "struct wordsOf {\n};", "constexpr int wordsOf = 1;"):
            with self.subTest(definition=definition):
                violations, _ = check({**source(definition), **second})
                self.assertEqual(len(violations), 1)
                self.assertIn("has a local wordsOf, too", violations[0])
        for definition in ("int wordsIn(int wordsOf) {\n  return wordsOf(1);\n}", "using wordsOf = int;"):
            self.clean({**source(definition), **second})
        self.clean({**source("int wordsOf();"), **{path.replace("text", "step"): text for path, text in second.items()}})

    def test_sizes_are_limited(self):
        for path, limit in (
            ("simulator/new.h", 200), ("simulator/new.cpp", 600), ("resources/new.py", 600),
            ("tests/engine/new_test.cpp", 500), ("tests/support/new.py", 500),
        ):  # fmt: skip
            with self.subTest(path=path):
                self.clean({path: "\n" * limit})
                self.found(path, "\n" * (limit + 1), f"{limit + 1} lines", f"at most {limit}")

    def test_a_source_above_400_lines_is_a_warning(self):
        self.assertEqual(check({"simulator/new.cpp": "\n" * 400})[1], [])
        violations, warnings = check({"simulator/new.cpp": "\n" * 401})
        self.assertEqual((violations, len(warnings)), ([], 1))
        self.assertIn("simulator/new.cpp", warnings[0])

    def test_a_source_that_no_cmake_file_names_is_not_built(self):
        for path in ("tests/backends/ucx_test.cpp", "tests/backends/other_store_test.cpp", "backends/tore.cpp"):
            with self.subTest(path=path):
                self.assertEqual(check({path: ""}, is_built=False)[0], [f"{path}: no CMake file names it, so it is never built"])

    def test_the_top_level_is_fixed(self):
        for path in ("common/x.txt", "notes.md", "src/x.cpp"):
            with self.subTest(path=path):
                violations, _ = check({path: ""})
                self.assertEqual(violations, [f"{path.split('/')[0]}: not one of the top level's fixed names"])
        self.clean({"build/x.cpp": "", "build-asan/x": "", ".github/x": ""})
        self.clean({"CONTRIBUTING.md": "", "pyproject.toml": ""})

    def test_with_git_only_tracked_names_count(self):
        with tempfile.TemporaryDirectory() as root:
            write(root, {**CLEAN, "notes.md": "", "lying_around.db": ""})
            for words in (["init", "-q"], ["add", "notes.md", *CLEAN]):
                done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
                if done.returncode != 0:
                    self.skipTest("git does not work here")
            self.assertEqual(check_layering.check(root)[0], ["notes.md: not one of the top level's fixed names"])

    def test_an_empty_tree_does_not_pass(self):
        with tempfile.TemporaryDirectory() as root:
            violations, _, count = check_layering.check(root)
            self.assertEqual((len(violations), count), (4, 0))
        self.assertEqual(len(check({"simulator/plan/plan.cpp": None})[0]), 1)

    def test_the_exit_status_tells(self):
        for changes, expected in (({}, 0), ({"schedules/new.h": '#include "app/x.h"\n'}, 1)):
            with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()) as out:
                write(root, {**CLEAN, **changes})
                self.assertEqual(check_layering.main([root]), expected)
                self.assertEqual("violation: " in out.getvalue(), expected == 1)


if __name__ == "__main__":
    unittest.main()
