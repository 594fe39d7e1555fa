#pragma once

#include <string>

namespace pw::test {

/// As `gzip` writes it.
[[nodiscard]] std::string gzipped(const std::string& text);

}  // namespace pw::test
