#pragma once

#include <string>
#include <string_view>

namespace pw {

/// The text as it can be written to a terminal: what could move its cursor, change its colours or reorder what is read (control characters
/// but line ends, also CR LF, and tabs, C1 controls, bidirectional overrides and isolates, line and paragraph separators) becomes `\u001b`,
/// as JSON writes it; bytes that are not UTF-8 become U+FFFD. All else, and so all of a JSON document's meaning, stays. Linear.
[[nodiscard]] std::string printable(std::string_view text);

/// The same on one line: line ends and tabs are written as `\u000a` too. For names within a sentence or a table.
[[nodiscard]] std::string printableLine(std::string_view text);

}  // namespace pw
