#pragma once

#include <string>

namespace pw {

/// The PyTorch that this program is built for: its C++ libraries change from release to release.
inline constexpr const char* kTorchRelease = "2.11";

/// A `torch` package of a Python environment, or why there is none that can be used.
struct TorchSearch {
  std::string folder;   ///< the package's (it holds lib/libtorch_cpu.so); empty: none that can be used
  std::string version;  ///< `2.11.0+cu130`
  std::string problem;  ///< one sentence: what is missing or wrong, where, and the cure
};

/// Looks where $PIPEWRIGHT_TORCH says (an environment, its site-packages, or the package), else in the active environment ($VIRTUAL_ENV,
/// $CONDA_PREFIX), else asks the python3 in PATH, which takes some 30 ms. An environment with another release is passed over.
[[nodiscard]] TorchSearch findTorch();

/// Whether LibTorch has to be looked for: in an installed program, and where $PIPEWRIGHT_TORCH is set. A program in its build folder has
/// modules that know which wheel they were built with.
[[nodiscard]] bool mustFindTorch();

/// Does nothing where LibTorch need not be looked for. Else finds it, once, and leaves the place in $PIPEWRIGHT_TORCH, so that the
/// processes that this one starts need not look. Throws UsageError with the search's problem.
void requireTorch();

/// Loads a library of the package (`libtorch_cpu.so`, `libtorch_cuda.so`) with all that it needs, so that a module of ours finds it in this
/// process. Does nothing where LibTorch need not be looked for. Throws UsageError as `requireTorch`, and where the package has no such
/// library or it cannot be loaded.
void loadTorchLibrary(const std::string& file);

}  // namespace pw
