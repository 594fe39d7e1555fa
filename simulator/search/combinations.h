#pragma once

#include <set>
#include <string>
#include <vector>

#include "schedules/error.h"
#include "simulator/search/evaluate.h"
#include "simulator/search/search.h"

namespace pw {

/// The schedules × chunks × microbatches of a search.
struct Combinations {
  std::vector<SearchShape> shapes;  ///< with request and stages only
  std::set<std::string> skipped;    ///< as `Found::skipped`
  bool withFamilies = true;         ///< else only the schedule `auto` is wanted, and families are tried for their splits
  bool withOrders = true;           ///< whether `auto` is wanted
};

/// No schedule of a search takes its ranks and microbatches.
class NothingToTry : public UsageError {
  using UsageError::UsageError;
};

/// What the space covers. Throws UsageError for unknown names and a batch that no count divides, NothingToTry if nothing is possible.
[[nodiscard]] Combinations combinationsOf(const ModelGraph& graph, const SearchSpace& space);

}  // namespace pw
