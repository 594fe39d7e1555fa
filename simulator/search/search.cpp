#include "simulator/search/search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "simulator/costs/layer_chain.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/find.h"
#include "simulator/partition/balancer.h"
#include "simulator/plan/made_order.h"
#include "simulator/search/combinations.h"
#include "simulator/search/evaluate.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/search/orders.h"
#include "simulator/search/profiles.h"
#include "simulator/search/rank_order.h"
#include "simulator/search/ranking.h"
#include "simulator/search/replica_splits.h"
#include "simulator/text/parallel_for.h"

namespace pw {
namespace {

constexpr std::int64_t kOrderWork = 5'000'000;  ///< of searching an order, in actions to simulate
constexpr int kRounds = 8;                      ///< over all splits; plans rarely changed in a fifth round

/// Compute actions of a pass over its schedule.
std::int64_t workOf(const SearchShape& shape) { return std::int64_t{shape.stages} * shape.request.microbatches; }

class Searcher {
 public:
  Searcher(const ModelGraph& graph, const ProfileSource& profiles, const SearchSpace& space, const SearchProgress& progress)
      : graph_(graph),
        profiles_(profiles),
        space_(space),
        progress_(progress),
        threads_(space.threads > 0 ? space.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        combinations_(combinationsOf(graph, space)) {}
  Found run();

 private:
  void findProfiles();
  void findModels();
  void findStarts();
  Answer<std::vector<SplitStart>> startsOf(const SearchShape& shape, const Balancer& balancer) const;
  void tryShape(int shape);
  const std::vector<NodeId>& placesOf(const Candidate& candidate);
  /// A candidate in `found_`.
  struct Place {
    std::size_t shape = 0, candidate = 0;
  };
  [[nodiscard]] std::vector<Place> bestPlaces() const;
  [[nodiscard]] std::optional<Candidate> improved(SearchShape shape, const Candidate& start);
  void improveBest();
  void makeOrders();
  [[nodiscard]] std::int64_t orderWork() const { return combinations_.withOrders ? kOrderWork * std::max(0, space_.orders) : 0; }
  void report(const Candidate* candidate);
  void skip(const SearchShape& shape, const std::string& why);
  using StartKey = std::tuple<std::int64_t, int, StageSpeeds>;
  [[nodiscard]] static StartKey startKey(const SearchShape& s) { return {s.request.microbatch, s.stages, s.speeds}; }

  const ModelGraph& graph_;
  const ProfileSource& profiles_;
  const SearchSpace& space_;
  const SearchProgress& progress_;
  int threads_;
  Combinations combinations_;
  std::vector<SearchShape>& shapes_ = combinations_.shapes;
  std::map<StartKey, std::vector<SplitStart>> starts_;                  ///< by microbatch size, stages and their speeds
  std::map<std::pair<std::int64_t, int>, std::vector<NodeId>> places_;  ///< where the model can be cut, by microbatch size and stages
  std::vector<std::vector<Candidate>> found_;                           ///< by shape
  std::vector<Candidate> ordered_;                                      ///< of the schedule `auto`
  std::mutex mutex_;                                                    ///< of progress, what is skipped, `done_`
  std::int64_t done_ = 0, all_ = 0;                                     ///< work, in actions to simulate
  std::atomic<bool> cancelled_{false};
};

void Searcher::report(const Candidate* candidate) {
  const std::lock_guard lock(mutex_);
  constexpr std::int64_t kParts = 1'000'000;
  const std::int64_t all = std::max<std::int64_t>(1, all_);
  const auto parts = static_cast<int>(std::min(all, kParts));
  if (!cancelled_ && progress_ &&
      !progress_(static_cast<int>(static_cast<double>(done_) / static_cast<double>(all) * parts), parts, candidate))
    cancelled_ = true;
}

void Searcher::skip(const SearchShape& shape, const std::string& why) {
  const std::lock_guard lock(mutex_);
  combinations_.skipped.insert(fmt::format("{}, {} microbatches: {}", shape.request.schedule, shape.request.microbatches, why));
}

void Searcher::findProfiles() {
  std::map<std::int64_t, SizedProfile> known;
  for (SearchShape& shape : shapes_) {
    const auto [found, isNew] = known.try_emplace(shape.request.microbatch);
    if (isNew && !cancelled_) {
      report(nullptr);  // measuring may take its time
      found->second = profiles_(shape.request.microbatch);
    }
    shape.profile = found->second;
  }
}

/// What combinations with the same microbatch size share.
void Searcher::findModels() {
  std::map<std::int64_t, std::shared_ptr<ModelCosts>> known;
  for (SearchShape& shape : shapes_) {
    std::shared_ptr<ModelCosts>& model = known[shape.request.microbatch];
    if (!model) model = std::make_shared<ModelCosts>(graph_, *shape.profile.profile, shape.request.microbatch);
    shape.model = model;
    shape.speeds = speedsOf(shape);
  }
}

Answer<std::vector<SplitStart>> Searcher::startsOf(const SearchShape& shape, const Balancer& balancer) const {
  std::vector<SplitStart> starts;
  const auto add = [&](SplitSource source, const std::vector<NodeId>& begins) {
    if (std::ranges::none_of(starts, [&](const SplitStart& s) { return s.begins == begins; })) starts.push_back({source, begins});
  };
  if (static_cast<int>(graph_.splitMarkers.size()) + 1 == shape.stages) add(SplitSource::Marks, graph_.splitMarkers);
  for (const Balance by : space_.balances) {
    const Answer<std::vector<NodeId>> begins = balancer.begins(shape.stages, by, shape.speeds);
    if (!begins) return begins.refusal();
    add(splitSource(by), *begins);
  }
  return starts;
}

void Searcher::findStarts() {
  std::map<std::int64_t, std::vector<const SearchShape*>> bySize;  // one of each number of stages
  for (const SearchShape& shape : shapes_) {
    if (starts_.try_emplace(startKey(shape)).second) bySize[shape.request.microbatch].push_back(&shape);
  }
  std::vector<const std::vector<const SearchShape*>*> sizes;
  sizes.reserve(bySize.size());
  for (const auto& [size, shapes] : bySize) sizes.push_back(&shapes);
  parallelFor(static_cast<int>(sizes.size()), threads_, [&](int i) {
    const std::vector<const SearchShape*>& shapes = *sizes[static_cast<std::size_t>(i)];
    if (cancelled_) return;
    const Balancer balancer(graph_, *shapes.front()->profile.profile);
    for (const SearchShape* shape : shapes) {
      if (cancelled_) return;
      Answer<std::vector<SplitStart>> starts = startsOf(*shape, balancer);
      if (starts) {
        starts_.at(startKey(*shape)) = *std::move(starts);
      } else {
        const std::lock_guard lock(mutex_);
        combinations_.skipped.insert(fmt::format("{} stages: {}", shape->stages, starts.refusal().why));
      }
      report(nullptr);
    }
  });
}

void Searcher::tryShape(int at) {
  const SearchShape& shape = shapes_[static_cast<std::size_t>(at)];
  const std::vector<SplitStart>& starts = starts_.at(startKey(shape));
  if (starts.empty() || cancelled_) return;
  Evaluator evaluator(shape);
  std::vector<Candidate>& found = found_[static_cast<std::size_t>(at)];
  const auto tryOne = [&](const SplitStart& start, const Recompute& recompute) -> std::optional<Candidate> {
    if (cancelled_) return std::nullopt;
    Answer<Candidate> candidate = evaluator.evaluate(start, recompute);
    if (candidate) return *std::move(candidate);
    skip(shape, candidate.refusal().why);
    return std::nullopt;
  };
  const auto keep = [&](const std::optional<Candidate>& candidate) {
    if (!candidate) return;
    found.push_back(*candidate);
    report(combinations_.withFamilies ? &*candidate : nullptr);
  };
  for (const SplitStart& start : starts) {
    const auto kept = tryOne(start, RecomputeNone());
    keep(kept);
    if (!kept || !space_.recompute || (isLayerChain(graph_) && !mayRecompute(graph_))) continue;
    const auto full = tryOne(start, RecomputeFull());
    const auto some = kept->fits() ? std::nullopt : tryOne(start, RecomputeAuto());
    const bool same = some && full && some->step == full->step && some->peak == full->peak;
    if (full && !same && (kept->fits() || full->fits())) keep(full);
    keep(some);  // also where it is all now, or does not fit: both may change as splits move
  }
  const auto fits = [](const Candidate& c) { return c.fits() && std::holds_alternative<RecomputeNone>(c.request.recompute); };
  if (cancelled_ || std::ranges::any_of(found, fits)) return;
  keep(fittedSplits(shape, Balancer(graph_, *shape.profile.profile), evaluator, RecomputeNone()));
}

/// Where its model can be cut. Not for several threads at once, but for places that are known.
const std::vector<NodeId>& Searcher::placesOf(const Candidate& candidate) {
  const std::int64_t microbatch = candidate.request.microbatch;
  const auto [entry, isNew] = places_.try_emplace({microbatch, candidate.stages});
  if (isNew) entry->second = placesFor(graph_, bindBatch(graph_, microbatch), candidate.stages);
  return entry->second;
}

/// The best of each combination and way to recompute, and of those the best.
std::vector<Searcher::Place> Searcher::bestPlaces() const {
  std::vector<Place> chosen;
  for (std::size_t s = 0; s < shapes_.size(); ++s) {
    std::map<Recompute, std::size_t> best;
    for (std::size_t i = 0; i < found_[s].size(); ++i) {
      const auto [entry, isNew] = best.try_emplace(found_[s][i].request.recompute, i);
      if (!isNew && isBetter(found_[s][i], found_[s][entry->second])) entry->second = i;
    }
    for (const auto& [recompute, i] : best) chosen.push_back({s, i});
  }
  const auto at = [&](const Place& place) -> const Candidate& { return found_[place.shape][place.candidate]; };
  std::sort(chosen.begin(), chosen.end(), [&](const Place& a, const Place& b) { return isBetter(at(a), at(b)); });
  chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(std::max(0, space_.improve))));
  return chosen;
}

/// The candidate with other ranks and splits; nothing where these are no better. Counts its work as done.
std::optional<Candidate> Searcher::improved(SearchShape shape, const Candidate& start) {
  const auto shouldContinue = [&] {
    report(nullptr);
    return !cancelled_.load();
  };
  const std::vector<NodeId>& places = places_.at({start.request.microbatch, start.stages});
  const std::vector<Candidate> ordered =
      space_.base.rankOrder.empty() ? withRankOrders(shape, start, cutsAt(places.size(), start.request.begins.size()), shouldContinue)
                                    : std::vector<Candidate>{start};
  std::int64_t counted = 0;  // of this candidate's work in `done_`
  const auto count = [&](double share) {
    const std::lock_guard lock(mutex_);
    const auto now = static_cast<std::int64_t>(share * static_cast<double>(workOf(shape)));
    done_ += now - counted;
    counted = now;
  };
  Candidate best = start;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    shape.request.rankOrder = ordered[i].request.rankOrder;
    Evaluator evaluator(shape);
    const Candidate moved = evaluator.improve(ordered[i], places, kRounds, [&](double share) {
      count((static_cast<double>(i) + std::min(1.0, share)) / static_cast<double>(ordered.size()));
      return shouldContinue();
    });
    if (Evaluator::isBetterCut(moved, best)) best = moved;
  }
  shape.request.rankOrder = best.request.rankOrder;
  const Schedule rows = Evaluator(shape).rows();
  best = withOwnSplits(std::move(shape), std::move(best), rows);
  count(1);
  return best.moves > 0 || best.request.rankOrder != start.request.rankOrder || !best.request.replicaBegins.empty()
             ? std::optional(std::move(best))
             : std::nullopt;
}

