#pragma once

// Internal to the import of traces: names of a user's own, told by regular expressions.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/traces/names/label.h"

namespace pw {

/// Patterns of names, in their order. Copies share them.
class NamePatterns {
 public:
  NamePatterns();  ///< of none
  /// Reads a pattern file. Throws UsageError for one that is not: the sentence names the pattern.
  [[nodiscard]] static NamePatterns parse(std::string_view text, const std::string& source);

  [[nodiscard]] bool empty() const { return patterns_ == nullptr; }
  /// What the first pattern that is found in the name says of it; None where none is, or its numbers are beyond what there can be. Names of
  /// more than 400 characters are not searched. Cost: a search per pattern.
  [[nodiscard]] PipelineLabel label(std::string_view name) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> patterns_;
};

}  // namespace pw
