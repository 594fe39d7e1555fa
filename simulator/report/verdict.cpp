#include "simulator/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/report/metrics.h"
#include "simulator/step/replay.h"

namespace pw {
namespace {

constexpr double kAsPredicted = 0.0005;  ///< below this, numbers with one decimal show no error
constexpr double kLeastPart = 0.05;      ///< of a difference that is worth a name

Ns differenceOf(const GroupError& group) { return group.measured - group.predicted; }

/// The total difference of all causes.
Ns netOf(const Comparison& comparison) {
  Ns net = 0;
  for (const GroupError& group : comparison.byCause) net += differenceOf(group);
  return net;
}

std::optional<MainPart> mainPart(const Comparison& c, const std::optional<Ns>& replayed, const std::optional<GroupError>& cause) {
  const Ns difference = c.measuredMakespan - c.predictedMakespan;
  // What remains when actions take their measured times comes from outside of them.
  const Ns besides = replayed ? c.measuredMakespan - *replayed : 0, computing = replayed ? *replayed - c.predictedMakespan : 0;
  if (replayed && std::abs(c.makespanError) >= kAsPredicted && abs(besides) > abs(computing) && (besides > 0) == (difference > 0))
    return MainPart{"", true, besides};
  if (!cause) return std::nullopt;
  const Ns off = differenceOf(*cause), net = netOf(c);
  const double least =
      std::max(kLeastPart * static_cast<double>(abs(difference)), kAsPredicted * static_cast<double>(abs(c.predictedMakespan)));
  if (static_cast<double>(abs(off)) < least) return std::nullopt;  // the order makes the difference: what waits for what
  // Groups that are offset by others do not explain the total.
  const bool explains =
      (off > 0) == (difference > 0) && std::abs(c.makespanError) >= kAsPredicted && abs(off) <= abs(net) && (net > 0) == (off > 0);
  return MainPart{cause->group, explains, off};
}

/// `Measured 3.1 % slower than predicted (12.4 ms, not 12.0 ms)`, `plan B is 3.1 % slower than this plan (…)`.
std::string howFarOff(const Comparison& c, const std::string& before, const std::string& after, Happened happened) {
  const bool isNamed = !before.empty();
  const bool past = happened == Happened::Yes;
  const char *const took = past ? "took" : "takes", *const was = past ? "was" : "is";
  if (std::abs(c.makespanError) < kAsPredicted)
    return fmt::format("{} ({})", isNamed ? fmt::format("{} {} as long as {}", after, took, before) : "Measured as predicted",
                       formatDuration(c.measuredMakespan));
  const std::string times = fmt::format(" ({}, not {})", formatDuration(c.measuredMakespan), formatDuration(c.predictedMakespan));
  if (c.makespanError >= 1) {
    const std::string factor = fmt::format("{:.1f} times as long as", 1 + c.makespanError);
    return (isNamed ? fmt::format("{} {} {} {}", after, took, factor, before) : fmt::format("Measured {} predicted", factor)) + times;
  }
  const std::string by =
      fmt::format("{:.1f} % {} than", std::abs(c.makespanError) * 100, c.measuredMakespan > c.predictedMakespan ? "slower" : "faster");
  return (isNamed ? fmt::format("{} {} {} {}", after, was, by, before) : fmt::format("Measured {} predicted", by)) + times;
}

/// ` 32 whole backwards (B) are matched with …`; empty where none is.
std::string splitSentence(int matched) {
  if (matched == 0) return {};
  return matched == 1
             ? " 1 whole backward (B) is matched with the other's input gradient (I), and its time compared with I + W."
             : fmt::format(" {} whole backwards (B) are matched with the other's input gradients (I), and their times compared with I + W.",
                           matched);
}

}  // namespace

Verdict judge(const Trace& predicted, const Trace& measured, std::optional<Ns> replayed, Splits splits) {
  Verdict verdict{compare(predicted, measured, splits), replayed, {}};
  verdict.main = mainPart(verdict.comparison, replayed, mainCause(verdict.comparison));
  return verdict;
}

std::optional<Ns> replayedMakespan(const Schedule& schedule, const CostTable& costs, const Trace& measured) {
  const Answer<Trace> replayed = replay(schedule, costs, measured);
  return replayed ? std::optional(metricsOf(*replayed).makespan) : std::nullopt;  // a trace may lack actions of this plan
}

std::optional<GroupError> mainCause(const Comparison& comparison) {
  const std::vector<GroupError> causes = sortedByContribution(comparison.byCause);
  return causes.empty() || causes.front().contribution == 0 ? std::nullopt : std::optional(causes.front());
}

std::string verdictText(const Verdict& verdict, const std::string& before, const std::string& after, Happened happened) {
  std::string text = howFarOff(verdict.comparison, before, after, happened);
  if (text.front() >= 'a' && text.front() <= 'z') text.front() = static_cast<char>(text.front() - 'a' + 'A');
  if (verdict.main) {
    const MainPart& main = *verdict.main;
    const std::string difference = (main.difference > 0 ? "+" : "−") + formatDuration(abs(main.difference));
    if (main.group.empty())
      text += fmt::format("; most of it beside computing, in messages and the engine: {}", difference);
    else
      text += fmt::format("; {}: {}, {}", main.isMost ? "most of it" : "largest difference", main.group, difference);
  }
  text += '.';
  if (verdict.comparison.splits == Splits::Other) text += " Their splits differ, so their stages are not compared.";
  text += splitSentence(verdict.comparison.matchedSplit);
  if (const int lone = verdict.comparison.unmatched; lone > 0)
    text += fmt::format(" {} in one of them only.", lone == 1 ? "1 action is" : fmt::format("{} actions are", lone));
  return text;
}

std::vector<GroupError> sortedByContribution(std::vector<GroupError> groups) {
  std::ranges::stable_sort(groups, [](const GroupError& a, const GroupError& b) { return a.contribution > b.contribution; });
  return groups;
}

}  // namespace pw
