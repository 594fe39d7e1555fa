#include "simulator/search/rank_order.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "simulator/partition/balancer.h"
#include "simulator/partition/stage_costs.h"

namespace pw {
namespace {

constexpr double kMostOrders = 150;                 // that are all tried: those of five ranks that all differ
constexpr std::int64_t kMostOrderWork = 6'000'000;  // actions
constexpr double kMostOrderCuts = 5'000;            // over all orders, that are all tried
constexpr std::size_t kImproved = 2;                // orders, where there are more cuts

/// Of each rank the number of its class: ranks that are alike have the same.
std::vector<int> classesOf(const PipelineTopology& topology, int ranks) {
  std::vector<int> classes;
  for (int r = 0; r < ranks; ++r) {
    int own = r;
    for (int other = 0; other < r && own == r; ++other) {
      if (topology.areAlike(Rank(r), Rank(other))) own = classes[static_cast<std::size_t>(other)];
    }
    classes.push_back(own);
  }
  return classes;
}

/// In how many orders ranks of these classes can stand.
double ordersOf(const std::vector<int>& classes) {
  double orders = 1;
  for (std::size_t i = 0; i < classes.size(); ++i)
    orders *= static_cast<double>(i + 1) /
              static_cast<double>(std::count(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(i) + 1, classes[i]));
  return orders;
}

/// The ranks of these classes in this order, of one class ascending.
std::vector<Rank> ranksOf(const std::vector<int>& classes, const std::vector<int>& order) {
  std::vector<Rank> ranks;
  std::vector<bool> taken(classes.size(), false);
  for (const int wanted : order) {
    std::size_t r = 0;
    while (taken[r] || classes[r] != wanted) ++r;
    taken[r] = true;
    ranks.emplace_back(r);
  }
  return ranks;
}

/// Tries orders of one candidate's ranks, one after the other.
class RankOrders {
 public:
  RankOrders(const SearchShape& shape, const Candidate& start, const std::function<bool()>& shouldContinue)
      : shape_(shape), start_(start), shouldContinue_(shouldContinue), balancer_(shape.model->graph(), shape.model->profile()) {}

  /// Whether to continue.
  bool tryOrder(const std::vector<Rank>& order) {
    if (!shouldContinue_() || work_ > kMostOrderWork) return false;
    SearchShape shape = shape_;
    shape.request.rankOrder = std::ranges::is_sorted(order) ? std::vector<Rank>() : order;
    constexpr std::int64_t kCompiling = 8;  // how much more it is to compile a schedule than to simulate it
    work_ += (kCompiling + 2) * std::int64_t{shape.stages} * shape.request.microbatches;
    Evaluator evaluator(shape);
    std::optional<Candidate> best;
    tryBegins(evaluator, start_.request.begins, start_.moves, best);
    const Answer<std::vector<NodeId>> balanced = balancer_.begins(shape.stages, Balance::Time, speedsOf(shape));
    if (balanced) tryBegins(evaluator, *balanced, start_.moves + 1, best);
    lastIsBest_ = best && std::ranges::all_of(tried_, [&](const Candidate& other) { return Evaluator::isBetterCut(*best, other); });
    if (best) tried_.push_back(std::move(*best));
    return true;
  }

  /// Of the last order whether it is better than all before.
  [[nodiscard]] bool lastIsBest() const { return lastIsBest_; }

  [[nodiscard]] std::vector<Candidate> best(std::size_t most) {
    std::stable_sort(tried_.begin(), tried_.end(), Evaluator::isBetterCut);
    tried_.resize(std::min(tried_.size(), most));
    return tried_.empty() ? std::vector<Candidate>{start_} : std::move(tried_);
  }

 private:
  void tryBegins(Evaluator& evaluator, const std::vector<NodeId>& begins, int moves, std::optional<Candidate>& best) {
    Answer<Candidate> tried = evaluator.evaluate({start_.split, begins}, start_.request.recompute);
    if (!tried) return;  // cannot be cut or placed so
    tried->moves = moves;
    if (!best || Evaluator::isBetterCut(*tried, *best)) best = *std::move(tried);
  }

  const SearchShape& shape_;
  const Candidate& start_;
  std::vector<Candidate> tried_;
  bool lastIsBest_ = false;
  const std::function<bool()>& shouldContinue_;
  Balancer balancer_;
  std::int64_t work_ = 0;
};

}  // namespace

StageSpeeds speedsOf(const SearchShape& shape) {
  const Profile& profile = *shape.profile.profile;
  if (allAtFullSpeed(profile.topology)) return {};
  return stageSpeeds(profile, placementOf(shape.request, shape.stages), shape.request.replicas);
}

std::vector<Candidate> withRankOrders(const SearchShape& shape, const Candidate& start, double cuts,
                                      const std::function<bool()>& shouldContinue) {
  const int ranks = shape.request.ranks;
  const PipelineTopology topology(shape.profile.profile->topology, {ranks}, shape.request.replicas);
  if (!topology.orderMatters()) return {start};
  const std::vector<int> classes = classesOf(topology, ranks);
  RankOrders orders(shape, start, shouldContinue);
  if (ordersOf(classes) <= kMostOrders) {
    std::vector<int> order = classes;
    std::sort(order.begin(), order.end());
    do {
      if (!orders.tryOrder(ranksOf(classes, order))) break;
    } while (std::next_permutation(order.begin(), order.end()));
    return orders.best(ordersOf(classes) * cuts <= kMostOrderCuts ? static_cast<std::size_t>(kMostOrders) : kImproved);
  }
  std::vector<Rank> order(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < order.size(); ++r) order[r] = start.request.rankOrder.empty() ? Rank(r) : start.request.rankOrder[r];
  bool goes = orders.tryOrder(order);
  for (bool moved = true; moved && goes;) {
    moved = false;
    for (std::size_t i = 0; i < order.size(); ++i) {
      for (std::size_t j = i + 1; j < order.size() && goes; ++j) {
        if (classes[order[i].index()] == classes[order[j].index()]) continue;
        std::swap(order[i], order[j]);
        goes = orders.tryOrder(order);
        moved = moved || orders.lastIsBest();
        if (!orders.lastIsBest()) std::swap(order[i], order[j]);
      }
    }
  }
  return orders.best(kImproved);
}

}  // namespace pw
