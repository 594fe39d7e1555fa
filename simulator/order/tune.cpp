#include "simulator/order/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace pw {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

GreedyRule ruleOfOneMicrobatch(const OrderModel& model) {
  GreedyRule rule;
  rule.offset.assign(model.classes.size(), 0);
  std::vector<Ns> load(at(model.ranks), 0);
  // F of all stages in order, then I in the other direction: each after those it needs.
  std::vector<std::int32_t> sequence(at(2 * model.stages));
  std::iota(sequence.begin(), sequence.begin() + model.stages, 0);
  for (std::int32_t s = 0; s < model.stages; ++s) sequence[at(model.stages + s)] = 2 * model.stages - 1 - s;
  for (const std::int32_t c : sequence) {
    const OrderModel::ActionClass& of = model.classes[at(c)];
    const Ns end = rule.offset[at(c)] + of.time;
    for (const OrderModel::Hop& hop : of.hops) {
      Ns& user = rule.offset[at(hop.to)];
      user = std::max(user, end + hop.latency + hop.transfer);
    }
    for (const std::int32_t after : of.after) rule.offset[at(after)] = std::max(rule.offset[at(after)], end);
  }
  for (const OrderModel::ActionClass& of : model.classes) load[at(of.rank)] += of.time;
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
    if (trial % TuneOptions::kAskEvery == 0 && options.goOn && !options.goOn()) break;
    GreedyRule next = rule;
    const double width = static_cast<double>(rule.period) * std::pow(2.0, -static_cast<double>(below(6)));
    const Ns shift = static_cast<Ns>(width * (2 * fraction() - 1));
    const std::int32_t of = static_cast<std::int32_t>(below(model.classes.size()));
    switch (below(9)) {
      case 3: next.period += shift / 32; break;
      case 0:  // all later (or earlier) stages of its kind
        for (std::int32_t c = of / model.stages * model.stages; c < (of / model.stages + 1) * model.stages; ++c) {
          if ((c >= of) == (shift > 0)) next.offset[at(c)] += shift;
        }
        break;
      case 1:  // the whole stage
        for (std::int32_t c = of % model.stages; c < 3 * model.stages; c += model.stages) next.offset[at(c)] += shift;
        break;
      case 2: next.patience = std::clamp(next.patience + 0.5 * (2 * fraction() - 1), 0.0, 1.0); break;
      default: next.offset[at(of)] += shift;
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
