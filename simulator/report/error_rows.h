#pragma once

#include <string>
#include <vector>

#include "simulator/report/compare.h"

namespace pw {

/// Of a table of errors the rows, by their contribution, the largest first: group, time before, time after, error, difference, share of the
/// sum of all contributions. `–` where there is nothing that takes time. `sendsCompare`: false of a prediction and a run, whose messages
/// (SEND) end when their receiver takes them: an error of theirs says nothing.
[[nodiscard]] std::vector<std::vector<std::string>> errorRows(const std::vector<GroupError>& groups, bool sendsCompare);

/// `+12.3 %`; `–` where one of both takes no time.
[[nodiscard]] std::string errorText(Ns before, Ns after);

}  // namespace pw
