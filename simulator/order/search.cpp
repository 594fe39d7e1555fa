#include "simulator/order/search.h"

#include <algorithm>
#include <array>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/order/anneal.h"
#include "simulator/order/polish.h"
#include "simulator/order/problem/index.h"
#include "simulator/order/problem/judge.h"
#include "simulator/order/tune.h"
#include "simulator/text/parallel_for.h"

namespace pw {

OrderSearch::OrderSearch(const OrderProblem& problem, CostTable costs, Ns bound, const OrderEffort& effort)
    : problem_(problem),
      given_(problem),
      bound_(bound),
      effort_(effort),
      model_((problem_.costs = std::move(costs), problem_)),
      timer_(model_),
      greedy_(model_) {}

/// Keeps the best few rows that fit, of different times.
void OrderSearch::consider(const OrderRows& rows, std::string_view by) {
  if (rows.empty() || !fitsLimits(model_, rows) || !timer_.run(rows)) return;
  const Ns time = timer_.objective();
  const auto place = std::lower_bound(starts_.begin(), starts_.end(), time, [](const Start& start, Ns t) { return start.time < t; });
  if (place != starts_.end() && place->time == time) return;
  if (starts_.size() == kStarts && place == starts_.end()) return;
  starts_.insert(place, {rows, time, std::string(by)});
  if (starts_.size() > kStarts) starts_.pop_back();
}

/// Of schedules as they are, as the simulator judges them.
void OrderSearch::tryWhole(const Schedule& schedule, std::string_view by) {
  const JudgedOrder judged = judgeOrder(given_, problem_.costs, schedule);
  if (!judged.fits || (whole_ && judged.time >= best_)) return;
  whole_ = schedule;
  wholeBy_ = by;
  best_ = judged.time;
}

void OrderSearch::addFamilies() {
  const Shape shape{model_.ranks, model_.stages, model_.microbatches};
  for (const Generator& generator : generators()) {
    if (!generator.trains || generator.refusal(shape)) continue;
    const Schedule schedule = generator.generate(shape);
    const OrderRows rows = rowsOf(model_, problem_, schedule);
    spent_ += workOfBuild(model_);
    if (rows.empty()) continue;
    tryWhole(schedule, generator.name);
    consider(rows, generator.name);
  }
}

void OrderSearch::addGreedy(const GreedyRule& rule) {
  if (spent_ > workOf(kStartShare * effort_.seconds)) return;
  const OrderRows& rows = greedy_.build(rule);
  spent_ += workOfBuild(model_);
  if (rows.front().empty() || !timer_.run(rows)) return;
  rules_.emplace_back(timer_.objective(), rule);
  consider(rows, "greedy");
}

/// Greedy orders: one kind before the others, as the heuristic of Zero Bubble (2401.10241, section 3.1), with several caps; and in the
/// order of time of one microbatch, with and without pace, W early and late.
void OrderSearch::addGreedy() {
  const GreedyRule one = ruleOfOneMicrobatch(model_);
  const Ns far = one.period * (model_.microbatches + 4 * model_.stages);
  for (const double patience : {0.0, 0.5, 1.0}) {
    for (const bool inputFirst : {true, false}) {
      for (std::int32_t cap = 0; cap <= 3; ++cap) {
        GreedyRule rule = one;
        rule.patience = patience;
        for (std::size_t c = 0; c < model_.classes.size(); ++c) {
          const ActionKind kind = model_.kindOf(ClassId(c));
          const bool first = (kind == ActionKind::BackwardInput) == inputFirst;
          rule.offset[c] += kind == ActionKind::BackwardWeight ? 2 * far : first ? 0 : far;
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
        for (Stage s(0); s.value < model_.stages; ++s.value)
          rule.offset[model_.weightOf(s).index()] += static_cast<Ns>(late * static_cast<double>(one.period));
        addGreedy(rule);
      }
    }
  }
  std::stable_sort(rules_.begin(), rules_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
}

bool OrderSearch::begin() {
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
void OrderSearch::finish() {
  std::vector<Bytes> over(model_.limit.size(), 0);
  for (const Start& start : starts_) {
    if (whole_ && start.time >= best_) break;
    const Schedule schedule = scheduleOf(model_, problem_, start.rows);
    const JudgedOrder judged = judgeOrder(given_, problem_.costs, schedule);
    if (judged.fits) {
      tryWhole(schedule, start.by);
      tryWhole(mergeBackward(schedule), start.by);
      break;
    }
    for (std::size_t r = 0; r < judged.excess.size(); ++r) over[r] = std::max(over[r], judged.excess[r]);
  }
  for (std::size_t r = 0; r < over.size(); ++r) model_.limit[r] -= over[r];
  std::erase_if(starts_, [&](const Start& start) { return !fitsLimits(model_, start.rows); });
}

/// Counts work that some thread did. Returns whether to continue.
bool OrderSearch::count(OrderWork work) {
  const std::scoped_lock lock(mutex_);
  counted_ += work;
  stopped_ = stopped_ || !shouldContinue_(spent_ + counted_);
  return !stopped_;
}

/// The work has been done, whether or not it was counted on the way.
void OrderSearch::settle(OrderWork work) {
  spent_ += work;
  counted_ = 0;
}

void OrderSearch::tune(OrderWork work) {
  const auto rules = static_cast<int>(std::min<std::size_t>(2, rules_.size()));
  if (rules == 0) return;
  const OrderWork cost = workOfBuild(model_) + workOfTrial(model_);
  const std::int64_t trials = work / rules / cost;
  std::vector<OrderRows> tuned(at(rules));
  parallelFor(rules, effort_.threads, [&](int i) {
    const std::function<bool()> shouldContinue = [&] { return count(TuneOptions::kAskEvery * cost); };
    tuned[at(i)] =
        tuneOrder(model_, rules_[at(i)].second, {effort_.seed + static_cast<std::uint64_t>(i), trials, bound_, 1.0, shouldContinue}).rows;
  });
  settle(rules * trials * cost);
  for (const OrderRows& rows : tuned) consider(rows, "greedy");
}

/// Several chains: the first and every third from the best, the others from the rest in turn; hot, cold and in between.
void OrderSearch::anneal(OrderWork work, int round) {
  constexpr std::array temperatures{0.5, 2.0, 0.2, 1.0, 0.1, 4.0}, ofLarge{1.0, 2.0, 0.7, 1.4, 0.5, 2.8};
  const OrderWork cost = workOfMove(model_);
  const std::int64_t trials = work / kChains / cost;
  std::array<OrderRows, kChains> better;
  parallelFor(kChains, effort_.threads, [&](int i) {
    const auto chain = at(round) * at(kChains) + at(i);
    const std::function<bool()> shouldContinue = [&] { return count(AnnealOptions::kAskEvery * cost); };
    better[at(i)] = annealOrder(
        model_, starts_[chain % 3 == 0 ? 0 : chain % starts_.size()].rows,
        {effort_.seed * 1000 + chain, trials, bound_, (isSmall() ? temperatures : ofLarge)[chain % temperatures.size()], shouldContinue});
  });
  settle(kChains * trials * cost);
  for (const OrderRows& rows : better) consider(rows, "annealing");
}

/// Two of the best, in turn.
void OrderSearch::polish(OrderWork work) {
  const OrderWork cost = workOfWindow(model_);
  const std::int64_t windows = work / kChains / cost;
  std::array<OrderRows, kChains> better;
  parallelFor(kChains, effort_.threads, [&](int i) {
    std::int64_t told = 0;
    const auto shouldContinue = [&](std::int64_t examined) { return count((examined - std::exchange(told, examined)) * cost); };
    const OrderRows& start = starts_[at(i) % starts_.size()].rows;
    better[at(i)] = polishOrder(model_, start, {effort_.seed + static_cast<std::uint64_t>(i), windows, bound_, shouldContinue});
  });
  settle(kChains * windows * cost);
  for (const OrderRows& rows : better) consider(rows, "branch and bound");
}

bool OrderSearch::improve(OrderWork work, const std::function<bool(OrderWork)>& shouldContinue) {
  constexpr double kFirstShare = 1.0 / 3, kFirstShareOfLarge = 0.08;
  constexpr int kRounds = 6, kRoundsOfLarge = 1;  // large ones need long chains
  const int rounds = isSmall() ? kRounds : kRoundsOfLarge;
  shouldContinue_ = shouldContinue;
  const OrderWork forPolish = isSmall() ? work / 3 : 0, end = spent_ + work - forPolish;
  if (best_ > bound_ && round_ == 0)
    tune(static_cast<OrderWork>((isSmall() ? kFirstShare : kFirstShareOfLarge) * static_cast<double>(work - forPolish)));
  finish();
  for (int round = 0; round < rounds && best_ > bound_ && !stopped_ && !starts_.empty(); ++round) {
    anneal((end - spent_) / (rounds - round), round_++);
    finish();
  }
  if (forPolish > 0 && best_ > bound_ && !stopped_ && !starts_.empty()) {
    polish(forPolish);
    finish();
  }
  return !stopped_;
}

FoundOrder OrderSearch::result() {
  FoundOrder found{*whole_, problem_.costs, {problem_.clock, best_, bound_, wholeBy_, {}}};
  found.schedule.name = kAutoSchedule;
  return found;
}

}  // namespace pw
