#!/usr/bin/env bash
# The Debian package on a system that has nothing else: installed by apt into a root of its own, with what its Depends name and no more, then used.
#
#   package.sh PACKAGE.deb
#
# Needs root and debootstrap; packages come from where this machine's apt fetches its own.
set -euo pipefail

package=$(readlink -f "$1")
((EUID == 0)) || { echo "package.sh: chroot needs root"; exit 1; }
work=$(mktemp -d)
root=$work/root
trap 'umount -q "$root/proc" || true; rm -rf "$work"' EXIT

# inside WORDS...: in the clean root, with an empty environment
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$root" "$@"; }

# is WHAT WANTED FOUND
is() { [[ $3 == "$2" ]] || { echo "package.sh: $1 is '$3', not '$2'"; exit 1; }; }

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' "Codename: $release" | sort -u | head -n 1)
debootstrap --variant=minbase "$release" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || { tail -n 5 "$work/debootstrap.log"; exit 1; }
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
cp "$package" "$root/tmp/pipewright.deb"
inside apt-get -qq update
inside apt-get -qq install -y --no-install-recommends /tmp/pipewright.deb >"$work/apt.log" 2>&1 || { tail -n 5 "$work/apt.log"; exit 1; }

models=/usr/share/pipewright/models
is "the schedule's number of ranks" 2 "$(inside pipewright schedule 1f1b --ranks 2 --microbatches 4 | wc -l)"
inside pipewright plan $models/gpt_small.pt2 --ranks 2 --microbatches 4 --cluster a100-nvlink --out /tmp/plan.json >/dev/null
inside pipewright simulate /tmp/plan.json >/dev/null
inside pipewright-gui --grab /tmp/window.png /tmp/plan.json
(($(stat -c %s "$root/tmp/window.png") > 20000)) || { echo "package.sh: the picture of the window is empty"; exit 1; }
if refusal=$(inside pipewright run /tmp/plan.json 2>&1); then echo "package.sh: a model ran without torch"; exit 1; fi
is "what a run says without torch" "pipewright: Running models needs a Python environment with torch 2.11" "${refusal%%: neither*}"

# File types, as desktops find them.
inside apt-get -qq install -y --no-install-recommends shared-mime-info libglib2.0-bin >>"$work/apt.log" 2>&1
type_of() { inside gio info -a standard::content-type "$1" | sed -n 's/.*content-type: //p'; }
inside cp /tmp/plan.json /tmp/gpt.plan.json
inside cp /tmp/plan.json /tmp/unnamed
is "a plan's type" application/x-pipewright-plan+json "$(type_of /tmp/gpt.plan.json)"
is "the type of a plan without an extension" application/x-pipewright-plan+json "$(type_of /tmp/unnamed)"
printf '{"version": 1, "model": "%s", "cluster": "h100-nvlink", "ranks": 2, "microbatches": 4, "schedule": "1f1b"}' $models/gpt_small.pt2 >"$root/tmp/study.json"
inside pipewright search --study /tmp/study.json --out /tmp/study.db >/dev/null
is "a study's type" application/x-pipewright-study "$(type_of /tmp/study.db)"
is "a model's type" application/x-pytorch-export "$(type_of $models/gpt_small.pt2)"
if [[ -n ${2-} ]]; then cp "$root/tmp/window.png" "$2"; fi
