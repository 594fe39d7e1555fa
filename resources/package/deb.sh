#!/usr/bin/env bash
# Makes a Debian package of what is built in a folder: the programs and modules without debug symbols, and what the system needs to know of them.
#
#   deb.sh BUILD PACKAGE.deb [COMPRESSION]      COMPRESSION: an option of dpkg-deb, -Zxz without it
#
# BUILD holds the built target package_parts. Depends lists the packages of the shared libraries that the programs and modules load; LibTorch is
# not one of them, as it comes from a Python environment.
set -euo pipefail

fail() {
  echo "deb.sh: $1" >&2
  exit 1
}

(($# == 2 || $# == 3)) || fail "give the build folder and the package to write."
build=$(readlink -f "$1") package=$(realpath -m "$2") compression=${3:--Zxz}
command -v dpkg-shlibdeps >/dev/null || fail "there is no dpkg-shlibdeps; install the Debian package dpkg-dev."
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
[[ -n $version ]] || fail "$build is not a build folder; build there first."
architecture=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
cmake --install "$build" --prefix "$root/usr" --strip >"$work/install.log" || fail "cmake --install failed: $(tail -n 1 "$work/install.log")"
gzip -9n "$root"/usr/share/man/man1/*.1
find "$root" -type d -exec chmod 755 {} +
find "$root/usr/share" "$root/usr/lib" -type f -exec chmod 644 {} +

# What the modules for models and GPUs need of the system is what the programs need, too.
loaded=("$root"/usr/bin/*)
if [[ -f $root/usr/lib/pipewright/libpw_ucx.so ]]; then loaded+=("$root/usr/lib/pipewright/libpw_ucx.so"); fi
mkdir "$work/debian"
printf 'Source: pipewright\n\nPackage: pipewright\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "${loaded[@]/#/-e}" 2>"$work/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')
[[ -n $depends ]] || fail "dpkg-shlibdeps failed: $(tail -n 1 "$work/shlibdeps.log")"

mkdir "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<CONTROL
Package: pipewright
Version: $version
Architecture: $architecture
Maintainer: The Pipewright developers <developers@pipewright.invalid>
Installed-Size: $(du -ks --exclude=DEBIAN "$root" | cut -f 1)
Depends: $depends
Recommends: python3-venv
Section: science
Priority: optional
Description: pipeline-parallel training plans: design, predict, run, compare
 Pipewright reads a PyTorch model traced with torch.export, cuts it into stages,
 schedules and simulates a training step, executes it with one process per rank
 and shows the measured timeline below the predicted one.
 .
 Models are inspected, planned and simulated without PyTorch. Running them needs
 a Python environment with torch 2.11 (PIPEWRIGHT_TORCH names it).
CONTROL
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
mkdir -p "$(dirname "$package")"
dpkg-deb --root-owner-group "$compression" --build "$root" "$package" >/dev/null
