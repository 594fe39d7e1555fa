#include "backends/torch/wheel.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "backends/host/environment.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// The version of a `torch` package in that folder: the text in quotes of `__version__ = '2.11.0+cu130'`; nothing where it is none.
std::optional<std::string> versionIn(const fs::path& package) {
  std::ifstream file(package / "version.py");
  for (std::string line; std::getline(file, line);) {
    const std::size_t begin = line.find_first_of("'\""), end = line.find_last_of("'\"");
    if (line.starts_with("__version__") && begin < end) return line.substr(begin + 1, end - begin - 1);
  }
  return std::nullopt;
}

/// Where `folder` may hold a torch package: as site-packages, as the package itself, or as an environment.
std::vector<fs::path> packagesIn(const fs::path& folder) {
  std::vector<fs::path> places{folder / "torch", folder}, environments;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "lib", ignored)) {
    if (entry.path().filename().string().starts_with("python3")) environments.push_back(entry.path() / "site-packages" / "torch");
  }
  std::ranges::sort(environments);
  places.insert(places.end(), environments.begin(), environments.end());
  return places;
}

/// The package that python3 would import; empty where it has none. The working folder, which Python would look into first, does not count.
std::string packageOfPython() {
  constexpr const char* kAsk =
      "timeout 20 python3 -c \"import sys; sys.path[:] = [p for p in sys.path if p]; import importlib.util as u; "
      "s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')\" 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> answer(popen(kAsk, "r"), &pclose);
  std::array<char, 4096> line{};
  if (answer == nullptr || std::fgets(line.data(), line.size(), answer.get()) == nullptr) return {};
  const std::string_view path(line.data());
  return std::string(path.substr(0, path.find('\n')));
}

bool isRightRelease(std::string_view version) {
  const std::string_view release = kTorchRelease;
  return version.starts_with(release) && (version.size() == release.size() || version[release.size()] == '.');
}

std::string cure() {
  return fmt::format("make one with `python3 -m venv ~/torch && ~/torch/bin/pip install torch=={}.0` and set PIPEWRIGHT_TORCH=~/torch",
                     kTorchRelease);
}

/// Looks into one folder. The problem says what is wrong with it; it is empty where there is no torch at all.
TorchSearch searchIn(const fs::path& folder) {
  TorchSearch found;
  for (const fs::path& package : packagesIn(folder)) {
    const std::optional<std::string> version = versionIn(package);
    if (!version) continue;
    const std::string path = absolutePath(package.string());
    if (!isRightRelease(*version)) {
      found.problem = fmt::format("{} is torch {}, and this program runs models with torch {}", path, *version, kTorchRelease);
    } else if (!pathExists((package / "lib" / "libtorch_cpu.so").string())) {
      found.problem = fmt::format("{} has no lib/libtorch_cpu.so", path);
    } else {
      return {path, *version, ""};
    }
  }
  return found;
}

const char* environmentVariable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

const TorchSearch& search() {
  static const TorchSearch found = findTorch();
  return found;
}

}  // namespace

TorchSearch findTorch() {
  if (const char* given = environmentVariable("PIPEWRIGHT_TORCH")) {
    TorchSearch found = searchIn(given);
    if (!found.folder.empty()) return found;
    const std::string problem = found.problem.empty() ? fmt::format("there is no torch package in {}", given) : found.problem;
    found.problem =
        fmt::format("PIPEWRIGHT_TORCH cannot be used: {}; give the site-packages folder of a Python environment with torch {}, or {}.",
                    problem, kTorchRelease, cure());
    return found;
  }
  std::string wrong;
  const auto searchAlso = [&](const fs::path& folder) {
    TorchSearch found = searchIn(folder);
    if (wrong.empty()) wrong = found.problem;
    return found;
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* folder = environmentVariable(name);
    if (folder == nullptr) continue;
    if (TorchSearch found = searchAlso(folder); !found.folder.empty()) return found;
  }
  if (const std::string package = packageOfPython(); !package.empty()) {
    if (TorchSearch found = searchAlso(package); !found.folder.empty()) return found;
  }
  const std::string where = wrong.empty() ? "neither the active environment nor python3 in PATH has it" : wrong;
  return {"", "", fmt::format("Running models needs a Python environment with torch {}: {}; {}.", kTorchRelease, where, cure())};
}

bool mustFindTorch() { return environmentVariable("PIPEWRIGHT_TORCH") != nullptr || installPrefix().has_value(); }

void requireTorch() {
  if (!mustFindTorch()) return;
  if (search().folder.empty()) throw UsageError(search().problem);
  setVariable("PIPEWRIGHT_TORCH", search().folder);
}

void loadTorchLibrary(const std::string& file) {
  if (!mustFindTorch()) return;
  requireTorch();
  const std::string path = search().folder + "/lib/" + file;
  if (!pathExists(path)) {
    throw UsageError(fmt::format("torch {} in {} has no lib/{}; install PyTorch's wheel for CUDA there, or compute on the CPU.",
                                 search().version, search().folder, file));
  }
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    throw UsageError(fmt::format("{} cannot be loaded ({}); install torch {} there again, or {}.", path, dlerror(), kTorchRelease, cure()));
}

}  // namespace pw
