#!/usr/bin/env bash
# The checks that take longer than tests or need other builds: ./dev check [NAME...]. Each prints one line, or what it found.
#   format  the tree is as clang-format writes it             (seconds)
#   tidy    clang-tidy on sources and headers changed since the branch point: TIDY_SINCE=COMMIT, or TIDY_SINCE=all
#   asan    all tests without Torch under AddressSanitizer and UBSan, in build-asan
#   tsan    engine and messages under ThreadSanitizer, in build-tsan
#   odr     no name has two definitions: link-time optimisation of all programs without Torch, in build-odr
#   package the Debian package of what is built, installed and used in a clean root (as root; needs debootstrap)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
jobs=${CHECK_JOBS:-$(nproc)}
readonly jobs
readonly sources=('*.h' '*.cpp' '*.cu')

sources_of() { git ls-files -- "${sources[@]}" | grep -v '^tests/data/'; }

check_format() {
  local -a wrong
  mapfile -t wrong < <(sources_of | xargs -P "$jobs" -n 16 clang-format --dry-run -Werror 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:.*clang-format-violations.*/\1/p' | sort -u)
  ((${#wrong[@]} == 0)) && return
  echo "not as clang-format writes them; run clang-format -i: ${wrong[*]}"
  return 1
}

# compiled FILE: whether this build compiles it: a tree without the wheel or Qt leaves sources out
compiled() { grep -qF "\"$PWD/$1\"" build-tidy/compile_commands.json; }

# source_of HEADER: a source through which it is looked at: that of its name, else the first that includes it, else one of a header that does
source_of() {
  local -a headers=("$1") seen=("$1")
  local header file
  if compiled "${1%.h}.cpp"; then echo "${1%.h}.cpp"; return; fi
  while ((${#headers[@]} > 0)); do
    header=${headers[0]}
    headers=("${headers[@]:1}")
    while read -r file; do
      if [[ $file == *.cpp ]]; then
        if compiled "$file"; then echo "$file"; return; fi
      elif [[ " ${seen[*]} " != *" $file "* ]]; then
        headers+=("$file")
        seen+=("$file")
      fi
    done < <(git grep -lF "#include \"$header\"" -- '*.cpp' '*.h')
  done
}

# Headers are looked at through the sources that include them.
check_tidy() {
  local since=${TIDY_SINCE:-}
  local -a files
  # One command per source. Nothing is built there, so the precompiled headers, which are GCC's and not clang's, are missing, too.
  cmake -S . -B build-tidy -G Ninja -DPW_BATCHES=OFF >build-tidy.log 2>&1 || { tail -n 20 build-tidy.log; return 1; }
  sed -i -E 's/ -Winvalid-pch//; s/ -include [^ ]*cmake_pch\.hxx//' build-tidy/compile_commands.json
  if [[ -z $since ]]; then since=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD~1); fi
  if [[ $since == all ]]; then
    mapfile -t files < <(git ls-files -- '*.cpp')
  else
    mapfile -t files < <(git diff --name-only --diff-filter=d "$since" -- '*.cpp' '*.h')
  fi
  mapfile -t files < <(for file in "${files[@]}"; do if [[ $file == *.h ]]; then source_of "$file"; elif compiled "$file"; then echo "$file"; fi; done | sort -u)
  ((${#files[@]} == 0)) && return
  printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 1 clang-tidy -p build-tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-ignored-optimization-argument --extra-arg=-Wno-unknown-argument 2>/dev/null
}

# configured FOLDER "TARGET..." OPTION...: builds into it; without targets all
configured() {
  local folder=$1
  local -a targets
  read -ra targets <<<"$2"
  shift 2
  cmake -S . -B "$folder" -G Ninja -DPW_TORCH=OFF -DPW_CUDA=OFF -DPW_PYTHON=OFF -DCMAKE_BUILD_TYPE=Check "-DCMAKE_CXX_FLAGS_CHECK=-O1 -g1" "$@" >"$folder.log" 2>&1 || { tail -n 20 "$folder.log"; return 1; }
  ninja -C "$folder" -j "$jobs" "${targets[@]}" >>"$folder.log" 2>&1 || { tail -n 40 "$folder.log"; return 1; }
}

check_asan() {
  configured build-asan "" "-DPW_SANITIZE=address;undefined" &&
    QT_QPA_PLATFORM=offscreen ASAN_OPTIONS=detect_leaks=0 ctest --test-dir build-asan -j "$jobs" --output-on-failure --no-tests=error -E '^(layering|package)' | tail -n 40
}

check_tsan() {
  configured build-tsan "channel_test engine_test ucx_test device_messages_test remote_test autograd_protocol_test" -DPW_SANITIZE=thread -DPW_GUI=OFF &&
    TSAN_OPTIONS="suppressions=$PWD/tests/check/tsan.supp" ctest --test-dir build-tsan -j "$jobs" --output-on-failure --no-tests=error -R 'Executor|UcxProcesses|Gathering|SaveCheckpoint|RankEnvironment|Reducer|Communicator|Channel|HostileRank|Device|Meeting|Live|Clock|Verify|Trial|CallThreads|Deadlines|Remote|References|Shares|LostWorker|DroppedMessage|Messages|Numbers|RunRecorder|Synthetic|StudyWorker|DirectWrites|Lane' | tail -n 40
}

check_odr() { configured build-odr "" "-DCMAKE_CXX_FLAGS=-flto=auto -Wodr -Werror=odr -Wlto-type-mismatch"; }

check_package() {
  local file
  file=$(mktemp --suffix=.deb)
  ninja -C build --quiet package_parts && resources/package/deb.sh build "$file" -Zgzip && tests/check/package.sh "$file"
  local result=$?
  rm -f "$file"
  return $result
}

main() {
  local -a names=("$@") failed=()
  ((${#names[@]} > 0)) || names=(format tidy asan tsan odr package)
  local name start
  for name in "${names[@]}"; do
    [[ $(type -t "check_$name") == function ]] || { echo "check: there is no check '$name'; there are: format, tidy, asan, tsan, odr, package." >&2; exit 2; }
    start=$SECONDS
    if "check_$name"; then
      echo "check $name: kept, $((SECONDS - start)) s"
    else
      echo "check $name: violated, $((SECONDS - start)) s"
      failed+=("$name")
    fi
  done
  ((${#failed[@]} == 0)) || { echo "check: ${failed[*]} failed." >&2; exit 1; }
}
main "$@"
