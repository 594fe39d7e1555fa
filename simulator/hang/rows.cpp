#include "simulator/hang/rows.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "simulator/hang/lowerings.h"

namespace pw::hang {
namespace {

/// A message as it appears in a row: to or from which row.
struct Slot {
  OpKind kind = OpKind::Send;
  Rank peer{-1};
  int position = -1;

  [[nodiscard]] auto key() const { return std::pair(kind, peer.value); }
};

/// How many tensors go from stage to stage at a time, each in a message of its own: a model may give several.
struct Copies {
  int forward = 1, backward = 1;

  [[nodiscard]] int of(ActionKind kind) const {
    return kind == ActionKind::SendForward || kind == ActionKind::RecvForward ? forward : backward;
  }
};

/// The messages of a row that go to another rank.
std::vector<Slot> slotsOf(const Schedule& schedule, std::size_t row, const Copies& copies) {
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < schedule.rows[row].size(); ++i) {
    const Action& action = schedule.rows[row][i];
    if (!isSend(action.kind) && !isReceive(action.kind)) continue;
    const Action other = counterpart(action);
    if (!hasStage(schedule, other.stage)) continue;
    const Slot slot{isSend(action.kind) ? OpKind::Send : OpKind::Receive, schedule.placement.rankOf(other.stage, other.microbatch),
                    static_cast<int>(i)};
    slots.insert(slots.end(), static_cast<std::size_t>(copies.of(action.kind)), slot);
  }
  return slots;
}

/// The group in which a rank exchanges messages; nothing where it exchanges none.
std::optional<std::size_t> messageGroup(const RankDump& dump) {
  for (const RecordedOp& op : dump.ops) {
    if (isMessage(op.kind)) return op.group;
  }
  return std::nullopt;
}

/// One rank's operations in its row.
class Walk {
 public:
  Walk(const Dumps& dumps, const RankDump& dump, const Schedule& schedule, const Copies& copies) : dump_(dump), schedule_(schedule) {
    const std::optional<std::size_t> group = messageGroup(dump);
    const int rows = static_cast<int>(schedule.rows.size());
    result_.places.resize(dump.ops.size());
    if (!group) {
      result_.row = rowOf(dumps, dump.rank, rows);
      return;
    }
    result_.row = rowOf(dumps, *group, dump.rank, rows);
    if (result_.row.value < 0) return;
    slots_ = slotsOf(schedule, result_.row.index(), copies);
    for (std::size_t i = 0; i < dump.ops.size(); ++i) {
      const RecordedOp& op = dump.ops[i];
      if (!isMessage(op.kind) || op.setsUp) continue;
      messages_.push_back(i);
      peers_.push_back(rowOf(dumps, *group, op.peer, rows));
    }
  }

  RankRow place(bool exact) {
    if (result_.row.value < 0) return result_;
    if (placeNamed()) return result_;
    const std::size_t enter = dump_.complete || slots_.empty() ? 0 : bestEntry();
    const std::size_t fitting = walk(enter, exact);
    placeByPair(fitting, enter);
    return result_;
  }

 private:
  [[nodiscard]] bool isAt(std::size_t message, std::size_t slot) const {
    const Slot& s = slots_[slot % slots_.size()];
    return dump_.ops[messages_[message]].kind == s.kind && peers_[message] == s.peer;
  }
  bool placeNamed();
  [[nodiscard]] std::size_t bestEntry() const;
  /// The slots of messages that were started together, in the slots from one on; nothing if they do not fit.
  [[nodiscard]] std::optional<std::vector<std::size_t>> slotsFrom(std::size_t message, std::size_t end, std::size_t slot) const;
  /// How many messages from one on fit the slots from one on, up to a number.
  [[nodiscard]] std::size_t fits(std::size_t message, std::size_t slot, std::size_t most) const;
  /// After a message that does not fit: where to go on.
  struct Entry {
    std::size_t message = 0, slot = 0;
  };
  [[nodiscard]] std::optional<Entry> resume(std::size_t message, std::size_t slot) const;
  /// Whether the rank posted more of a kind to or from a peer in one step than its row has, in whatever order.
  [[nodiscard]] bool breaksAnyOrder() const;
  /// Places messages in the row's order; returns how many were placed.
  std::size_t walk(std::size_t enter, bool exact);
  void placeByPair(std::size_t first, std::size_t enter);
  void depart(std::size_t message, std::size_t slot);
  void set(std::size_t message, std::size_t slot) {
    result_.places[messages_[message]] = Place{static_cast<int>(slot / slots_.size()), slots_[slot % slots_.size()].position};
  }

