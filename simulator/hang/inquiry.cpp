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
  return receive.kind == ActionKind::RecvBackward && makesGradient(compute.kind);
}

bool isWaitless(const Action& action) { return !isSend(action.kind) && !isReceive(action.kind); }

}  // namespace

Inquiry::Inquiry(const Dumps& all, const Rows* placed) : dumps(all), rows(placed), waits(waitsOf(all, placed)) {
  primary.resize(dumps.dumps.size());
  doubtful.resize(dumps.dumps.size(), false);
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

bool Inquiry::postsBeyondNeeds() const {
  for (std::size_t d = 0; d < primary.size(); ++d) {
    const RankRow& row = rows->ranks[d];
    const std::optional<Place> last = progressOf(d).last;
    if (!last || row.row.value < 0) continue;
    const std::vector<Action>& actions = rows->schedule.rows[row.row.index()];
    for (const Wait& wait : waits.open[d]) {
      const std::optional<Place>& place = row.places[wait.op];
      if (!place || place->position < 0 || dumps.dumps[d].ops[wait.op].kind != OpKind::Receive) continue;
      const Action& receive = rows->at(row.row, *place);
      const auto after = actions.begin() + place->position;
      const auto user = std::find_if(after, actions.end(), [&](const Action& action) { return needs(action, receive); });
      if (user == actions.end()) continue;
      if (std::pair(place->step, static_cast<int>(user - actions.begin())) < std::pair(last->step, last->position)) return true;
    }
  }
  return false;
}

void Inquiry::devicesWait() {
  hostsRunAhead = true;
  const bool knowsStarts = std::ranges::any_of(dumps.dumps, [](const RankDump& dump) {
    return std::ranges::any_of(dump.ops, [](const RecordedOp& op) { return op.state == OpState::Started; });
  });
  for (std::size_t d = 0; d < primary.size() && knowsStarts; ++d) {
    const RankDump& dump = dumps.dumps[d];
    const bool mayHaveLostIt = !dump.complete && std::ranges::find(dump.ops, OpState::Done, &RecordedOp::state) == dump.ops.end();
    if (mayHaveLostIt) continue;  // the one that its device began
    const auto began = [&](const Wait& wait) { return dump.ops[wait.op].state == OpState::Started; };
    if (std::ranges::none_of(primary[d], began)) primary[d].clear();
  }
}

/// Of a rank's open operations in row order, the one that it waits in; nothing where its next action needs none of them.
std::optional<std::size_t> Inquiry::neededOf(std::size_t d) const {
  const RankRow& row = rows->ranks[d];
  const std::optional<Place> last = progressOf(d).last;
  if (!last) return std::nullopt;
  const std::vector<Action>& actions = rows->schedule.rows[row.row.index()];
  const auto openAt = [&](const Place& place) -> std::optional<std::size_t> {
    for (const Wait& wait : waits.open[d]) {
      if (wait.reason != Reason::TheyAreDone && row.places[wait.op] == place) return wait.op;
    }
    return std::nullopt;
  };
  const auto kindAt = [&](const Place& place) { return actions[static_cast<std::size_t>(place.position)].kind; };
  const RankDump& dump = dumps.dumps[d];
  if (rows->atOnce && isReceive(kindAt(*last))) {
    const std::optional<std::size_t> receive = openAt(*last);
    const Place before{last->step, last->position - 1};
    if (!receive || before.position < 0 || !isSend(kindAt(before))) return receive;
    const std::optional<std::size_t> send = openAt(before);
    return send && dump.ops[*send].peer == dump.ops[*receive].peer ? send : receive;
  }
  const auto first = actions.begin() + last->position + 1;
  const auto end = std::find_if_not(first, actions.end(), isWaitless);
  for (auto next = first; next != end; ++next) {
    for (const Wait& wait : waits.open[d]) {
      const std::optional<Place>& place = row.places[wait.op];
      if (place && wait.reason != Reason::TheyAreDone && place->step == last->step && needs(*next, rows->at(row.row, *place)))
        return wait.op;
    }
  }
  if (end != actions.end() || std::any_of(first, end, [](const Action& next) { return isCompute(next.kind); })) return std::nullopt;
  std::optional<std::size_t> send;
  for (const Wait& wait : waits.open[d]) {
    if (wait.reason != Reason::TheyAreDone && (!send || (rows->atOnce ? wait.op < *send : wait.op > *send))) send = wait.op;
  }
  return send;
}

void Inquiry::receivesArePostedAhead() {
  for (std::size_t d = 0; d < primary.size(); ++d) {
    if (!progressOf(d).last) continue;
    std::optional<std::size_t> op = neededOf(d);
    doubtful[d] = !op;
    if (!op) {
      const auto oldest = std::ranges::find_if(waits.open[d], [](const Wait& wait) { return wait.reason != Reason::TheyAreDone; });
      if (oldest != waits.open[d].end()) op = oldest->op;
    }
    primary[d].clear();
    if (!op) continue;
    const std::vector<RecordedOp>& ops = dumps.dumps[d].ops;
    const std::size_t batch = ops[*op].batch;
    std::ranges::copy_if(waits.open[d], std::back_inserter(primary[d]), [&](const Wait& wait) {
      return wait.op == *op || (batch > 0 && ops[wait.op].batch == batch && wait.reason != Reason::TheyAreDone);
    });
  }
}

bool Inquiry::silenceDoubtful(const std::vector<Wait>& some) {
  bool found = false;
  for (const Wait& wait : some) {
    const std::size_t d = *dumpOf(wait.rank);
    if (!doubtful[d] || primary[d].empty()) continue;
    primary[d].clear();
    found = true;
  }
  return found;
}

bool Inquiry::preferMissing() {
  bool changed = false;
  const auto isMissing = [](const Wait& wait) { return wait.reason == Reason::NotPosted || wait.reason == Reason::NoDump; };
  for (std::size_t d = 0; d < primary.size(); ++d) {
    if (primary[d].empty() || std::ranges::any_of(primary[d], isMissing)) continue;
    const auto oldest = std::ranges::find_if(waits.open[d], isMissing);
    if (oldest == waits.open[d].end()) continue;
    const std::size_t op = oldest->op;
    primary[d].clear();
    std::ranges::copy_if(waits.open[d], std::back_inserter(primary[d]), [&](const Wait& wait) { return wait.op == op; });
    changed = true;
  }
  return changed;
}

bool Inquiry::lastMayHaveFailed() {
  std::vector<std::map<std::size_t, std::size_t>> posted(dumps.dumps.size());  // collectives by dump and group
  std::map<std::size_t, std::size_t> most;                                     // by group
  std::size_t total = 0;
  for (std::size_t d = 0; d < posted.size(); ++d) {
    total += waits.open[d].size();
    for (const RecordedOp& op : dumps.dumps[d].ops) {
      if (op.kind == OpKind::Collective) most[op.group] = std::max(most[op.group], ++posted[d][op.group]);
    }
  }
  struct Member {
    JobRank rank;
    std::optional<std::size_t> posted;  // nothing: it left no dump
  };
  std::map<std::size_t, std::vector<Member>> missing;  // by group: who may have posted less than another
  const auto missingOf = [&](std::size_t group) -> const std::vector<Member>& {
    const auto [at, isNew] = missing.try_emplace(group);
    for (std::size_t place = 0; isNew && place < dumps.sizeOf(group); ++place) {
      const JobRank member = dumps.memberAt(group, place);
      const std::optional<std::size_t> dump = dumpOf(member);
      if (!dump) at->second.push_back({member, std::nullopt});
      if (dump && dumps.dumps[*dump].complete && posted[*dump][group] < most[group]) at->second.push_back({member, posted[*dump][group]});
    }
    return at->second;
  };
  bool found = false;
  for (std::size_t d = 0; d < primary.size(); ++d) {
    const std::vector<RecordedOp>& ops = dumps.dumps[d].ops;
    if (ops.empty() || ops.back().kind != OpKind::Collective || !ops.back().name.starts_with("gloo:")) continue;
    const std::size_t group = ops.back().group;
    const bool all = total < kMostWaits;
    for (const Member& member : missingOf(group)) {
      if (member.posted && (!dumps.dumps[d].complete || *member.posted >= posted[d][group])) continue;
      waits.open[d].push_back({dumps.dumps[d].rank, ops.size() - 1, member.rank, member.posted ? Reason::NotPosted : Reason::NoDump});
      ++total;
      if (!all) break;
    }
    primary[d] = waits.open[d];
    found = found || !primary[d].empty();
  }
  return found;
}

/// Whether the steps of a rank are counted from the first of the job: by its own dump, or where it left none by all others.
bool Inquiry::knowsStep(JobRank rank) const {
  if (const RankDump* dump = dumps.of(rank)) return dump->complete;
  return std::ranges::all_of(dumps.dumps, &RankDump::complete);
}

Spot Inquiry::spotAt(JobRank rank, Rank row, const Place& place) const {
  Spot spot;
  spot.rank = rank;
  spot.row = row;
  spot.step = knowsStep(rank) ? place.step : -1;
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
  spot.setsUp = dump.ops[op].setsUp;
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
  const std::vector<std::optional<Place>>& places = rows->ranks[d].places;
  for (std::size_t op = 0; op < places.size(); ++op) {
    if (places[op] && (!hostsRunAhead || dumps.dumps[d].ops[op].state == OpState::Done)) progress.advance(*places[op]);
  }
  return progress;
}

std::map<std::pair<int, int>, Inquiry::Seen> Inquiry::seenOf(JobRank rank) const {
  std::map<std::pair<int, int>, Seen> seen;
  const Rank row = rowOf(dumps, rank, static_cast<int>(rows->schedule.rows.size()));
  if (row.value < 0) return seen;
  std::map<Action, int> positions;
  const std::vector<Action>& actions = rows->schedule.rows[row.index()];
  for (std::size_t position = 0; position < actions.size(); ++position)  // the first, where an UNSHARD comes again
    positions.emplace(actions[position], static_cast<int>(position));
  for (std::size_t d = 0; d < dumps.dumps.size(); ++d) {
    const RankRow& theirs = rows->ranks[d];
    if (theirs.row.value < 0) continue;
    for (std::size_t i = 0; i < theirs.places.size(); ++i) {
      const RecordedOp& op = dumps.dumps[d].ops[i];
      if (!theirs.places[i] || op.peer != rank) continue;
      const auto found = positions.find(counterpart(rows->at(theirs.row, *theirs.places[i])));
      const bool awaited = std::ranges::any_of(primary[d], [&](const Wait& wait) { return wait.op == i; });
      if (found == positions.end()) continue;
      const auto [entry, isNew] = seen.emplace(std::pair(theirs.places[i]->step, found->second), Seen{op.state == OpState::Done, awaited});
      if (isNew) continue;  // another tensor of the same action
      entry->second.done = entry->second.done && op.state == OpState::Done;
      entry->second.awaited = entry->second.awaited || awaited;
    }
  }
  return seen;
}

/// Where a rank without a dump came to: after the last message that is known to be done. A receive whose sender posted it and went on may
/// be taken, and the rank is not beyond a send that its receiver posted in vain.
void Inquiry::addUnseen(SilentRank& silent) const {
  const std::map<std::pair<int, int>, Seen> seen = seenOf(silent.rank);
  silent.row = rowOf(dumps, silent.rank, static_cast<int>(rows->schedule.rows.size()));
  if (silent.row.value < 0) return;
  const std::vector<Action>& actions = rows->schedule.rows[silent.row.index()];
  const auto kindAt = [&](int position) { return actions[static_cast<std::size_t>(position)].kind; };
  Place at{0, 0};  // after the last that is done
  std::optional<Place> last;
  for (const auto& [place, end] : seen) {
    if (end.done) last = Place{place.first, place.second};
  }
  if (last) {
    silent.last = spotAt(silent.rank, silent.row, *last);
    at = {last->step, last->position + 1};
    // That a message was sent does not say that it was taken.
    if (isReceive(kindAt(last->position))) silent.possible.push_back(actions[static_cast<std::size_t>(last->position)]);
  }
  const int count = static_cast<int>(actions.size());
  const auto isAwaited = [&](int position) {  // its receiver says that it did not come
    const auto found = seen.find({at.step, position});
    return isSend(kindAt(position)) && found != seen.end() && !found->second.done;
  };
  int limit = at.position;
  while (limit < count && !isAwaited(limit)) ++limit;
  if (limit == count) {  // nobody waits for a message of this step
    for (limit = at.position; limit < count && isWaitless(actions[static_cast<std::size_t>(limit)]);) ++limit;
  }
  for (int i = at.position; i < std::min(count, limit + 1); ++i) silent.possible.push_back(actions[static_cast<std::size_t>(i)]);
  int next = at.position;
  const auto mayBeTaken = [&](int position) {  // its sender went on
    const auto found = seen.find({at.step, position});
    return isReceive(kindAt(position)) && found != seen.end() && !found->second.awaited;
  };
  while (next < limit && mayBeTaken(next)) ++next;
  if (next < count) silent.next = spotAt(silent.rank, silent.row, {at.step, next});
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
                 : primary[*dump].empty()  ? (hostsRunAhead ? "its device has not begun its oldest open operation, so it computes"
                                                            : "what its next action needs has arrived")
                                           : "a message for it was sent, but it did not take it";
  } else {
    silent.why = dumps.notes.empty() ? "it left no dump" : "none of the dumps that could be read is its";  // one left out may be
  }
  if (gone != dumps.gone.end()) silent.why = gone->dead ? "NCCL considers it dead" : "it does not answer NCCL RAS";
  if (rows == nullptr) return silent;
  if (!dump) {
    addUnseen(silent);
    return silent;
  }
  const Progress progress = progressOf(*dump);
  silent.row = progress.row;
  if (progress.row.value < 0) return silent;
  const std::vector<Action>& actions = rows->schedule.rows[progress.row.index()];
  const auto next = static_cast<std::size_t>(progress.last ? progress.last->position + 1 : 0);
  if (next >= actions.size()) return silent;
  silent.next = spotAt(rank, progress.row, {progress.last ? progress.last->step : 0, static_cast<int>(next)});
  const auto begin = actions.begin() + static_cast<std::ptrdiff_t>(next);
  const auto message = std::find_if_not(begin, actions.end(), isWaitless);
  silent.possible.assign(begin, message == actions.end() ? message : message + 1);
  return silent;
}

std::string placeText(const Spot& spot) {
  const std::string name = spot.action ? toString(*spot.action) : printableLine(spot.operation);
  const std::string step = spot.step > 0 ? fmt::format(", step {}", spot.step) : "";
  if (spot.position < 0) return name + (spot.step > 0 ? fmt::format(" (step {})", spot.step) : "");
  const char* const unit = spot.inRow ? "position" : spot.setsUp ? "set-up, operation" : "operation";
  return fmt::format("{} ({} {}{})", name, unit, spot.position, step);
}

std::string textOf(const Spot& spot) {
  return fmt::format("rank {} waits in {}{}", spot.rank.value, placeText(spot),
                     spot.on.value >= 0 ? fmt::format(" for rank {}", spot.on.value) : "");
}

}  // namespace pw::hang
