#pragma once

// The programs of the tests of distributed autograd.

#include <map>
#include <string>

#include "tests/support/two_worlds.h"

namespace pw::test {

/// By name. Programs with `Unused` in their names make values that the loss does not use.
[[nodiscard]] std::map<std::string, Program> programs();
/// Whether FAST mode runs it: the loss uses all that it makes.
[[nodiscard]] bool usesAll(const std::string& program);

/// A program of calls that nest by chance, over four workers: a pure function of the seed. `dropsSome`: a third of the results is not used.
[[nodiscard]] Program randomProgram(std::uint64_t seed, bool dropsSome);

}  // namespace pw::test
