#pragma once

#include <string>
#include <string_view>

namespace pw {

/// Reads a whole file. Throws UsageError when it cannot.
[[nodiscard]] std::string readFile(const std::string& path);
/// The first 4 KiB of a file, enough to tell its format; less of a shorter one, nothing of one that cannot be read.
[[nodiscard]] std::string headOf(const std::string& path);
/// Writes a file through a temporary beside it and a rename, so that a reader never sees half of it. Throws Error when it cannot.
void writeFile(const std::string& path, std::string_view text);

/// Writes all of `text` to an open file; false with errno set when that fails.
[[nodiscard]] bool writeAll(int descriptor, std::string_view text);

}  // namespace pw