  const RankDump& dump_;
  const Schedule& schedule_;
  RankRow result_{};
  std::vector<Slot> slots_{};
  std::vector<std::size_t> messages_{};  ///< index of each message among the operations
  std::vector<Rank> peers_{};            ///< of each message
};

bool Walk::placeNamed() {
  if (dump_.ops.empty() || std::ranges::none_of(dump_.ops, [](const RecordedOp& op) { return op.action.has_value(); })) return false;
  std::map<Action, int> places;
  const auto& row = schedule_.rows[result_.row.index()];
  for (std::size_t i = 0; i < row.size(); ++i) places.emplace(row[i], static_cast<int>(i));
  for (std::size_t i = 0; i < dump_.ops.size(); ++i) {
    if (!dump_.ops[i].action) continue;
    const auto found = places.find(*dump_.ops[i].action);
    if (found != places.end()) result_.places[i] = Place{std::max(0, dump_.step), found->second};
  }
  return true;
}

std::size_t Walk::fits(std::size_t message, std::size_t slot, std::size_t most) const {
  std::size_t count = 0;
  while (count < most && message + count < messages_.size() && isAt(message + count, slot + count)) ++count;
  return count;
}

std::size_t Walk::bestEntry() const {
  std::size_t best = 0, longest = 0;
  for (std::size_t enter = 0; enter < slots_.size(); ++enter) {
    const std::size_t count = fits(0, enter, messages_.size());
    if (count > longest) best = enter, longest = count;
  }
  return best;
}

std::optional<std::vector<std::size_t>> Walk::slotsFrom(std::size_t message, std::size_t end, std::size_t slot) const {
  const std::size_t count = end - message;
  std::vector<std::size_t> slots;
  std::vector<bool> taken(count, false);
  for (std::size_t m = message; m < end; ++m) {
    std::size_t k = 0;
    while (k < count && (taken[k] || !isAt(m, slot + k))) ++k;
    if (k == count) return std::nullopt;
    taken[k] = true;
    slots.push_back(slot + k);
  }
  return slots;
}

std::optional<Walk::Entry> Walk::resume(std::size_t message, std::size_t slot) const {
  constexpr std::size_t kMostLeftOut = 3, kEnough = 4, kAhead = 16;
  std::optional<Entry> best;
  std::size_t longest = 0;
  const auto tryEntry = [&](std::size_t m, std::size_t s) {
    const std::size_t count = fits(m, s, kAhead);
    if (m >= messages_.size() || count <= longest || count < std::min(kEnough, messages_.size() - m) || count < s - slot) return;
    longest = count;
    best = Entry{m, s};
  };
  for (std::size_t skip = 1; skip <= kMostLeftOut; ++skip) tryEntry(message, slot + skip);
  tryEntry(message + 1, slot);
  return best;
}

bool Walk::breaksAnyOrder() const {
  if (!dump_.complete) return false;
  std::map<std::pair<OpKind, int>, int> row;
  for (const Slot& slot : slots_) ++row[slot.key()];
  std::map<std::pair<OpKind, int>, int> left;
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    if (m % slots_.size() == 0) left = row;
    if (--left[{dump_.ops[messages_[m]].kind, peers_[m].value}] < 0) return true;
  }
  return false;
}

std::size_t Walk::walk(std::size_t enter, bool exact) {
  if (slots_.empty()) {
    if (!messages_.empty() && exact) result_.departure = Departure{messages_.front(), {0, -1}};
    return 0;
  }
  constexpr int kMostDepartures = 4;
  const auto batch = [&](std::size_t message) { return dump_.ops[messages_[message]].batch; };
  int departures = 0;
  for (Entry at{0, enter}; at.message < messages_.size();) {
    std::size_t end = at.message + 1;
    while (end < messages_.size() && batch(at.message) > 0 && batch(end) == batch(at.message)) ++end;
    if (const std::optional<std::vector<std::size_t>> slots = slotsFrom(at.message, end, at.slot)) {
      for (std::size_t m = at.message; m < end; ++m) set(m, (*slots)[m - at.message]);
      at = {end, at.slot + (end - at.message)};
      continue;
    }
    if (!exact) return at.message;
    if (!result_.departure) {
      std::size_t slot = at.slot;  // the first that none of them is in
      const auto isIn = [&](std::size_t s) {
        for (std::size_t m = at.message; m < end; ++m) {
          if (isAt(m, s)) return true;
        }
        return false;
      };
      while (slot + 1 < at.slot + (end - at.message) && isIn(slot)) ++slot;
      depart(at.message, slot);
    }
    const std::optional<Entry> next = ++departures > kMostDepartures ? std::nullopt : resume(at.message, at.slot);
    if (!next) {
      result_.departure->certain = breaksAnyOrder();
      return at.message;
    }
    if (next->message == at.message) result_.departure->extra.reset();  // something was left out before it
    result_.departure->certain = true;
    at = *next;
  }
  return messages_.size();
}

