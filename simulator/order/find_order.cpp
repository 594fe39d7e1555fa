#include "simulator/order/find_order.h"

#include <algorithm>
#include <array>
#include <future>
#include <mutex>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/order/anneal_order.h"
#include "simulator/order/exact_order.h"
#include "simulator/order/greedy_order.h"
#include "simulator/order/order_model.h"
#include "simulator/order/recomputation.h"
#include "simulator/order/tune_order.h"
#include "simulator/order/window_bound.h"
#include "simulator/report/lower_bound.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

constexpr int kMostPairs = 4'000'000;  ///< (stage, microbatch) pairs: about 2 GB

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Work is counted in nanoseconds of a machine of 2020.
struct Work {
  static std::int64_t ofTrial(const OrderModel& model) { return 225 + 5 * static_cast<std::int64_t>(model.actions()); }
  static std::int64_t ofWindows(const OrderModel& model) {
    const auto actions = static_cast<std::int64_t>(model.actions()), ranks = static_cast<std::int64_t>(std::max(1, model.ranks));
    return actions * (8'000 * static_cast<std::int64_t>(model.classes.size()) + 100 * actions) / ranks;
  }
  /// That branch and bound looks at.
  static std::int64_t ofWindow(const OrderModel& model) {
    return 350 + 6 * static_cast<std::int64_t>(model.actions()) / std::max(1, model.ranks);
  }
  static std::int64_t ofBuild(const OrderModel& model) { return 750 + 50 * static_cast<std::int64_t>(model.actions()); }
};

Ns timeOn(Clock clock, const Program& program, const Times& times) {
  switch (clock) {
    case Clock::Flush: return makespanOf(program, program.duration, times);
    case Clock::Window: return windowOf(program, program.duration, times);
  }
  return 0;
}

/// A schedule as the simulator sees it.
struct Judged {
  Ns time = 0;
  std::vector<Bytes> excess;  ///< by rank: bytes above its limit
  bool fits = true;
};
Judged judge(const OrderProblem& problem, const CostTable& costs, const Schedule& schedule) {
  const Program program = compile(schedule, costs);
  Times times;
  execute(program, times);
  Judged judged{timeOn(problem.clock, program, times), std::vector<Bytes>(at(problem.ranks), 0), true};
  for (std::size_t r = 0; r < at(problem.ranks); ++r) {
    if (!problem.limits.empty()) judged.excess[r] = std::max<Bytes>(0, program.peakBytes[r] - problem.limits[r]);
    if (judged.excess[r] > 0 || (!problem.liveLimits.empty() && program.peakLive[r] > problem.liveLimits[r])) judged.fits = false;
  }
  return judged;
}

struct Start {
  OrderRows rows;
  Ns time = 0;
  std::string by;
};

/// The search under one choice of recomputation.
class Search {
 public:
  Search(const OrderProblem& problem, CostTable costs, Ns bound, const OrderEffort& effort);

  /// Families and greedy orders: false where nothing fits.
  bool begin();
  /// Improves what it has with this much work; false: it was stopped.
  bool improve(std::int64_t work, const std::function<bool(std::int64_t)>& goOn);

  /// Looks for a faster order, or the proof that there is none, with this much work.
  void prove(std::int64_t work, const std::function<bool(std::int64_t)>& goOn);

  /// Whether branch and bound is likely to end.
  [[nodiscard]] bool isSmall() const { return model_.actions() <= 250; }
  void raiseBound(Ns bound) { bound_ = std::max(bound_, bound); }
  [[nodiscard]] Ns best() const { return best_; }
  [[nodiscard]] std::int64_t spent() const { return spent_; }
  FoundOrder result();

 private:
  static constexpr std::size_t kStarts = 8;
  static constexpr double kStartShare = 3e8;     ///< of a second's work, for greedy orders
  static constexpr int kChains = kOrderThreads;  ///< that anneal side by side

  void addFamilies();
  void addGreedy();
  void addGreedy(const GreedyRule& rule);
  void consider(const OrderRows& rows, std::string_view by);
  void tryWhole(const Schedule& schedule, std::string_view by);
  void share(int count, const std::function<void(int)>& work) const;
  bool count(std::int64_t work);
  void settle(std::int64_t work);
  void tune(std::int64_t work);
  void anneal(std::int64_t work, int round);
  void finish();

