#include "app/gui/runs/verdict.h"

#include <QCoreApplication>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "app/gui/common/format.h"
#include "schedules/error.h"
#include "simulator/report/compare.h"
#include "simulator/step/replay.h"

namespace pw::gui {
namespace {

constexpr double kAsPredicted = 0.0005;  ///< below this, numbers with one decimal show no error

QString translated(const char* text) { return QCoreApplication::translate("pw::gui::Verdict", text); }

std::optional<double> medianOf(std::vector<double> numbers) {
  if (numbers.empty()) return std::nullopt;
  std::ranges::sort(numbers);
  const std::size_t middle = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[middle] : (numbers[middle - 1] + numbers[middle]) / 2;
}

/// Whether a group of the comparison is a cause, not a consequence.
bool isCause(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight:
    case SpanKind::ReduceGrad:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: return true;
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return false;
  }
  return false;
}

/// The total difference of all causes.
Ns netOf(const Comparison& comparison) {
  Ns net = 0;
  for (const GroupError& group : comparison.byKind) {
    if (!group.group.starts_with("SEND_") && !group.group.starts_with("WAIT_")) net += group.measured - group.predicted;
  }
  return net;
}

}  // namespace

std::optional<double> pastError(const std::vector<RunSummary>& runs, const std::string& model, const std::string& schedule) {
  const auto errorsOf = [&](bool anySchedule, bool anyLength) {
    std::vector<double> errors;
    for (const RunSummary& run : runs) {
      if (run.model != model || run.synthetic || !run.failure.empty() || run.predictedStep <= 0 || run.medianMeasuredStep <= 0) continue;
      if ((run.schedule != schedule && !anySchedule) || (run.steps < 2 && !anyLength)) continue;
      errors.push_back(std::abs(static_cast<double>(run.medianMeasuredStep - run.predictedStep)) / static_cast<double>(run.predictedStep));
    }
    return medianOf(errors);
  };
  for (const auto& [anySchedule, anyLength] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if (const auto error = errorsOf(anySchedule, anyLength)) return error;
  }
  return std::nullopt;
}

std::vector<GroupError> ranked(std::vector<GroupError> groups) {
  std::ranges::stable_sort(groups, [](const GroupError& a, const GroupError& b) { return a.contribution > b.contribution; });
  return groups;
}

std::optional<GroupError> mainCause(const Trace& predicted, const Trace& measured) {
  std::map<std::pair<SpanKind, Stage>, GroupError> groups;
  const auto groupOf = [&](const Span& span) -> GroupError& { return groups[{span.kind, isCompute(span.kind) ? span.stage : Stage(-1)}]; };
  for (const Span& span : predicted.spans) groupOf(span).predicted += span.end - span.start;
  for (const Span& span : measured.spans) groupOf(span).measured += span.end - span.start;
  std::optional<GroupError> largest;
  for (auto& [key, group] : groups) {
    group.contribution = isCause(key.first) ? std::abs(group.measured - group.predicted) : 0;
    if (group.contribution <= (largest ? largest->contribution : 0)) continue;
    largest = group;
    largest->group = name(key.first);
    if (key.second.value >= 0) largest->group += " of stage " + std::to_string(key.second.value);
    largest->durationError =
        group.predicted == 0 ? 0 : static_cast<double>(group.measured - group.predicted) / static_cast<double>(group.predicted);
  }
  return largest;
}

QString groupLabel(const std::string& group) {
  static constexpr std::array<std::pair<const char*, const char*>, 12> kMeanings{{
      {"F", QT_TRANSLATE_NOOP("pw::gui::Verdict", "forward")},
      {"B", QT_TRANSLATE_NOOP("pw::gui::Verdict", "backward")},
      {"I", QT_TRANSLATE_NOOP("pw::gui::Verdict", "input gradients")},
      {"W", QT_TRANSLATE_NOOP("pw::gui::Verdict", "weight gradients")},
      {"SEND_F", QT_TRANSLATE_NOOP("pw::gui::Verdict", "messages forward")},
      {"SEND_B", QT_TRANSLATE_NOOP("pw::gui::Verdict", "messages back")},
      {"WAIT_F", QT_TRANSLATE_NOOP("pw::gui::Verdict", "waits for values")},
      {"WAIT_B", QT_TRANSLATE_NOOP("pw::gui::Verdict", "waits for gradients")},
      {"REDUCE_GRAD", QT_TRANSLATE_NOOP("pw::gui::Verdict", "sums of gradients")},
      {"OPTIMIZER", QT_TRANSLATE_NOOP("pw::gui::Verdict", "updates")},
      {"LOAD", QT_TRANSLATE_NOOP("pw::gui::Verdict", "loads")},
      {"STORE", QT_TRANSLATE_NOOP("pw::gui::Verdict", "stores")},
  }};
  const auto found = std::ranges::find_if(kMeanings, [&](const auto& meaning) { return group == meaning.first; });
  const QString letters = QString::fromStdString(group);
  return found == kMeanings.end() ? letters : letters + QStringLiteral("  ") + translated(found->second);
}