/// A message does not fit the slot that is next in the row.
void Walk::depart(std::size_t message, std::size_t slot) {
  const std::size_t step = slot / slots_.size(), at = slot % slots_.size();
  result_.departure = Departure{messages_[message], {static_cast<int>(step), slots_[at].position}};
  const auto isAlike = [&](const Slot& s) { return s.kind == dump_.ops[messages_[message]].kind && s.peer == peers_[message]; };
  const auto rest = slots_.begin() + static_cast<std::ptrdiff_t>(at);
  if (std::any_of(rest, slots_.end(), isAlike)) return;
  const auto last = std::find_if(slots_.rbegin(), slots_.rend(), isAlike);
  if (last == slots_.rend()) return;
  Action extra = schedule_.rows[result_.row.index()][static_cast<std::size_t>(last->position)];
  extra.microbatch = Microbatch{extra.microbatch.value + 1};
  result_.departure->extra = extra;
}

/// The k-th message to or from a peer is the k-th of the row.
void Walk::placeByPair(std::size_t first, std::size_t enter) {
  if (slots_.empty()) return;
  std::map<std::pair<OpKind, int>, std::vector<std::size_t>> slotsOfPair;
  for (std::size_t s = 0; s < slots_.size(); ++s) slotsOfPair[slots_[s].key()].push_back(s);
  std::map<std::pair<OpKind, int>, std::size_t> next;
  for (const auto& [key, slots] : slotsOfPair)  // those before the entry are of operations that were dropped
    next[key] = static_cast<std::size_t>(std::ranges::lower_bound(slots, enter % slots_.size()) - slots.begin());
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    const std::pair key{dump_.ops[messages_[m]].kind, peers_[m].value};
    const auto slots = slotsOfPair.find(key);
    if (slots == slotsOfPair.end()) continue;
    const std::size_t k = next[key]++;
    if (m < first) continue;
    set(m, k / slots->second.size() * slots_.size() + slots->second[k % slots->second.size()]);
  }
}

Rows placeIn(const Dumps& dumps, const Lowered& lowered, const Copies& copies, bool exact) {
  Rows rows;
  rows.schedule = lowered.schedule;
  rows.atOnce = lowered.atOnce;
  rows.exact = exact;
  for (const RankDump& dump : dumps.dumps) rows.ranks.push_back(Walk(dumps, dump, lowered.schedule, copies).place(exact));
  return rows;
}

/// Whether ranks that depart from their row certainly do, or are stuck right there; others have another lowering.
bool departCertainly(const Dumps& dumps, const Rows& rows) {
  for (std::size_t d = 0; d < rows.ranks.size(); ++d) {
    const std::optional<Departure>& departure = rows.ranks[d].departure;
    if (departure && !departure->certain && departure->op < dumps.dumps[d].ops.size() &&
        dumps.dumps[d].ops[departure->op].state == OpState::Done)
      return false;
  }
  return true;
}

/// Rows in the lowering that the fewest ranks depart from.
struct Fit {
  Rows rows{};
  std::ptrdiff_t departures = -1;
  std::vector<bool> departsInOne{};  ///< by dump: in some lowering
};

Fit bestFit(const Dumps& dumps, const std::vector<Lowered>& lowerings, const Copies& copies) {
  Fit fit;
  fit.departsInOne.resize(dumps.dumps.size());
  for (const Lowered& lowered : lowerings) {
    Rows rows = placeIn(dumps, lowered, copies, true);
    const auto departures = std::ranges::count_if(rows.ranks, [](const RankRow& row) { return row.departure.has_value(); });
    for (std::size_t d = 0; d < rows.ranks.size(); ++d) fit.departsInOne[d] = fit.departsInOne[d] || rows.ranks[d].departure;
    if (fit.departures >= 0 && departures >= fit.departures) continue;
    fit.departures = departures;
    fit.rows = std::move(rows);
  }
  return fit;
}

