#pragma once

#include <string>

namespace pw {

/// Loads a shared library of ours from one of `moduleCandidates` and returns what its entry function (`extern "C"`, no arguments) returns.
/// Stays loaded. Throws Error naming the file when there is none, it cannot be loaded or is from another version; `cure` ends that
/// sentence.
[[nodiscard]] const void* loadModule(const std::string& file, const char* entry, const std::string& cure);

}  // namespace pw
