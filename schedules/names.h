#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

/// Number of single-character insertions, deletions and replacements that turn one into the other (Levenshtein). Cost: product of the
/// lengths.
[[nodiscard]] int editDistance(std::string_view a, std::string_view b);

/// The known names that a mistyped one probably means, nearest first, at most `most` of them: no more than a third of its letters differ,
/// or it is a prefix of theirs. Case, `-` and `_` are ignored; duplicates are listed once. Ties: in the order of `known`.
[[nodiscard]] std::vector<std::string_view> nearNames(std::string_view name, const std::vector<std::string_view>& known,
                                                      std::size_t most = 3);

/// ` (did you mean A or B?)`, or nothing where no name is near.
[[nodiscard]] std::string didYouMean(std::string_view name, const std::vector<std::string_view>& known);

/// A name in lower case without `-`, `_` and blanks, so that two spellings of one name compare equal.
[[nodiscard]] std::string plainName(std::string_view name);

}  // namespace pw
