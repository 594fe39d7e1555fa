#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pw {

/// Single letters to insert, delete or replace to make one of the other (Levenshtein). Cost: product of the lengths.
[[nodiscard]] int editDistance(std::string_view a, std::string_view b);

/// The known names that are likely meant by a mistyped one, nearest first, at most `most`: no more than a third of its letters differ, or
/// it is the beginning of theirs; case, `-` and `_` do not count. Of equal names the first. Ties: in the order of `known`.
[[nodiscard]] std::vector<std::string_view> nearNames(std::string_view name, const std::vector<std::string_view>& known,
                                                      std::size_t most = 3);

/// ` (did you mean A or B?)`, or nothing where no name is near.
[[nodiscard]] std::string didYouMean(std::string_view name, const std::vector<std::string_view>& known);

/// Lower case letters and digits of a name: what two spellings of one name share.
[[nodiscard]] std::string plainName(std::string_view name);

}  // namespace pw