void Searcher::improveBest() {
  const std::vector<Place> chosen = bestPlaces();
  const auto at = [&](const Place& place) -> Candidate& { return found_[place.shape][place.candidate]; };
  for (const Place& place : chosen) static_cast<void>(placesOf(at(place)));
  {
    const std::lock_guard lock(mutex_);
    all_ = done_ + orderWork();
    for (const Place& place : chosen) all_ += workOf(shapes_[place.shape]);
  }
  std::vector<std::optional<Candidate>> better(chosen.size());
  parallelFor(static_cast<int>(chosen.size()), threads_, [&](int i) {
    if (cancelled_) return;
    const Place& place = chosen[static_cast<std::size_t>(i)];
    std::optional<Candidate>& found = better[static_cast<std::size_t>(i)] = improved(shapes_[place.shape], at(place));
    report(combinations_.withFamilies && found ? &*found : nullptr);
  });
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!better[i]) continue;
    Candidate& old = at(chosen[i]);
    if (better[i]->step <= old.step && better[i]->peak <= old.peak) {
      old = *better[i];
    } else {
      found_[chosen[i].shape].push_back(*better[i]);
    }
  }
}

void Searcher::makeOrders() {
  const std::vector<OrderStart> starts = orderStarts(shapes_, found_, space_.orders);
  for (const OrderStart& start : starts) static_cast<void>(placesOf(*start.candidate));
  {
    const std::lock_guard lock(mutex_);
    all_ = done_ + kOrderWork * static_cast<std::int64_t>(starts.size());
  }
  std::vector<std::optional<Candidate>> made(starts.size());
  parallelFor(static_cast<int>(starts.size()), threads_, [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const auto shouldContinue = [&] {
      report(nullptr);
      return !cancelled_.load();
    };
    const PlanRequest& request = starts[at].candidate->request;
    if (const auto no = obstacleToOrder(request, *starts[at].shape->model, starts[at].shape->stages)) {
      const std::lock_guard lock(mutex_);
      combinations_.skipped.insert(fmt::format("{}, {} microbatches: {}", kAutoSchedule, request.microbatches, no->why));
      return;
    }
    made[at] = withOrder(starts[at], places_.at({request.microbatch, starts[at].candidate->stages}), shouldContinue);
    if (!made[at]) return;
    {
      const std::lock_guard lock(mutex_);
      done_ += kOrderWork;
    }
    report(&*made[at]);
  });
  for (const auto& candidate : made) {
    if (candidate) ordered_.push_back(*candidate);
  }
}

