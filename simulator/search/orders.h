#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "simulator/search/search.h"
#include "simulator/search/evaluate.h"

namespace pw {

/// How long the order of one candidate is searched: `OrderEffort::seconds`.
inline constexpr double kOrderSeconds = 0.25;

/// A candidate whose partition gets an order of its own.
struct OrderStart {
  const SearchShape* shape = nullptr;
  const Candidate* candidate = nullptr;
};

/// The best candidates of different microbatches, stages, splits and recomputation, at most `most`, best first. `found`: by shape.
[[nodiscard]] std::vector<OrderStart> orderStarts(const std::vector<SearchShape>& shapes, const std::vector<std::vector<Candidate>>& found,
                                                  int most);

/// The schedule `auto` with this candidate's partition (`makeOrder`); nothing where `goOn` returned false. Where no order fits, what it
/// needs at least. Throws UsageError for shapes too large to search an order for.
[[nodiscard]] std::optional<Candidate> withOrder(const OrderStart& start, const std::function<bool()>& goOn);

}  // namespace pw
