#include "app/gui/document/dumps.h"

#include <QStringList>
#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "app/gui/common/format.h"
#include "app/gui/document/loading.h"
#include "backends/dumps/read.h"
#include "backends/host/files.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw::gui {
namespace {

namespace fs = std::filesystem;

/// The only schedule in the folder; empty where there is none, or several.
std::string scheduleIn(const std::string& folder) {
  std::error_code problem;
  std::vector<std::string> found;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end && found.size() < 2; at.increment(problem)) {
    if (at->path().extension() == ".csv") found.push_back(at->path().string());
  }
  return found.size() == 1 ? found.front() : std::string();
}

/// The compute kinds that make or need a message, or the action's own.
std::vector<SpanKind> kindsOf(const Action& action) {
  switch (action.kind) {
    case ActionKind::Forward:
    case ActionKind::SendForward:
    case ActionKind::RecvForward: return {SpanKind::Forward};
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward: return {SpanKind::Backward, SpanKind::BackwardInput};
    case ActionKind::BackwardWeight: return {SpanKind::BackwardWeight};
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: return {};
  }
  return {};
}

}  // namespace

std::shared_ptr<Loaded> loadDumps(const std::vector<std::string>& paths) {
  auto dumps = std::make_shared<hang::Dumps>(readDumps(paths));
  auto loaded = std::make_shared<Loaded>();
  const std::string schedule = paths.size() == 1 ? scheduleIn(paths.front()) : std::string();
  if (!schedule.empty()) {
    std::shared_ptr<const Schedule> ran;
    try {
      ran = std::make_shared<const Schedule>(parseCsv(readFile(schedule), fs::path(schedule).stem().string(), schedule));
      loaded = loadFiles({schedule}, {});
    } catch (const Error& error) {  // it is another table; or it cannot run, which the diagnosis says
      if (!ran) dumps->notes.insert(dumps->notes.begin(), fmt::format("the table beside the dumps is left out: {}", error.what()));
    }
    loaded->ran = std::move(ran);
  }
  loaded->dumps = std::move(dumps);
  return loaded;
}

std::optional<Schedule> scheduleOf(const Document& document) {
  const std::string& source = document.design().source;
  if (fs::path(source).extension() == ".csv") {
    try {
      return parseCsv(readFile(source), fs::path(source).stem().string(), source);
    } catch (const Error&) {  // it has changed since it was opened; what is open still has its actions
    }
  }
  const auto prediction = document.prediction();
  return prediction ? std::optional(computeOnly(*prediction->rows)) : std::nullopt;
}

std::vector<SpanRef> stuckSpans(const hang::Diagnosis& diagnosis, const Timeline& timeline) {
  std::vector<SpanRef> spans;
  const auto add = [&](Rank row, JobRank process, const Action& action) {
    if (timeline.ranks.empty()) return;
    const Rank rank = row.value >= 0 ? row : Rank{static_cast<int>(process.index() % timeline.ranks.size())};
    for (const SpanKind kind : kindsOf(action)) {
      const auto found = findAction(timeline, rank, kind, action.stage, action.microbatch);
      if (found && std::ranges::find(spans, *found) == spans.end()) spans.push_back(*found);
    }
  };
  const auto addSpot = [&](const std::optional<hang::Spot>& spot) {
    if (spot && spot->action && spot->rank.value >= 0) add(spot->row, spot->rank, *spot->action);
  };
  addSpot(diagnosis.firstStuck);
  for (const hang::Spot& spot : diagnosis.waits) addSpot(spot);
  addSpot(diagnosis.cause);
  for (const hang::SilentRank& silent : diagnosis.silent) {
    for (const Action& action : silent.possible) add(silent.row, silent.rank, action);
  }
  return spans;
}

QString hangText(const hang::Diagnosis& diagnosis) {
  QString text = QString::fromStdString(diagnosis.sentence);
  if (!text.isEmpty()) text[0] = text[0].toUpper();
  constexpr std::size_t kShown = 8;
  QStringList missing;
  for (std::size_t i = 0; i < std::min(kShown, diagnosis.missing.size()); ++i) missing << QString::number(diagnosis.missing[i].value);
  if (diagnosis.missing.size() > kShown) missing << translated("%n more", nullptr, static_cast<int>(diagnosis.missing.size() - kShown));
  if (!missing.isEmpty()) text += translated(". No dump of rank %1").arg(missing.join(QStringLiteral(", ")));
  if (diagnosis.caughtBy)
    text +=
        translated(". The schedule itself has the fault: %1").arg(QString::fromStdString(diagnosis.problems[*diagnosis.caughtBy].message));
  constexpr std::size_t kNotes = 3;
  for (std::size_t i = 0; i < std::min(kNotes, diagnosis.notes.size()); ++i) text += ". " + QString::fromStdString(diagnosis.notes[i]);
  return text;
}

}  // namespace pw::gui
