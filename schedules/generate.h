#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace pw {

/// A named schedule family: what it needs of a shape, and its compute-only order.
struct Generator {
  std::string_view name;      ///< as on the command line: `1f1b`
  std::string_view summary;   ///< one line for `schedule list`
  std::string_view needs;     ///< its constraints in words for `schedule list`; "any shape" where there are none
  /// Nothing when the shape is allowed, else the sentence that says what is wrong and what would do.
  std::optional<std::string> (*refusal)(const Shape&);
  /// Compute-only schedule; called with allowed shapes only. Cost: linear in the number of actions.
  Schedule (*generate)(const Shape&);
};

/// All generators, in the order `schedule list` shows them: forward-only, gpipe, 1f1b.
[[nodiscard]] std::span<const Generator> generators();

/// Generates the named schedule.
/// Throws UsageError for an unknown name (listing the known ones) or a shape the family refuses.
[[nodiscard]] Schedule generate(std::string_view name, const Shape& shape);

}  // namespace pw
