#pragma once

#include <cstdint>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace pw::cli {

/// What an option's value must be, for `->check(…)`: an integer or a number from `least` to `most`, written as digits without anything
/// around them. Not taken: nan, inf, numbers beyond the type, hexadecimal ones, an empty text. Help shows the range after the option's
/// description.
[[nodiscard]] CLI::Validator wholeFrom(std::int64_t least, std::int64_t most);
[[nodiscard]] CLI::Validator numberFrom(double least, double most);

/// Every seed: 0 to 2^63 − 1, as a run store and JSON hold them.
[[nodiscard]] CLI::Validator aSeed();
/// A positive size, `24GiB`; a duration, `1.5ms`; one or several with commas between them.
[[nodiscard]] CLI::Validator aSize();
[[nodiscard]] CLI::Validator aDuration();
[[nodiscard]] CLI::Validator durationList();

/// Adds to the description of each option of `command` what its value must be.
void describeRanges(CLI::App& command);

}  // namespace pw::cli
