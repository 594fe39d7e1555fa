#include "simulator/report/sensitivity.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/step/execute.h"
#include "simulator/step/path_bound.h"
#include "simulator/step/recost.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

using What = std::variant<Stage, RankPair>;

RankPair pairOf(Rank one, Rank other) { return {std::min(one, other), std::max(one, other)}; }

RankPair linkOf(const Placement& placement, const MessageCost& message) {
  return pairOf(placement.rankOfStage[message.from.index()], placement.rankOfStage[message.to.index()]);
}

/// Stages, then the links of messages that take time.
std::vector<What> thingsOf(const Schedule& rows, const CostTable& costs) {
  std::vector<What> things;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) things.emplace_back(Stage(s));
  if (rows.placement.bidirectional()) return things;
  std::set<RankPair> links;
  for (const MessageCost& message : costs.messages) {
    const RankPair link = linkOf(rows.placement, message);
    if (link.low != link.high && message.latency + message.transfer > 0) links.insert(link);
  }
  things.insert(things.end(), links.begin(), links.end());
  return things;
}

CostTable changed(const Schedule& rows, CostTable costs, const What& what, double factor) {
  if (const auto* stage = std::get_if<Stage>(&what)) {
    StageCost& cost = costs.stages[stage->index()];
    for (Ns* time : {&cost.forward, &cost.backward, &cost.backwardInput, &cost.backwardWeight}) *time = scaled(*time, factor);
    if (!costs.overlap.empty()) costs.overlap[stage->index()] = scaled(costs.overlap[stage->index()], factor);
    return costs;
  }
  for (MessageCost& message : costs.messages) {
    if (linkOf(rows.placement, message) != std::get<RankPair>(what)) continue;
    message.latency = scaled(message.latency, factor);
    message.transfer = scaled(message.transfer, factor);
  }
  return costs;
}

/// Time of each on the longest path to the end of the last action (ties: on the lowest rank).
class TimesOnPath {
 public:
  TimesOnPath(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times,
              const std::vector<Binding>& bindings)
      : rows_(rows), costs_(costs), program_(program) {
    std::int32_t step = lastOf(times);
    while (step >= 0) {
      addStep(static_cast<std::size_t>(step));
      const Binding& binding = bindings[static_cast<std::size_t>(step)];
      if (binding.delay > 0) {
        const MessageCost& message = costs.messages[static_cast<std::size_t>(binding.delay) - 1];
        times_[linkOf(rows.placement, message)] += message.latency;
      }
      step = binding.step;
    }
  }
  [[nodiscard]] Ns of(const What& what) const {
    const auto found = times_.find(what);
    return found == times_.end() ? 0 : found->second;
  }

 private:
  [[nodiscard]] bool acts(std::size_t step) const {
    return program_.steps[step].lane < program_.ranks && program_.sources[static_cast<std::size_t>(program_.useOf[step])].action != 0;
  }
  [[nodiscard]] std::int32_t lastOf(const Times& times) const {
    std::int32_t last = -1;
    Ns end = 0;
    for (std::int32_t rank = 0; rank < program_.ranks; ++rank) {
      for (const std::int32_t step : program_.stepsOf(rank)) {
        const auto s = static_cast<std::size_t>(step);
        if (!acts(s) || times.start[s] + program_.duration[s] <= end) continue;
        end = times.start[s] + program_.duration[s];
        last = step;
      }
    }
    return last;
  }
  void addStep(std::size_t step) {
    const std::int32_t lane = program_.steps[step].lane;
    const Origin& origin = program_.origin[step];
    if (lane >= program_.ranks && lane < program_.ranks + program_.channels)
      times_[linkOf(rows_.placement, costs_.messages[static_cast<std::size_t>(origin.index)])] += program_.duration[step];
    if (!acts(step)) return;
    const std::vector<Action>& row = rows_.rows[static_cast<std::size_t>(lane)];
    const Action& action = row[static_cast<std::size_t>(origin.index)];
    Ns ofPartner = 0;  // of a slot that takes the sum of its two actions
    if (program_.sources[static_cast<std::size_t>(program_.useOf[step])].partner != 0 && costs_.overlap.empty()) {
      const Action& partner = row[static_cast<std::size_t>(origin.index) + 1];
      const double scale = costs_.microbatchScale.empty() ? 1.0 : costs_.microbatchScale[partner.microbatch.index()];
      ofPartner = scaled(costs_.stages[partner.stage.index()].backward, scale);
      times_[partner.stage] += ofPartner;
    }
    times_[action.stage] += program_.duration[step] - ofPartner;
  }

  const Schedule& rows_;
  const CostTable& costs_;
  const Program& program_;
  std::map<What, Ns> times_;
};

}  // namespace

void requireChange(double change) {
  if (!(change > 0 && change < 1)) throw UsageError("a change must be more than 0 and less than 1, for example 0.1 for 10 %");
}

SensitivityReport sensitivityOf(const Schedule& schedule, const CostTable& costs, Sending sending, double change) {
  requireChange(change);
  const Schedule rows = rowsOf(schedule, sending);
  Program program = compile(rows, costs, sending);
  Times times;
  std::vector<Binding> bindings;
  execute(program, times, bindings);
  SensitivityReport report{makespanOf(program, program.duration, times), change, {}};
  const TimesOnPath onPath(rows, costs, program, times, bindings);
  const auto makespanWith = [&](const What& what, double factor) {
    const CostTable other = changed(rows, costs, what, factor);
    if (!recost(rows, other, sending, program)) program = compile(rows, other, sending);
    execute(program, times);
    return makespanOf(program, program.duration, times);
  };
  for (const What& what : thingsOf(rows, costs)) {
    report.all.push_back({what, onPath.of(what), makespanWith(what, 1 - change), makespanWith(what, 1 + change)});
  }
  std::stable_sort(report.all.begin(), report.all.end(), [](const Sensitivity& a, const Sensitivity& b) {
    return std::tuple(-a.span(), -a.onPath) < std::tuple(-b.span(), -b.onPath);
  });
  return report;
}

std::string nameOf(const What& of) {
  if (const auto* stage = std::get_if<Stage>(&of)) return fmt::format("stage {}", stage->value);
  return fmt::format("link {}–{}", std::get<RankPair>(of).low.value, std::get<RankPair>(of).high.value);
}

}  // namespace pw
