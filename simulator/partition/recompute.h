#pragma once

#include <compare>
#include <string>
#include <variant>
#include <vector>

namespace pw {

/// Each stage as a whole, except for the loss function.
struct RecomputeFull {
  auto operator<=>(const RecomputeFull&) const = default;
};
/// As few stages as the memory limit allows.
struct RecomputeAuto {
  auto operator<=>(const RecomputeAuto&) const = default;
};
/// Nothing: all activations are kept.
struct RecomputeNone {
  auto operator<=>(const RecomputeNone&) const = default;
};
/// These modules, named as in `moduleRanges`.
struct RecomputeModules {
  std::vector<std::string> names;

  auto operator<=>(const RecomputeModules&) const = default;
};

/// Which activations the backward recomputes instead of the forward keeping them. The alternatives are in the order of their words, by
/// which the search breaks ties.
using Recompute = std::variant<RecomputeAuto, RecomputeFull, RecomputeNone, RecomputeModules>;

/// As written on the command line and in files: the single word `none`, `full` or `auto`, or the names of modules.
[[nodiscard]] std::vector<std::string> wordsOf(const Recompute& recompute);
/// The reverse; no words are `none`. Names are not checked.
[[nodiscard]] Recompute parseRecompute(const std::vector<std::string>& words);

}  // namespace pw
