#pragma once

#include <string>

namespace pw {

/// Loads a shared library of ours, from `../lib` beside the executable or from the executable's own folder, and returns what its entry
/// function (`extern "C"`, no arguments) returns. Stays loaded. Throws Error naming the file when it is missing, cannot be loaded or is
/// from another version; `cure` ends that sentence.
[[nodiscard]] const void* loadModule(const std::string& file, const char* entry, const std::string& cure);

}  // namespace pw
