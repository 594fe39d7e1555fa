"""The Debian package, taken apart into a clean root: what is in it, and that it works there with nothing of the build or the environment.

    package_test.py BUILD [SITE_PACKAGES]      SITE_PACKAGES: holds torch 2.11
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
import documents_test  # noqa: E402

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD, SITE_PACKAGES = pathlib.Path(sys.argv[1]).resolve(), "".join(sys.argv[2:3])
OF_TORCH = re.compile(r"lib(torch|c10|cud|cublas|nccl|nvrtc).*")


def call(*words, environment=None, cwd=None):
    """What a program does in an empty environment; environment adds to it."""
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, env=environment or {}, cwd=cwd, timeout=120)


def output(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True, timeout=120).stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="pipewright-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.file = cls.folder / "pipewright.deb"
        subprocess.run([SOURCE / "resources" / "package" / "deb.sh", BUILD, cls.file, "-Zgzip"], check=True, timeout=120)
        cls.root = cls.folder / "a clean root"
        subprocess.run(["dpkg-deb", "-x", cls.file, cls.root], check=True, timeout=60)
        cls.usr = cls.root / "usr"
        cls.program = cls.usr / "bin" / "pipewright"
        cls.plan = cls.folder / "plan.json"
        cls.planned = call(cls.program, "plan", cls.usr / "share/pipewright/models/gpt_small.pt2", "--ranks", 2, "--microbatches", 4, "--cluster", "a100-nvlink", "--out", cls.plan)

    def binaries(self):
        return sorted(self.usr.glob("bin/*")) + sorted(self.usr.glob("lib/pipewright/*.so"))

    def test_is_small_and_stripped(self):
        self.assertLess(self.file.stat().st_size, 30e6)
        self.assertIn(self.usr / "lib/pipewright/libpw_ucx.so", self.binaries())
        for file in self.binaries():
            self.assertNotIn(".symtab", output("readelf", "-SW", file), file)

    def test_nothing_points_to_the_build(self):
        for file in self.binaries():
            self.assertNotRegex(output("readelf", "-d", file), r"\((RPATH|RUNPATH)\)", file)
        for file in self.usr.rglob("*"):
            if file.is_file():
                for place in (SOURCE, BUILD):
                    self.assertNotIn(str(place).encode(), file.read_bytes(), file)

    def test_depends_on_what_it_loads(self):
        packages = {part.split()[0] for part in output("dpkg-deb", "-f", self.file, "Depends").split(", ")}
        needed = {name for file in self.binaries() for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", file))}
        ours = sorted(f"*/{name}" for name in needed if not OF_TORCH.fullmatch(name) and not name.startswith("ld-linux"))
        self.assertGreater(len(ours), 8)
        owners = [line.split(": ", 1) for line in output("dpkg", "-S", *ours).splitlines()]
        for library in ours:
            found = {owner.split(":")[0] for owner, path in owners if path.endswith(library[1:])}
            self.assertTrue(found & packages, f"{library} is of {found}")

    def test_designs_and_predicts_without_torch(self):
        self.assertEqual((self.planned.returncode, self.planned.stderr), (0, ""))
        self.assertRegex(call(self.program, "--version").stdout, r"^pipewright \d+\.\d+\.\d+\n$")
        self.assertEqual(len(call(self.program, "schedule", "1f1b", "--ranks", 2, "--microbatches", 4).stdout.splitlines()), 2)
        simulated = call(self.program, "simulate", self.plan, "--json")
        self.assertGreater(json.loads(simulated.stdout)["makespan_ns"], 0)
        self.assertEqual(json.loads(self.plan.read_text())["model_files"], [str(self.usr / "share/pipewright/models/gpt_small.pt2")])

    def test_works_after_it_was_moved(self):
        moved = self.folder / "opt"
        shutil.copytree(self.usr, moved)
        self.assertEqual(call(moved / "bin/pipewright", "plan", moved / "share/pipewright/models/gpt_small.pt2", "--ranks", 2, "--cluster", "h100-nvlink", "--out", self.folder / "p.json").stderr, "")

    def test_a_link_to_the_program_works(self):
        link = self.folder / "pw"
        link.symlink_to(self.program)
        self.assertIn("presets are a100-40gb-nvlink, a100-nvlink", call(link, "plan", self.usr / "share/pipewright/models/gpt_small.pt2", "--cluster", "none").stderr)

    def test_exports_what_torch_runs(self):
        done = call(self.program, "export", self.plan, "--to", "torch", "--out", self.folder / "torch")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue((self.folder / "torch" / "run.py").exists())

    @unittest.skipUnless((BUILD / "bin" / "pipewright-gui").exists(), "this build has no desktop app")
    def test_the_app_opens_a_plan(self):
        picture = self.folder / "window.png"
        done = call(self.usr / "bin/pipewright-gui", "--grab", picture, self.plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(picture.stat().st_size, 20_000)

    def test_the_desktop_knows_the_app_and_its_files(self):
        text = (self.usr / "share/applications/pipewright.desktop").read_text()
        entry = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        self.assertTrue((self.usr / "bin" / entry["Exec"].split()[0]).exists())
        for icon in ("scalable/apps/pipewright.svg", "48x48/apps/pipewright.png", "128x128/apps/pipewright.png", "256x256/apps/pipewright.png"):
            self.assertTrue((self.usr / "share/icons/hicolor" / icon).exists(), icon)
        types = xml.etree.ElementTree.parse(self.usr / "share/mime/packages/pipewright.xml").getroot()
        self.assertEqual(sorted(t.get("type") for t in types), sorted(entry["MimeType"].rstrip(";").split(";")))

    def test_the_desktop_tells_our_sqlite_files_by_what_we_write(self):
        file, results = self.folder / "study.json", self.folder / "study.db"
        file.write_text(json.dumps({"version": 1, "model": str(self.usr / "share/pipewright/models/gpt_small.pt2"), "cluster": "h100-nvlink", "ranks": 2, "microbatches": 4, "schedule": "1f1b"}))
        done = call(self.program, "search", "--study", file, "--out", results)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        store = re.search(r"PRAGMA application_id = (0x[0-9a-f]{8});", (SOURCE / "resources/schema.sql").read_text())[1]
        types = xml.etree.ElementTree.parse(self.usr / "share/mime/packages/pipewright.xml").getroot()
        marks = {t.get("type"): t.find("{*}magic/{*}match[@value='SQLite format 3\\0']/{*}match") for t in types}
        for name, mark in (("runs", bytes.fromhex(store[2:])), ("study", results.read_bytes()[68:72])):
            match = marks[f"application/x-pipewright-{name}"]
            self.assertEqual((match.get("type"), match.get("offset")), ("big32", "68"))
            self.assertEqual(int(match.get("value"), 16).to_bytes(4, "big"), mark, name)

    def test_links_of_the_documents_lead_to_what_is_installed(self):
        folder = self.usr / "share/doc/pipewright"
        pages = sorted(folder.rglob("*.md"))
        self.assertEqual([page.relative_to(folder) for page in pages], sorted(page.relative_to(SOURCE) for page in documents_test.DOCUMENTS))
        links = 0
        for page in pages:
            for number, line in documents_test.prose(page):
                for match in documents_test.LINK.finditer(line):
                    target = (match[1] or match[2]).partition("#")[0]
                    if target and "://" not in target:
                        links += 1
                        self.assertTrue((page.parent / target).is_file(), f"{page.relative_to(folder)}:{number}: {match[0]}")
        self.assertGreater(links, 40)

    def test_resources_that_users_read_of_are_installed(self):
        places = (self.usr / "share/pipewright", self.usr / "share/doc/pipewright/resources")
        named = set()
        for page in ("README.md", "resources/docs/guide.md", "resources/docs/python.md"):
            named.update(re.findall(r"\bresources/([\w./-]*\w)", (self.usr / "share/doc/pipewright" / page).read_text(encoding="utf-8")))
        named.discard("debian-packages.txt")  # what a build needs
        self.assertGreaterEqual(named, {"examples/study.json", "examples/mixed_rack.json", "models/gpt_small.pt2", "links.json"})
        for name in sorted(named):
            self.assertTrue(any((place / name).exists() for place in places), f"resources/{name}")
        study = places[0] / "examples/study.json"
        self.assertTrue((study.parent / json.loads(study.read_text())["model"]).is_file())

    def test_the_manual_names_every_command_and_option(self):
        words = lambda text: set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))  # noqa: E731

        def manual(program):
            return re.sub(r"\\f[BR]", " ", output("gzip", "-dc", self.usr / f"share/man/man1/{program}.1.gz").replace("\\-", "-"))

        page = manual("pipewright")
        commands = re.findall(r"^  ([a-z]+) ", call(self.program, "--help").stdout.partition("Subcommands:")[2].partition("\n\n")[0], re.M)
        self.assertGreater(len(commands), 10)
        for command in commands:
            part = page.partition(f'.SH "PIPEWRIGHT {command.upper()}"')[2].partition('.SH "PIPEWRIGHT')[0]
            self.assertEqual(words(call(self.program, command, "--help").stdout) - words(part), set(), command)
        self.assertIn("--grab", manual("pipewright-gui"))

    def complete(self, *words):
        script = (
            'source "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pipewright; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        completion = self.usr / "share/bash-completion/completions/pipewright"
        return output("bash", "-c", script, "bash", completion, self.program, *words).split()

    def test_the_shell_completes_commands_options_and_values(self):
        self.assertEqual(self.complete("sim"), ["simulate"])
        self.assertEqual(self.complete("run", "--balan"), [])
        self.assertEqual(self.complete("plan", "--balan"), ["--balance"])
        self.assertEqual(self.complete("plan", "--balance", "m"), ["memory"])
        self.assertEqual(self.complete("plan", "--schedule", "gp"), ["gpipe"])
        self.assertEqual(self.complete("run", str(self.plan)[:-2]), [str(self.plan)])

    def refusal(self, **environment):
        """The one sentence with which a run ends that finds no torch."""
        done = call(self.program, "run", self.plan, environment={"PATH": str(self.folder / "empty"), **environment})
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def with_torch(self, version):
        """Site-packages of an environment whose torch says that it is of this version."""
        environment = self.folder / f"torch {version}"
        package = environment / "lib/python3.12/site-packages/torch"
        package.mkdir(parents=True, exist_ok=True)
        (package / "version.py").write_text(f"__all__ = ['__version__']\n__version__ = '{version}'\n")
        return environment

    @unittest.skipUnless((BUILD / "lib" / "libpw_torch.so").exists(), "this build cannot run models")
    def test_a_run_without_torch_says_what_it_needs(self):
        for environment in ({}, {"VIRTUAL_ENV": str(self.folder)}):
            self.assertRegex(self.refusal(**environment), r"^pipewright: Running models needs a Python environment with torch 2\.11: neither .*PIPEWRIGHT_TORCH")
        self.assertRegex(self.refusal(PIPEWRIGHT_TORCH=str(self.folder)), r"there is no torch package in .*PIPEWRIGHT_TORCH")

    @unittest.skipUnless((BUILD / "lib" / "libpw_torch.so").exists(), "this build cannot run models")
    def test_another_torch_is_refused_by_its_version(self):
        for version in ("2.9.1+cpu", "2.110.0"):
            environment = self.with_torch(version)
            for name, value in (("PIPEWRIGHT_TORCH", environment / "lib/python3.12/site-packages"), ("VIRTUAL_ENV", environment)):
                self.assertIn(f"{environment}/lib/python3.12/site-packages/torch is torch {version}, and this program runs models with torch 2.11", self.refusal(**{name: str(value)}))
        self.assertIn("has no lib/libtorch_cpu.so", self.refusal(CONDA_PREFIX=str(self.with_torch("2.11.0"))))

    @unittest.skipUnless(SITE_PACKAGES, "there is no torch here")
    def test_devices_says_whether_models_can_run(self):
        def backend(**environment):
            shown = json.loads(call(self.program, "devices", "--json", environment=environment).stdout)
            return next(b for b in shown["backends"] if b["name"] == "ucx")

        prefix = pathlib.Path(SITE_PACKAGES).parents[2]
        wrong = str(self.with_torch("2.9.1"))
        self.assertEqual(backend(PATH=str(self.folder / "empty"))["available"], False)
        self.assertIn("torch 2.11", backend(PATH=str(self.folder / "empty"))["note"])
        for environment in ({"VIRTUAL_ENV": str(prefix)}, {"CONDA_PREFIX": str(prefix), "VIRTUAL_ENV": wrong}, {"PATH": f"{prefix}/bin:/usr/bin"}, {"PIPEWRIGHT_TORCH": str(prefix)}):
            self.assertEqual(backend(**environment)["available"], True, environment)
        self.assertEqual(backend(PIPEWRIGHT_TORCH=wrong, VIRTUAL_ENV=str(prefix))["available"], False)

    @unittest.skipUnless(SITE_PACKAGES, "there is no torch here")
    def test_a_plan_runs_with_the_torch_that_is_named(self):
        store = self.folder / "runs.db"
        done = call(self.program, "run", self.plan, "--steps", 2, "--store", store, "--json", environment={"PIPEWRIGHT_TORCH": SITE_PACKAGES})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["losses"]), 2)
        self.assertEqual(call(self.program, "compare", "--store", store).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