Found Searcher::run() {
  std::int64_t most = 1;
  for (const SearchShape& shape : shapes_) {
    all_ += workOf(shape);
    most = std::max(most, workOf(shape));
  }
  all_ += most * std::max(0, space_.improve) + orderWork();
  findProfiles();
  if (!cancelled_) findModels();
  if (!cancelled_) findStarts();
  found_.resize(shapes_.size());
  parallelFor(cancelled_ ? 0 : static_cast<int>(shapes_.size()), threads_, [&](int i) {
    if (cancelled_) return;
    tryShape(i);
    {
      const std::lock_guard lock(mutex_);
      done_ += workOf(shapes_[static_cast<std::size_t>(i)]);
    }
    report(nullptr);
  });
  if (!cancelled_) improveBest();
  if (!cancelled_ && combinations_.withOrders) makeOrders();
  Found found;
  if (combinations_.withFamilies) {
    for (const auto& candidates : found_) found.candidates.insert(found.candidates.end(), candidates.begin(), candidates.end());
  }
  found.candidates.insert(found.candidates.end(), ordered_.begin(), ordered_.end());
  rankCandidates(found.candidates);
  found.skipped.assign(combinations_.skipped.begin(), combinations_.skipped.end());
  found.shapes = static_cast<int>(shapes_.size());
  found.cancelled = cancelled_;
  return found;
}

}  // namespace

std::vector<int> usualCounts(int ranks, int replicas, std::int64_t batch) {
  std::set<int> counts;
  for (const int times : {1, 2, 4, 8}) {
    if (batch == 0 || std::int64_t{ranks} * times * replicas <= batch) counts.insert(ranks * times);
  }
  if (counts.empty()) counts.insert(static_cast<int>(std::max<std::int64_t>(1, batch / replicas)));
  for (std::int64_t count = 1; count <= std::min<std::int64_t>(batch / replicas, kMaxMicrobatches); ++count) {
    if (batch % (count * replicas) == 0) counts.insert(static_cast<int>(count));
  }
  return {counts.begin(), counts.end()};
}

Found searchPlans(const ModelGraph& graph, const ProfileSource& profiles, const SearchSpace& space, const SearchProgress& progress) {
  return Searcher(graph, profiles, space, progress).run();
}

}  // namespace pw