  OrderProblem problem_;  ///< with the costs of this choice, and limits lowered by what the model leaves out
  const OrderProblem& asked_;
  Ns bound_;
  const OrderEffort& effort_;
  OrderModel model_;
  OrderTimer timer_;
  GreedyOrder greedy_;
  std::vector<Start> starts_;                     ///< best first
  std::vector<std::pair<Ns, GreedyRule>> rules_;  ///< best first
  std::optional<Schedule> whole_;                 ///< the best that the simulator has judged
  std::string wholeBy_;
  Ns best_ = 0;
  std::int64_t spent_ = 0;
  std::function<bool(std::int64_t)> goOn_;
  std::mutex mutex_;          ///< of `counted_`, `stopped_` while threads run
  std::int64_t counted_ = 0;  ///< work on the way to be in `spent_`
  bool stopped_ = false;
};

Search::Search(const OrderProblem& problem, CostTable costs, Ns bound, const OrderEffort& effort)
    : problem_(problem),
      asked_(problem),
      bound_(bound),
      effort_(effort),
      model_((problem_.costs = std::move(costs), problem_)),
      timer_(model_),
      greedy_(model_) {}

/// Keeps the best few rows that fit, of different times.
void Search::consider(const OrderRows& rows, std::string_view by) {
  if (rows.empty() || !fits(model_, rows) || !timer_.run(rows)) return;
  const Ns time = timer_.objective();
  const auto place = std::lower_bound(starts_.begin(), starts_.end(), time, [](const Start& start, Ns t) { return start.time < t; });
  if (place != starts_.end() && place->time == time) return;
  if (starts_.size() == kStarts && place == starts_.end()) return;
  starts_.insert(place, {rows, time, std::string(by)});
  if (starts_.size() > kStarts) starts_.pop_back();
}

/// Of schedules as they are, as the simulator judges them.
void Search::tryWhole(const Schedule& schedule, std::string_view by) {
  const Judged judged = judge(asked_, problem_.costs, schedule);
  if (!judged.fits || (whole_ && judged.time >= best_)) return;
  whole_ = schedule;
  wholeBy_ = by;
  best_ = judged.time;
}

void Search::addFamilies() {
  const Shape shape{model_.ranks, model_.stages, model_.microbatches};
  for (const Generator& generator : generators()) {
    if (generator.refusal != nullptr && generator.refusal(shape)) continue;
    const Schedule schedule = generator.generate(shape);
    const OrderRows rows = rowsOf(model_, problem_, schedule);
    spent_ += Work::ofBuild(model_);
    if (rows.empty()) continue;
    tryWhole(schedule, generator.name);
    consider(rows, generator.name);
  }
}

void Search::addGreedy(const GreedyRule& rule) {
  if (spent_ > static_cast<std::int64_t>(effort_.seconds * kStartShare)) return;
  const OrderRows& rows = greedy_.build(rule);
  spent_ += Work::ofBuild(model_);
  if (rows.front().empty() || !timer_.run(rows)) return;
  rules_.emplace_back(timer_.objective(), rule);
  consider(rows, "greedy");
}

/// Greedy orders: one kind before the others, as the heuristic of Zero Bubble (2401.10241, section 3.1), with several caps; and in the
/// order of time of one microbatch, with and without pace, W early and late.
void Search::addGreedy() {
  const GreedyRule one = ruleOfOneMicrobatch(model_);
  const Ns far = one.period * (model_.microbatches + 4 * model_.stages);
  for (const double patience : {0.0, 0.5, 1.0}) {
    for (const bool inputFirst : {true, false}) {
      for (std::int32_t cap = 0; cap <= 3; ++cap) {
        GreedyRule rule = one;
        rule.patience = patience;
        for (std::size_t c = 0; c < model_.classes.size(); ++c) {
          const auto kind = static_cast<std::int32_t>(c) / model_.stages;  // F, I, W
          rule.offset[c] += kind == 2 ? 2 * far : (kind == 1) == inputFirst ? 0 : far;
        }
        for (std::int32_t r = 0; r < model_.ranks && cap > 0; ++r)
          rule.ahead.push_back(std::max(1, cap * (model_.ranks - r) - (cap - 1)) * (model_.stages / std::max(1, model_.ranks)));
        addGreedy(rule);
      }
    }
  }
  for (const double pace : {0.0, 1.0, 1.03, 1.1, 1.2}) {
    for (const double late : {0.0, 0.5, 1.0, 2.0}) {
      for (const double patience : {0.0, 0.5, 1.0}) {
        GreedyRule rule = one;
        rule.patience = patience;
        rule.paced = pace > 0;
        if (rule.paced) rule.period = static_cast<Ns>(pace * static_cast<double>(one.period));
        for (std::size_t c = at(2 * model_.stages); c < model_.classes.size(); ++c)
          rule.offset[c] += static_cast<Ns>(late * static_cast<double>(one.period));
        addGreedy(rule);
      }
    }
  }
  std::stable_sort(rules_.begin(), rules_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

bool Search::begin() {
  addFamilies();
  const Schedule serial = serialSchedule(problem_.placement, problem_.ranks, problem_.microbatches);
  tryWhole(smallestSchedule(problem_.placement, problem_.ranks, problem_.microbatches, problem_.costs), "serial");
  tryWhole(serial, "serial");
  consider(rowsOf(model_, problem_, serial), "serial");
  addGreedy();
  finish();
  return whole_.has_value();
}

/// Judges the best rows by the simulator. Where it counts buffers that the model leaves out, the limits of the model are lowered by them.
void Search::finish() {
  for (const Start& start : starts_) {
    if (whole_ && start.time >= best_) break;
    const Schedule schedule = scheduleOf(model_, problem_, start.rows);
    const Judged judged = judge(asked_, problem_.costs, schedule);
    if (judged.fits) {
      tryWhole(schedule, start.by);
      tryWhole(mergeBackward(schedule), start.by);
      break;
    }
    for (std::size_t r = 0; r < judged.excess.size(); ++r) model_.limit[r] -= judged.excess[r];
  }
  std::erase_if(starts_, [&](const Start& start) { return !fits(model_, start.rows); });
}

/// Runs `work(0)` … `work(count − 1)` on the threads of the effort.
void Search::share(int count, const std::function<void(int)>& work) const {
  const int threads = std::clamp(effort_.threads, 1, count);
  std::vector<std::future<void>> others;
  const auto run = [&](int thread) {
    for (int i = thread; i < count; i += threads) work(i);
  };
  int alone = threads;  // the first part for which there is no thread
  for (int thread = 1; thread < threads; ++thread) {
    try {
      others.push_back(std::async(std::launch::async, run, thread));
    } catch (const std::system_error&) {
      alone = thread;
      break;
    }
  }
  run(0);
  for (int thread = alone; thread < threads; ++thread) run(thread);
  for (std::future<void>& other : others) other.get();
}

/// Counts work that some thread did. Whether to go on.
bool Search::count(std::int64_t work) {
  const std::scoped_lock lock(mutex_);
  counted_ += work;
  stopped_ = stopped_ || !goOn_(spent_ + counted_);
  return !stopped_;
}

/// The work has been done, whether or not it was counted on the way.
void Search::settle(std::int64_t work) {
  spent_ += work;
  counted_ = 0;
}

void Search::tune(std::int64_t work) {
  const auto rules = static_cast<int>(std::min<std::size_t>(2, rules_.size()));
  if (rules == 0) return;
  const std::int64_t cost = Work::ofBuild(model_) + Work::ofTrial(model_), trials = work / rules / cost;
  std::vector<OrderRows> tuned(at(rules));
  share(rules, [&](int i) {
    const std::function<bool()> goOn = [&] { return count(TuneOptions::kAskEvery * cost); };
    tuned[at(i)] = tuneOrder(model_, rules_[at(i)].second, {effort_.seed + static_cast<std::uint64_t>(i), trials, bound_, 1.0, goOn}).rows;
  });
  settle(rules * trials * cost);
  for (const OrderRows& rows : tuned) consider(rows, "greedy");
}

/// Several chains: the first and every third from the best, the others from the rest in turn; hot, cold and in between.
void Search::anneal(std::int64_t work, int round) {
  constexpr std::array temperatures{0.5, 2.0, 0.2, 1.0, 0.1, 4.0};
  const std::int64_t cost = Work::ofTrial(model_), trials = work / kChains / cost;
  std::array<OrderRows, kChains> better;
  share(kChains, [&](int i) {
    const auto chain = at(round) * at(kChains) + at(i);
    const std::function<bool()> goOn = [&] { return count(AnnealOptions::kAskEvery * cost); };
    better[at(i)] = annealOrder(model_, starts_[chain % 3 == 0 ? 0 : chain % starts_.size()].rows,
                                {effort_.seed * 1000 + chain, trials, bound_, temperatures[chain % temperatures.size()], goOn});
  });
  settle(kChains * trials * cost);
  for (const OrderRows& rows : better) consider(rows, "annealing");
}

bool Search::improve(std::int64_t work, const std::function<bool(std::int64_t)>& goOn) {
  constexpr int kRounds = 6;
  goOn_ = goOn;
  const std::int64_t end = spent_ + work;
  if (best_ > bound_) tune(work / 3);
  finish();
  for (int round = 0; round < kRounds && best_ > bound_ && !stopped_ && !starts_.empty(); ++round) {
    anneal((end - spent_) / (kRounds - round), round);
    finish();
  }
  return !stopped_;
}

void Search::prove(std::int64_t work, const std::function<bool(std::int64_t)>& goOn) {
  constexpr std::array shares{0.5, 0.75, 0.9, 1.0};  // of what lies between the bound and the best
  OrderProblem relaxed = asked_;
  relaxed.costs = relaxedCosts(asked_);
  const OrderModel model(relaxed);
  const std::int64_t end = spent_ + work, cost = Work::ofWindow(model);
  for (std::size_t i = 0; i < shares.size() && best_ > bound_ && !stopped_ && spent_ < end;) {
    const Ns before = best_, time = best_ - static_cast<Ns>((1 - shares[i]) * static_cast<double>(best_ - bound_));
    const std::int64_t windows = (end - spent_) / cost / (shares[i] < 1 ? 4 : 1);
    const ExactOrder exact = exactOrder(model, time, {windows, [&](std::int64_t looked) {
                                                        stopped_ = !goOn(spent_ + looked * cost);
                                                        return !stopped_;
                                                      }});
    spent_ += exact.windows * cost;
    if (exact.proven) raiseBound(time);
    consider(exact.rows, "branch and bound");
    finish();
    if (!exact.proven && best_ == before) ++i;
  }
}

FoundOrder Search::result() {
  FoundOrder found{*whole_, problem_.costs, {problem_.clock, best_, bound_, wholeBy_, {}}};
  found.schedule.name = kAutoSchedule;
  return found;
}

/// A choice of what is recomputed, and the best order met while choosing.
struct Choice {
  std::vector<bool> recomputed;  ///< by stage
  std::optional<FoundOrder> found;

  [[nodiscard]] bool beats(const Choice& other) const {
    return found && (!other.found || found->certificate.time < other.found->certificate.time);
  }
};

/// Starts from none, or from all where that is faster or nothing fits without, and changes one stage, or all of a rank, as long as a short
/// search finds that faster.
Choice chooseRecomputed(const OrderProblem& problem, Ns bound, const OrderEffort& effort, std::int64_t work, std::int64_t& spent,
                        const std::function<bool(std::int64_t)>& goOn) {
  const std::size_t stages = problem.costs.stages.size();
  bool stopped = false;
  const auto tried = [&](std::vector<bool> recomputed) {
    Search search(problem, withRecomputation(problem, recomputed), bound, effort);
    Choice choice{std::move(recomputed), std::nullopt};
    if (search.begin()) {
      stopped = !search.improve(work / 64, [&](std::int64_t done) { return goOn(spent + done); });
      choice.found = search.result();
    }
    spent += search.spent();
    return choice;
  };
  Choice best = tried(std::vector<bool>(stages, false));
  if (Choice all = tried(std::vector<bool>(stages, true)); all.beats(best)) best = std::move(all);
  for (bool changed = true; changed && best.found && best.found->certificate.time > bound && spent < work && !stopped;) {
    changed = false;
    for (std::size_t change = 0; change < stages + at(problem.ranks) && spent < work && !stopped; ++change) {
      std::vector<bool> next = best.recomputed;
      for (std::size_t s = 0; s < stages; ++s) {
        if (change < stages ? s == change : problem.placement.rankOfStage[s].index() == change - stages) next[s] = !next[s];
      }
      if (next == best.recomputed) continue;
      Choice other = tried(std::move(next));
      if (!other.beats(best)) continue;
      best = std::move(other);
      changed = true;
    }
  }
  return best;
}

}  // namespace

Ns orderBound(const OrderProblem& problem) {
  const Schedule any = serialSchedule(problem.placement, problem.ranks, problem.microbatches);
  const LowerBounds bounds = lowerBounds(any, relaxedCosts(problem), problem.liveLimits, problem.limits);
  switch (problem.clock) {
    case Clock::Flush: return bounds.flush;
    case Clock::Window: return bounds.window;
  }
  return 0;
}

Ns orderBound(const OrderProblem& problem, Ns found, double seconds) {
  const Ns bound = orderBound(problem);
  OrderProblem relaxed = problem;
  relaxed.costs = relaxedCosts(problem);
  const OrderModel model(relaxed);
  return static_cast<double>(Work::ofWindows(model)) > seconds * 0.25e9 ? bound : windowBound(model, bound, found);
}

std::vector<Placement> orderPlacements(const Shape& shape) {
  std::vector<Placement> placements{loopPlacement(shape)};
  if (shape.stages == 2 * shape.ranks && shape.ranks > 1) placements.push_back(wavePlacement(shape));
  return placements;
}

std::optional<TooSmall> tooSmall(const OrderProblem& problem) {
  std::vector<bool> recomputed;
  for (std::size_t s = 0; s < problem.costs.stages.size(); ++s)
    recomputed.push_back(!problem.ifRecomputed.empty() && problem.ifRecomputed[s] < problem.costs.stages[s].activationBytes);
  const CostTable costs = withRecomputation(problem, recomputed);
  const Program program = compile(smallestSchedule(problem.placement, problem.ranks, problem.microbatches, costs), costs);
  for (std::size_t r = 0; r < at(problem.ranks); ++r) {
    if (!problem.limits.empty() && program.peakBytes[r] > problem.limits[r]) return TooSmall{Rank(r), program.peakBytes[r], 0};
    if (!problem.liveLimits.empty() && program.peakLive[r] > problem.liveLimits[r]) return TooSmall{Rank(r), 0, program.peakLive[r]};
  }
  return std::nullopt;
}

Schedule serialSchedule(const Placement& placement, int ranks, int microbatches) {
  if (static_cast<double>(placement.stages()) * microbatches > kMostPairs) {
    throw UsageError(fmt::format("{} stages and {} microbatches are too many to search an order for; use fewer than {} of both multiplied",
                                 placement.stages(), microbatches, kMostPairs));
  }
  Schedule schedule{std::string(kAutoSchedule), microbatches, placement, std::vector<std::vector<Action>>(at(ranks)), false};
  const auto add = [&](std::size_t s, ActionKind kind, int m) {
    schedule.rows[placement.rankOfStage[s].index()].push_back({Stage(s), kind, Microbatch(m)});
  };
  for (int m = 0; m < microbatches; ++m) {
    for (std::size_t s = 0; s < placement.stages(); ++s) add(s, ActionKind::Forward, m);
    for (std::size_t s = placement.stages(); s-- > 0;) {
      add(s, ActionKind::BackwardInput, m);
      add(s, ActionKind::BackwardWeight, m);
    }
  }
  return schedule;
}

Schedule smallestSchedule(const Placement& placement, int ranks, int microbatches, const CostTable& costs) {
  Schedule schedule = serialSchedule(placement, ranks, microbatches);
  Schedule whole = mergeBackward(schedule);
  const std::vector<Bytes> split = compile(schedule, costs).peakBytes, joined = compile(whole, costs).peakBytes;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    if (joined[r] < split[r]) schedule.rows[r] = std::move(whole.rows[r]);
  }
  return schedule;
}

std::optional<FoundOrder> findOrder(const OrderProblem& problem, const OrderEffort& effort) {
  if (problem.placement.bidirectional())
    throw UsageError("an order is searched for one replica of each stage; use a loop, V, wave or custom placement");
  if (!problem.costs.overlap.empty()) throw UsageError("an order is searched without slots of their own duration; omit the overlap");
  if (tooSmall(problem)) return std::nullopt;
  const Ns bound = orderBound(problem);
  const auto work = static_cast<std::int64_t>(std::clamp(effort.seconds, 0.001, 1e6) * 1e9);
  std::int64_t spent = 0;
  Choice choice{std::vector<bool>(problem.costs.stages.size(), false), std::nullopt};
  const auto goOn = [&](std::int64_t done) {
    return !effort.goOn || effort.goOn(std::min(1.0, static_cast<double>(done) / static_cast<double>(work)));
  };
  if (!problem.ifRecomputed.empty() && !problem.limits.empty()) choice = chooseRecomputed(problem, bound, effort, work / 2, spent, goOn);
  Search search(problem, withRecomputation(problem, choice.recomputed), bound, effort);
  if (!search.begin()) return std::nullopt;
  search.raiseBound(orderBound(problem, search.best(), effort.seconds));
  const std::int64_t left = std::max<std::int64_t>(work / 4, work - spent - search.spent());
  const auto polled = [&](std::int64_t done) { return goOn(spent + done); };
  const std::int64_t proof = left / (search.isSmall() ? 2 : 4);
  search.improve(left - proof, polled);
  search.prove(proof, polled);
  const Choice last{choice.recomputed, search.result()};
  FoundOrder found = choice.beats(last) ? *choice.found : *last.found;
  found.certificate.lowerBound = last.found->certificate.lowerBound;
  for (std::size_t s = 0; s < choice.recomputed.size(); ++s) {
    if (choice.recomputed[s]) found.certificate.recomputed.emplace_back(s);
  }
  return found;
}

}  // namespace pw
