#pragma once

#include <string>
#include <string_view>

namespace pw {

/// The text in a form that is safe to write to a terminal: anything that could move the cursor, change colours or reorder the text (control
/// characters but line ends, also CR LF, and tabs, C1 controls, bidirectional overrides and isolates, line and paragraph separators)
/// becomes `\u001b`, as JSON writes it; bytes that are not UTF-8 become U+FFFD. Everything else is unchanged, so a JSON document keeps its
/// meaning. Linear.
[[nodiscard]] std::string printable(std::string_view text);

/// The same on one line: line ends and tabs are written as `\u000a` too. For names within a sentence or a table.
[[nodiscard]] std::string printableLine(std::string_view text);

}  // namespace pw