/// Boundaries of stages that messages of several sizes cross at both ends, as no tensor's do: a step's microbatches are equal.
std::ptrdiff_t unequalBoundaries(const Dumps& dumps, const Rows& rows) {
  struct End {
    Bytes bytes = 0;
    bool varies = false;
  };
  std::map<std::tuple<Stage, ActionKind, int>, std::array<End, 2>> boundaries;  // of the sender's action, and of which of its tensors
  for (std::size_t d = 0; d < rows.ranks.size(); ++d) {
    std::map<std::pair<int, int>, int> copies;  // by step and position: placed so far
    for (std::size_t i = 0; i < rows.ranks[d].places.size(); ++i) {
      const std::optional<Place>& place = rows.ranks[d].places[i];
      const RecordedOp& op = dumps.dumps[d].ops[i];
      if (!place || !isMessage(op.kind)) continue;
      const int copy = copies[{place->step, place->position}]++;
      if (op.bytes == 0) continue;
      const Action& action = rows.at(rows.ranks[d].row, *place);
      const Action sent = op.kind == OpKind::Send ? action : counterpart(action);
      End& end = boundaries[{sent.stage, sent.kind, copy}][op.kind == OpKind::Send ? 0 : 1];
      end.varies = end.varies || (end.bytes != 0 && end.bytes != op.bytes);
      end.bytes = op.bytes;
    }
  }
  const auto varies = [](const End& end) { return end.bytes == 0 || end.varies; };
  return std::ranges::count_if(boundaries, [&](const auto& entry) { return varies(entry.second[0]) && varies(entry.second[1]); });
}

}  // namespace

Rank rowOf(const Dumps& dumps, std::size_t group, JobRank rank, int rows) {
  if (rows < 1 || static_cast<int>(dumps.sizeOf(group)) % rows != 0) return Rank{-1};
  const std::optional<std::size_t> place = dumps.placeOf(group, rank);
  return place ? Rank{static_cast<int>(*place) % rows} : Rank{-1};
}

Rank rowOf(const Dumps& dumps, JobRank rank, int rows) {
  std::vector<bool> tried(dumps.groups.size(), false);
  for (const RankDump& dump : dumps.dumps) {
    for (const RecordedOp& op : dump.ops) {
      if (!isMessage(op.kind) || tried[op.group]) continue;
      tried[op.group] = true;
      if (const Rank row = rowOf(dumps, op.group, rank, rows); row.value >= 0) return row;
    }
  }
  return Rank{-1};
}

Rows placeOps(const Dumps& dumps, const Schedule& schedule) {
  const std::vector<Lowered> lowerings = loweringsOf(schedule);
  constexpr int kMostCopies = 8;
  Copies copies;
  Fit best = bestFit(dumps, lowerings, copies);
  std::ptrdiff_t faults = best.departures + unequalBoundaries(dumps, best.rows);
  for (int forward = 1; forward <= kMostCopies; ++forward) {
    for (int backward = 1; backward <= forward; ++backward) {  // what needs no gradient sends none
      if (faults == 0) break;
      Fit other = bestFit(dumps, lowerings, {forward, backward});
      const std::ptrdiff_t these = other.departures + unequalBoundaries(dumps, other.rows);
      if (these >= faults) continue;
      faults = these;
      best = std::move(other);
      copies = {forward, backward};
    }
  }
  bool told = false;  // a rank did a whole step in the order of this lowering only
  for (std::size_t d = 0; d < best.rows.ranks.size(); ++d) {
    const RankRow& row = best.rows.ranks[d];
    const bool whole = std::ranges::any_of(row.places, [](const std::optional<Place>& place) { return place && place->step > 0; });
    told = told || (whole && !row.departure && best.departsInOne[d]);
  }
  const bool given = lowerings.size() == 1;
  const std::ptrdiff_t fewest = best.departures;
  const bool follows = given ? fewest <= std::max<std::ptrdiff_t>(1, std::ssize(dumps.dumps) / 2)
                             : fewest == 0 || (fewest == 1 && std::ssize(dumps.dumps) > 1 && (told || departCertainly(dumps, best.rows)));
  Rows rows = follows ? std::move(best.rows) : placeIn(dumps, lowerings.front(), copies, false);
  rows.inFile = positionsIn(schedule, rows.schedule);
  return rows;
}

}  // namespace pw::hang
