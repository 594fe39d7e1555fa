#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pw {

/// Reads a whole file, or what a pipe gives until its end. Throws UsageError when it cannot, and for more than 2 GiB, as of a device
/// without an end.
[[nodiscard]] std::string readFile(const std::string& path);
/// The first bytes of a file, by default enough to tell its format; less of a shorter one, nothing of one that cannot be read or is no
/// regular file: what is read of a pipe would be missing after.
[[nodiscard]] std::string headOf(const std::string& path, std::size_t bytes = 4096);
/// Writes a file through a temporary beside it and a rename, so that a reader never sees half of it. Throws Error when it cannot.
void writeFile(const std::string& path, std::string_view text);

/// Writes all of `text` to an open file; false with errno set when that fails.
[[nodiscard]] bool writeAll(int descriptor, std::string_view text);

}  // namespace pw
