#pragma once

#include <string>

namespace pw::test {

/// As `gzip` writes it.
[[nodiscard]] std::string gzipped(const std::string& text);

/// What `gzip -d` makes of it. Throws where it is damaged.
[[nodiscard]] std::string unzipped(const std::string& packed);

}  // namespace pw::test
