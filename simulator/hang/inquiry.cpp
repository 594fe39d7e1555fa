#include "simulator/hang/inquiry.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/printable.h"

namespace pw::hang {
namespace {

/// The compute action that needs a received message; nothing of a send.
bool needs(const Action& compute, const Action& receive) {
  if (compute.stage != receive.stage || compute.microbatch != receive.microbatch) return false;
  if (receive.kind == ActionKind::RecvForward) return compute.kind == ActionKind::Forward;
  return receive.kind == ActionKind::RecvBackward && (compute.kind == ActionKind::Backward || compute.kind == ActionKind::BackwardInput);
}

bool isWaitless(const Action& action) { return !isSend(action.kind) && !isReceive(action.kind); }

}  // namespace

Inquiry::Inquiry(const Dumps& all, const Rows* placed) : dumps(all), rows(placed), waits(waitsOf(all, placed)) {
  primary.resize(dumps.dumps.size());
  for (std::size_t d = 0; d < primary.size(); ++d) {
    if (waits.open[d].empty()) continue;
    const std::size_t first = waits.open[d].front().op;
    const std::size_t batch = dumps.dumps[d].ops[first].batch;
    for (const Wait& wait : waits.open[d]) {
      if (wait.op == first || (batch > 0 && dumps.dumps[d].ops[wait.op].batch == batch)) primary[d].push_back(wait);
    }
  }
}

std::optional<std::size_t> Inquiry::dumpOf(JobRank rank) const {
  const RankDump* const dump = dumps.of(rank);
  return dump == nullptr ? std::nullopt : std::optional(static_cast<std::size_t>(dump - dumps.dumps.data()));
}

const RecordedOp& Inquiry::opOf(const Wait& wait) const { return dumps.dumps[*dumpOf(wait.rank)].ops[wait.op]; }

bool Inquiry::isSilent(JobRank rank) const {
  const std::optional<std::size_t> dump = dumpOf(rank);
  if (!dump || std::ranges::any_of(dumps.gone, [&](const RankReport& report) { return report.rank == rank; })) return true;
  return std::ranges::all_of(primary[*dump], [](const Wait& wait) { return wait.reason == Reason::TheyAreDone; });
}

bool Inquiry::leadsOn(const Wait& wait) const {
  if (wait.reason == Reason::NoDump || wait.reason == Reason::NotPosted) return true;
  if (wait.reason != Reason::Unfinished) return false;
  const std::optional<std::size_t> dump = dumpOf(wait.on);
  return dump && std::ranges::none_of(primary[*dump], [&](const Wait& theirs) { return theirs.op == wait.other; });
}

bool Inquiry::postsAhead() const {
  for (const RankDump& dump : dumps.dumps) {
    const RecordedOp* open = nullptr;
    for (const RecordedOp& op : dump.ops) {
      if (open != nullptr && isMessage(op.kind) && (op.batch == 0 || op.batch != open->batch)) return true;
      if (isMessage(op.kind) && op.state != OpState::Done) open = &op;
    }
  }
  return false;
}

void Inquiry::receivesArePostedAhead() {
  for (std::size_t d = 0; d < primary.size(); ++d) {
    const RankRow& row = rows->ranks[d];
    const std::optional<Place> last = progressOf(d).last;
    if (!last) continue;
    const std::vector<Action>& actions = rows->schedule.rows[row.row.index()];
    const auto first = actions.begin() + last->position + 1;
    const auto end = std::find_if_not(first, actions.end(), isWaitless);
    const bool atEnd = std::all_of(first, actions.end(), [](const Action& next) { return !isCompute(next.kind); });
    primary[d].clear();
    for (const Wait& wait : waits.open[d]) {
      const std::optional<Place>& place = row.places[wait.op];
      const bool needed = place && std::any_of(first, end, [&](const Action& next) { return needs(next, rows->at(row.row, *place)); });
      if ((needed || (atEnd && end == actions.end())) && (primary[d].empty() || primary[d].front().op == wait.op))
        primary[d].push_back(wait);
    }
  }
}

Spot Inquiry::spotAt(JobRank rank, Rank row, const Place& place) const {
  Spot spot;
  spot.rank = rank;
  spot.row = row;
  spot.step = place.step;
  if (place.position < 0) return spot;
  spot.action = rows->at(row, place);
  spot.position = rows->inFile[row.index()][static_cast<std::size_t>(place.position)];
  spot.inRow = true;
  return spot;
}

Spot Inquiry::spotOf(std::size_t d, std::size_t op, JobRank on) const {
  const RankDump& dump = dumps.dumps[d];
  Spot spot;
  if (rows != nullptr && rows->ranks[d].places[op]) spot = spotAt(dump.rank, rows->ranks[d].row, *rows->ranks[d].places[op]);
  if (!spot.inRow) spot.position = static_cast<int>(op);
  if (!spot.action) spot.action = dump.ops[op].action;
  if (spot.step < 0) spot.step = dump.step;
  spot.rank = dump.rank;
  if (rows != nullptr) spot.row = rows->ranks[d].row;
  spot.operation = dump.ops[op].name;
  spot.on = on;
  spot.posted = dump.ops[op].posted;
  return spot;
}

Spot Inquiry::spotOf(const Wait& wait) const { return spotOf(*dumpOf(wait.rank), wait.op, wait.on); }

std::optional<Wait> Inquiry::earliest(const std::vector<Wait>& some) const {
  if (some.empty()) return std::nullopt;
  const bool timed = std::ranges::all_of(some, [&](const Wait& wait) { return opOf(wait).posted > 0; });
  return *std::ranges::min_element(some, {},
                                   [&](const Wait& wait) { return std::tuple(timed ? opOf(wait).posted : 0, wait.rank, wait.op); });
}

Inquiry::Progress Inquiry::progressOf(std::size_t d) const {
  Progress progress{rows->ranks[d].row, {}};
  for (const std::optional<Place>& place : rows->ranks[d].places) {
    if (place) progress.advance(*place);
  }
  return progress;
}

Inquiry::Progress Inquiry::seenOf(JobRank rank) const {
  Progress progress{rowOf(dumps, rank, static_cast<int>(rows->schedule.rows.size())), {}};
  if (progress.row.value < 0) return progress;
  const std::vector<Action>& actions = rows->schedule.rows[progress.row.index()];
  for (std::size_t d = 0; d < dumps.dumps.size(); ++d) {
    const RankRow& theirs = rows->ranks[d];
    if (theirs.row.value < 0) continue;
    for (std::size_t i = 0; i < theirs.places.size(); ++i) {
      const RecordedOp& op = dumps.dumps[d].ops[i];
      if (!theirs.places[i] || op.peer != rank || op.state != OpState::Done) continue;
      const auto found = std::ranges::find(actions, counterpart(rows->at(theirs.row, *theirs.places[i])));
      if (found != actions.end()) progress.advance({theirs.places[i]->step, static_cast<int>(found - actions.begin())});
    }
  }
  return progress;
}

SilentRank Inquiry::silentOf(JobRank rank) const {
  SilentRank silent;
  silent.rank = rank;
  const std::optional<std::size_t> dump = dumpOf(rank);
  const auto gone = std::ranges::find(dumps.gone, rank, &RankReport::rank);
  if (dump) {
    silent.file = dumps.dumps[*dump].file;
    const std::vector<RecordedOp>& ops = dumps.dumps[*dump].ops;
    const auto done = std::ranges::find_if(ops.rbegin(), ops.rend(), [](const RecordedOp& op) { return op.state == OpState::Done; });
    if (done != ops.rend()) silent.last = spotOf(*dump, static_cast<std::size_t>(ops.rend() - done) - 1, done->peer);
    silent.why = waits.open[*dump].empty() ? "all its messages are done, and it posted no other"
                 : primary[*dump].empty()  ? "what its next action needs has arrived"
                                           : "a message for it was sent, but it did not take it";
  } else {
    silent.why = "it left no dump";
  }
  if (gone != dumps.gone.end()) silent.why = gone->dead ? "NCCL considers it dead" : "it does not answer NCCL RAS";
  if (rows == nullptr) return silent;
  const Progress progress = dump ? progressOf(*dump) : seenOf(rank);
  silent.row = progress.row;
  if (progress.row.value < 0) return silent;
  if (!dump && progress.last) silent.last = spotAt(rank, progress.row, *progress.last);
  const std::vector<Action>& actions = rows->schedule.rows[progress.row.index()];
  const auto next = static_cast<std::size_t>(progress.last ? progress.last->position + 1 : 0);
  if (next >= actions.size()) return silent;
  silent.next = spotAt(rank, progress.row, {progress.last ? progress.last->step : 0, static_cast<int>(next)});
  const auto begin = actions.begin() + static_cast<std::ptrdiff_t>(next);
  const auto message = std::find_if_not(begin, actions.end(), isWaitless);
  // That a message was sent does not say that it was taken.
  if (!dump && progress.last && isReceive(actions[static_cast<std::size_t>(progress.last->position)].kind))
    silent.possible.push_back(actions[static_cast<std::size_t>(progress.last->position)]);
  silent.possible.insert(silent.possible.end(), begin, message == actions.end() ? message : message + 1);
  return silent;
}

std::string placeText(const Spot& spot) {
  const std::string name = spot.action ? toString(*spot.action) : printableLine(spot.operation);
  const std::string step = spot.step > 0 ? fmt::format(", step {}", spot.step) : "";
  if (spot.position < 0) return name + (spot.step > 0 ? fmt::format(" (step {})", spot.step) : "");
  return fmt::format("{} ({} {}{})", name, spot.inRow ? "position" : "operation", spot.position, step);
}

std::string textOf(const Spot& spot) {
  return fmt::format("rank {} waits in {}{}", spot.rank.value, placeText(spot),
                     spot.on.value >= 0 ? fmt::format(" for rank {}", spot.on.value) : "");
}

}  // namespace pw::hang
