#include "engine/planning/slow_down.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "engine/planning/inputs/limits.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/step/cost_table.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

Ns scaled(Ns time, double factor) {
  const double product = static_cast<double>(time) * factor;
  if (product > static_cast<double>(kLongestTime) * kDefaultBackwardRatio) {
    throw UsageError(fmt::format("{} slowed down {:g} times is too long to add up; use a smaller factor", formatDuration(time), factor));
  }
  return static_cast<Ns>(std::llround(product));
}

void slowLink(Subject& subject, int one, int other, double factor) {
  if (subject.schedule.placement.bidirectional()) {
    throw UsageError(
        "--slow A-B cannot be told apart where a message between two stages takes two links (bidirectional placement); choose a schedule "
        "that keeps each stage on one rank");
  }
  subject.costSource += fmt::format("; messages between ranks {} and {} take {:g} times as long", one, other, factor);
  bool met = false;
  for (MessageCost& message : subject.costs.messages) {
    const auto [low, high] = std::minmax(subject.schedule.placement.rankOfStage[message.from.index()].value,
                                         subject.schedule.placement.rankOfStage[message.to.index()].value);
    if (low != std::min(one, other) || high != std::max(one, other)) continue;
    met = true;
    message.latency = scaled(message.latency, factor);
    message.transfer = scaled(message.transfer, factor);
  }
  if (!met)
    throw UsageError(fmt::format("--slow {}-{} names a link that carries no message; neighbouring stages decide which do", one, other));
}

}  // namespace

void slowDown(Subject& subject, const std::string& text) {
  constexpr double kMost = 1e6;
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view what = std::string_view(text).substr(0, equals);
  const std::size_t dash = what.find('-');
  const bool link = dash != std::string_view::npos && dash > 0;
  const auto rank = numberOf<int>(what.substr(0, link ? dash : what.size()));
  const auto other = link ? numberOf<int>(what.substr(dash + 1)) : rank;
  const auto factor = numberOf<double>(std::string_view(text).substr(std::min(equals + 1, text.size())));
  if (!rank || !other || !factor || !(*factor > 0) || *factor > kMost || (link && *rank == *other)) {
    throw UsageError(fmt::format("--slow \"{}\" is not a rank or link and factor; write for example --slow 2=1.5 or --slow 1-2=3", text));
  }
  for (const int r : {*rank, *other}) {
    if (r >= 0 && r < shapeOf(subject.schedule).ranks) continue;
    throw UsageError(fmt::format("--slow {} names rank {}, but ranks go from 0 to {}", text, r, shapeOf(subject.schedule).ranks - 1));
  }
  if (link) return slowLink(subject, *rank, *other, *factor);
  if (subject.schedule.placement.bidirectional()) {
    throw UsageError(
        "--slow RANK cannot be told apart where two ranks share a stage (bidirectional placement); choose a schedule that keeps each stage "
        "on one rank");
  }
  subject.costSource += fmt::format("; rank {} takes {:g} times as long", *rank, *factor);
  for (std::size_t s = 0; s < subject.costs.stages.size(); ++s) {
    if (subject.schedule.placement.rankOfStage[s].value != *rank) continue;
    StageCost& stage = subject.costs.stages[s];
    for (Ns* time : {&stage.forward, &stage.backward, &stage.backwardInput, &stage.backwardWeight, &stage.optimizer})
      *time = scaled(*time, *factor);
    if (!subject.costs.overlap.empty()) subject.costs.overlap[s] = scaled(subject.costs.overlap[s], *factor);
  }
  for (auto& [action, time] : subject.actionTimes) {
    if (subject.schedule.placement.rankOfStage[action.stage.index()].value == *rank) time = scaled(time, *factor);
  }
}

}  // namespace pw
