#include "simulator/search/orders.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "simulator/plan/made_order.h"
#include "simulator/search/ranking.h"

namespace pw {

std::vector<OrderStart> orderStarts(const std::vector<SearchShape>& shapes, const std::vector<std::vector<Candidate>>& found, int most) {
  std::vector<OrderStart> starts;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    if (shapes[s].stages % shapes[s].request.ranks != 0) continue;
    for (const Candidate& candidate : found[s]) starts.push_back({&shapes[s], &candidate});
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const OrderStart& a, const OrderStart& b) { return isBetter(*a.candidate, *b.candidate); });
  std::set<std::tuple<int, int, Recompute, std::vector<NodeId>, std::vector<Rank>>> known;
  std::erase_if(starts, [&](const OrderStart& start) {
    const PlanRequest& r = start.candidate->request;
    return !known.emplace(r.microbatches, start.candidate->stages, r.recompute, r.begins, r.rankOrder).second;
  });
  const std::size_t count = std::min(starts.size(), static_cast<std::size_t>(std::max(0, most)));
  // What families make of a number of stages says little about what an order of its own does: the second half begins with the best of
  // others.
  std::set<int> stages;
  for (std::size_t i = 0; i < count / 2; ++i) stages.insert(starts[i].candidate->stages);
  std::stable_partition(starts.begin() + static_cast<std::ptrdiff_t>(count / 2), starts.end(),
                        [&](const OrderStart& start) { return stages.insert(start.candidate->stages).second; });
  starts.resize(count);
  return starts;
}

namespace {

constexpr double kFewCuts = 100;            ///< that are all looked at
constexpr std::size_t kNeighbours = 8;      ///< cuts of larger models
constexpr double kNeighbourSeconds = 0.05;  ///< for the order of each
constexpr int kNeighbourRounds = 4;         ///< of these, each from the best of the one before

constexpr std::int64_t kMostActions = 2'000;  ///< forwards of a step, where these orders still take little of a search

using Begins = std::vector<NodeId>;

std::vector<Begins> allCuts(const std::vector<NodeId>& places, std::size_t count) {
  std::vector<bool> chosen(places.size(), false);
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(count), true);
  std::vector<Begins> cuts;
  do {
    Begins begins;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (chosen[i]) begins.push_back(places[i]);
    }
    cuts.push_back(std::move(begins));
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return cuts;
}

/// With one begin moved to the next place before or after it.
std::vector<Begins> neighbouringCuts(const std::vector<NodeId>& places, const Begins& begins) {
  std::vector<Begins> cuts;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const NodeId low = i == 0 ? NodeId(0) : begins[i - 1];
    const NodeId high = i + 1 < begins.size() ? begins[i + 1] : NodeId(std::numeric_limits<std::int32_t>::max());
    const auto at = std::lower_bound(places.begin(), places.end(), begins[i]);
    const auto add = [&](NodeId place) {
      if (place <= low || place >= high) return;
      cuts.push_back(begins);
      cuts.back()[i] = place;
    };
    if (at != places.begin()) add(*(at - 1));
    const auto after = at != places.end() && *at == begins[i] ? at + 1 : at;
    if (after != places.end()) add(*after);
  }
  return cuts;
}

/// Makes orders for cuts of one combination.
class CutOrders {
 public:
  CutOrders(const SearchShape& shape, const Candidate& from, const std::function<bool()>& shouldContinue)
      : shape_(shape), from_(from), shouldContinue_(shouldContinue) {
    shape_.request.schedule = kAutoSchedule;
    shape_.request.rankOrder = from.request.rankOrder;
    shape_.request.chunks = shape_.stages / shape_.request.ranks;
  }

  [[nodiscard]] Candidate made(const Begins& begins, double seconds) {
    PlanRequest request = requestOf(begins);
    MadeOrder order = makeOrder(request, *shape_.model, shape_.stages,
                                {.seconds = seconds, .shouldContinue = [this](double) { return shouldContinue_(); }});
    Candidate candidate = Evaluator(shape_, std::move(order.rows)).evaluate({from_.split, begins}, request.recompute).orThrow();
    candidate.certificate = std::move(order.certificate);
    candidate.moves = from_.moves + (begins == from_.request.begins ? 0 : 1);
    return candidate;
  }

  /// Cuts whose orders may end earlier than `best`, with what they take at least, ascending.
  [[nodiscard]] std::vector<std::pair<Ns, Begins>> promising(const std::vector<Begins>& cuts, const Candidate& best) {
    std::vector<std::pair<Ns, Begins>> list;
    for (const Begins& begins : cuts) {
      if (begins == from_.request.begins || !shouldContinue_()) continue;
      const PlanRequest request = requestOf(begins);
      if (obstacleToOrder(request, *shape_.model, shape_.stages)) continue;
      const Ns bound = orderBound(request, *shape_.model, shape_.stages);
      if (best.excess > 0 || bound < best.step) list.emplace_back(bound, begins);
    }
    std::sort(list.begin(), list.end());
    return list;
  }

 private:
  [[nodiscard]] PlanRequest requestOf(const Begins& begins) const {
    PlanRequest request = from_.request;
    request.begins = begins;
    request.replicaBegins.clear();
    return request;
  }

  SearchShape shape_;
  const Candidate& from_;
  const std::function<bool()>& shouldContinue_;
};

}  // namespace

std::optional<Candidate> withOrder(const OrderStart& start, const std::vector<NodeId>& places,
                                   const std::function<bool()>& shouldContinue) {
  const Candidate& from = *start.candidate;
  CutOrders orders(*start.shape, from, shouldContinue);
  Candidate first = orders.made(from.request.begins, kOrderSeconds), best = first;
  const double ways = cutsAt(places.size(), from.request.begins.size());
  const bool few = ways >= 1 && ways <= kFewCuts;
  if (!few && std::int64_t{from.stages} * from.request.microbatches > kMostActions)
    return shouldContinue() ? std::optional(std::move(best)) : std::nullopt;
  for (int round = 0; round < (few ? 1 : kNeighbourRounds); ++round) {
    const Begins center = best.request.begins;
    auto cuts = orders.promising(few ? allCuts(places, center.size()) : neighbouringCuts(places, center), best);
    if (!few) cuts.resize(std::min(cuts.size(), kNeighbours));
    for (const auto& [bound, begins] : cuts) {
      if (!shouldContinue()) return std::nullopt;
      if (best.excess == 0 && bound >= best.step) break;
      Candidate tried = orders.made(begins, few ? kOrderSeconds : kNeighbourSeconds);
      if (Evaluator::isBetterCut(tried, best)) best = std::move(tried);
    }
    if (best.request.begins == center) break;
  }
  if (!few && best.request.begins != from.request.begins) {  // with the time that its plan's order gets
    Candidate longer = orders.made(best.request.begins, kOrderSeconds);
    best = Evaluator::isBetterCut(longer, first) ? std::move(longer) : std::move(first);
  }
  return shouldContinue() ? std::optional(std::move(best)) : std::nullopt;
}

}  // namespace pw
