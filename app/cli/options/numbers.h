#pragma once

#include <cstdint>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace pw::cli {

/// Validators for `->check(…)`: an integer, and a number (`0.5`, `3e-4`), from `least` to `most`. Refused: nan, inf, numbers too large for
/// the type, hexadecimal numbers, an empty text. Help shows the range after the option's description.
[[nodiscard]] CLI::Validator wholeFrom(std::int64_t least, std::int64_t most);
[[nodiscard]] CLI::Validator numberFrom(double least, double most);

/// The number of a run in a store.
[[nodiscard]] CLI::Validator aRunId();
/// A seed: 0 to 2^63 − 1, the range of run stores and JSON.
[[nodiscard]] CLI::Validator aSeed();
/// A positive size, `24GiB`; a duration, `1.5ms`; a comma-separated list of durations.
[[nodiscard]] CLI::Validator aSize();
[[nodiscard]] CLI::Validator aDuration();
[[nodiscard]] CLI::Validator durationList();

/// Appends the range of its value to the description of each option of `command`.
void describeRanges(CLI::App& command);

}  // namespace pw::cli
