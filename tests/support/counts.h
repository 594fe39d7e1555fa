#pragma once

#include <cstdint>
#include <cstdlib>

namespace pw::test {

/// How many of something a test tries: as the environment says, else as many as take seconds (see "Longer runs" in the docs on tests).
inline std::uint64_t countFrom(const char* variable, std::uint64_t usual) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? usual : std::strtoull(given, nullptr, 10);
}

}  // namespace pw::test
