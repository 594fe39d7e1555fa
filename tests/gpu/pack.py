#!/usr/bin/env python3
"""Copies what `check.py` needs to a folder for a machine that has a GPU and torch but cannot build: `./dev gpu-pack FOLDER`.

Programs and modules, the sample models, and the shared libraries that the machine may lack: all that the programs load but those of C and C++, the
driver's and those of the wheel. What is large and can be exported there (gpt_25m) is left out.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ["pipewright", "gpu_test"]
OF_THE_SYSTEM = re.compile(r"^(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libnvidia-ml)\.so")


def main(arguments):
    if len(arguments) != 1:
        sys.exit("pack.py: give the folder to fill.")
    folder = pathlib.Path(arguments[0])
    for name in ("bin", "lib", "libraries"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    files = [ROOT / "build" / "bin" / name for name in PROGRAMS] + sorted((ROOT / "build" / "lib").glob("libpw_*.so"))
    if not any(f.name == "libpw_cuda.so" for f in files):
        sys.exit("pack.py: this build has no libpw_cuda.so; build it where nvcc is.")
    for file in files:
        shutil.copy2(file, folder / ("lib" if file.suffix == ".so" else "bin") / file.name)
    libraries = set()
    for file in files:
        for line in subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout.splitlines():
            found = re.match(r"\s*(\S+) => (/\S+)", line)
            if found and "site-packages" not in found[2] and not OF_THE_SYSTEM.match(found[1]) and not found[1].startswith("libpw_"):
                libraries.add((found[1], found[2]))
    for name, path in sorted(libraries):
        shutil.copy2(pathlib.Path(path).resolve(), folder / "libraries" / name)
    ucx = sorted(pathlib.Path("/usr/lib").glob("*/ucx"))
    if ucx:  # UCX loads its transports from a folder beside itself
        shutil.copytree(ucx[0], folder / "libraries" / "ucx", dirs_exist_ok=True)
    shutil.copytree(ROOT / "resources", folder / "resources", dirs_exist_ok=True)
    shutil.copy2(pathlib.Path(__file__).with_name("check.py"), folder / "check.py")
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB; on the machine with the GPU: python3 check.py")


if __name__ == "__main__":
    main(sys.argv[1:])