Verdict judge(const Trace& predicted, const Trace& measured, const Plan* plan) {
  Verdict verdict{compare(predicted, measured), mainCause(predicted, measured), {}};
  if (plan == nullptr) return verdict;
  try {
    verdict.replayed = metricsOf(replay(plan->schedule, plan->costs, measured)).makespan;
  } catch (const Error&) {
    // The run was not of this plan's actions: then there is nothing to replay.
  }
  return verdict;
}

QString signedDuration(Ns difference) {
  if (difference == 0) return QStringLiteral("0");
  return (difference > 0 ? QStringLiteral("▲ +") : QStringLiteral("▼ −")) + duration(std::abs(difference));
}

QString inWords(const Verdict& verdict, const QString& before, const QString& after) {
  const Comparison& c = verdict.comparison;
  const bool runs = !before.isEmpty();
  const Ns difference = c.measuredMakespan - c.predictedMakespan;
  const QString times = QStringLiteral(" (%1, %2 %3)").arg(duration(c.measuredMakespan), translated("not"), duration(c.predictedMakespan));
  QString text;
  if (std::abs(c.makespanError) < kAsPredicted) {
    text = runs ? translated("%2 took as long as %1").arg(before, after) : translated("Measured as predicted");
    text += QStringLiteral(" (%1)").arg(duration(c.measuredMakespan));
  } else {
    const QString fraction = percent(std::abs(c.makespanError));
    if (c.makespanError >= 1) {
      const QString factor = QString::number(1 + c.makespanError, 'f', 1);
      text = (runs ? translated("%2 took %3 times as long as %1").arg(before, after, factor)
                   : translated("Measured %1 times as long as predicted").arg(factor)) +
             times;
    } else if (runs) {
      text =
          (difference > 0 ? translated("%2 was %3 slower than %1") : translated("%2 was %3 faster than %1")).arg(before, after, fraction) +
          times;
    } else {
      text = (difference > 0 ? translated("Measured %1 slower than predicted") : translated("Measured %1 faster than predicted"))
                 .arg(fraction) +
             times;
    }
  }
  // What remains when actions take their measured times comes from outside of them.
  const Ns beside = verdict.replayed ? c.measuredMakespan - *verdict.replayed : 0,
           computing = verdict.replayed ? *verdict.replayed - c.predictedMakespan : 0;
  const bool explained = verdict.replayed && std::abs(beside) > std::abs(computing) && (beside > 0) == (difference > 0) && difference != 0;
  if (explained) {
    text += translated("; most of it beside computing, in messages and the engine: %1")
                .arg((beside > 0 ? QStringLiteral("+") : QStringLiteral("−")) + duration(std::abs(beside)));
  } else if (verdict.cause) {
    const Ns off = verdict.cause->measured - verdict.cause->predicted;
    // Groups that are offset by others do not explain the total.
    const bool agrees = (off > 0) == (difference > 0) && std::abs(c.makespanError) >= kAsPredicted && std::abs(off) <= std::abs(netOf(c)) &&
                        (netOf(c) > 0) == (off > 0);
    text += QStringLiteral("; %1 %2, %3")
                .arg(agrees ? translated("most of it:") : translated("largest difference:"), QString::fromStdString(verdict.cause->group),
                     (off > 0 ? QStringLiteral("+") : QStringLiteral("−")) + duration(std::abs(off)));
  }
  text += QLatin1Char('.');
  if (c.unmatched > 0) text += QLatin1Char(' ') + translated("%1 actions are in one of them only.").arg(c.unmatched);
  return text;
}

}  // namespace pw::gui
