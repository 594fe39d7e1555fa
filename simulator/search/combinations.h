#pragma once

#include <set>
#include <string>
#include <vector>

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

/// What the space covers. Throws UsageError for unknown names, for a batch that no count divides, and if nothing is possible.
[[nodiscard]] Combinations combinationsOf(const ModelGraph& graph, const SearchSpace& space);

}  // namespace pw
