#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "simulator/search/evaluate.h"
#include "simulator/search/search.h"

namespace pw {

/// How long the order of one candidate is searched: `OrderEffort::seconds`.
inline constexpr double kOrderSeconds = 0.25;

/// A candidate whose partition gets an order of its own.
struct OrderStart {
  const SearchShape* shape = nullptr;
  const Candidate* candidate = nullptr;
};

/// The best candidates of different microbatches, stages, splits and recomputation, at most `most`: half of them the best of all, then the
/// best of each other number of stages, then the next best. `found`: by shape.
[[nodiscard]] std::vector<OrderStart> orderStarts(const std::vector<SearchShape>& shapes, const std::vector<std::vector<Candidate>>& found,
                                                  int most);

/// The schedule `auto` with this candidate's partition (`makeOrder`), or with another cut at `places` (ascending) that is better with its
/// own order: of all cuts where they are few (100), in the order of what their orders take at least (`orderBound`) as long as that is less;
/// otherwise, in steps of at most 2,000 forwards, of the most promising that move one begin by a place, again and again from the best, with
/// less time for each. Nothing
/// where `shouldContinue` returned false. Where no order fits, what it needs at least. Throws UsageError for shapes too large to search an
/// order for.
[[nodiscard]] std::optional<Candidate> withOrder(const OrderStart& start, const std::vector<NodeId>& places,
                                                 const std::function<bool()>& shouldContinue);

}  // namespace pw
