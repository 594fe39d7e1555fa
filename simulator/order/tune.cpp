#include "simulator/order/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace pw {
GreedyRule ruleOfOneMicrobatch(const OrderModel& model) {
  GreedyRule rule;
  rule.offset.assign(model.classes.size(), 0);
  std::vector<Ns> load(static_cast<std::size_t>(model.ranks), 0);
  // F of all stages in order, then I in the other direction: each after those it needs.
  std::vector<ClassId> sequence;
  for (Stage s(0); s.value < model.stages; ++s.value) sequence.push_back(model.forwardOf(s));
  for (Stage s(model.stages - 1); s.value >= 0; --s.value) sequence.push_back(model.inputOf(s));
  for (const ClassId c : sequence) {
    const OrderModel::ActionClass& of = model.classes[c.index()];
    const Ns end = rule.offset[c.index()] + of.time;
    for (const OrderModel::Hop& hop : of.hops) {
      Ns& user = rule.offset[hop.to.index()];
      user = std::max(user, end + hop.latency + hop.transfer);
    }
    for (const ClassId after : of.after) rule.offset[after.index()] = std::max(rule.offset[after.index()], end);
  }
  for (const OrderModel::ActionClass& of : model.classes) load[of.rank.index()] += of.time;
  rule.period = *std::max_element(load.begin(), load.end());
  return rule;
}

TunedOrder tuneOrder(const OrderModel& model, const GreedyRule& start, const TuneOptions& options) {
  GreedyOrder greedy(model);
  OrderTimer timer(model);
  std::mt19937_64 random(options.seed);
  const auto fraction = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  TunedOrder best{start, {}, 0};
  const auto energyOf = [&](const GreedyRule& rule) {
    const OrderRows& rows = greedy.build(rule);
    return rows.front().empty() || !timer.run(rows) ? std::numeric_limits<double>::infinity() : timer.energy();
  };
  GreedyRule rule = start;
  double current = energyOf(rule);
  if (!std::isfinite(current)) return best;
  best.rows = greedy.build(rule);
  double bestEnergy = current;
  best.objective = timer.objective();
  double temperature = model.meanDuration() * options.hottest;
  const double fall = std::pow(0.02, 1.0 / static_cast<double>(std::max<std::int64_t>(1, options.trials)));
  for (std::int64_t trial = 0; trial < options.trials && best.objective > options.enough; ++trial, temperature *= fall) {
    if (trial % TuneOptions::kAskEvery == 0 && options.shouldContinue && !options.shouldContinue()) break;
    GreedyRule next = rule;
    const double width = static_cast<double>(rule.period) * std::pow(2.0, -static_cast<double>(below(6)));
    const Ns shift = static_cast<Ns>(width * (2 * fraction() - 1));
    const ClassId of(below(model.classes.size()));
    const Stage stage = model.stageOf(of);
    switch (below(9)) {
      case 3: next.period += shift / 32; break;
      case 0:  // all later (or earlier) stages of its kind
        for (ClassId c(0); c.index() < model.classes.size(); ++c.value) {
          if (model.kindOf(c) == model.kindOf(of) && (c >= of) == (shift > 0)) next.offset[c.index()] += shift;
        }
        break;
      case 1:  // the whole stage
        for (const ClassId c : {model.forwardOf(stage), model.inputOf(stage), model.weightOf(stage)}) next.offset[c.index()] += shift;
        break;
      case 2: next.patience = std::clamp(next.patience + 0.5 * (2 * fraction() - 1), 0.0, 1.0); break;
      default: next.offset[of.index()] += shift;
    }
    const double energy = energyOf(next);
    if (energy > current && fraction() >= std::exp((current - energy) / temperature)) continue;
    rule = next;
    current = energy;
    if (energy < bestEnergy) {
      bestEnergy = energy;
      best = {rule, greedy.build(rule), timer.objective()};
    }
  }
  return best;
}

}  // namespace pw
