#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

/// About how wide a line of UTF-8 is in a common sans-serif font of that size, in the size's unit; with a wide font rather too much than
/// too little. `monospace`: every character is 0.6 of the size wide.
[[nodiscard]] double textWidth(std::string_view text, double size, bool monospace = false);

/// The text in at most `most` lines that are not wider than `width`, broken between words where that is possible; what is left over ends in
/// `…`. No lines for an empty text.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, double size, double width, std::size_t most, bool monospace = false);

}  // namespace pw
