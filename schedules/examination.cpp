#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "schedules/examination.h"

namespace pw::examination {
namespace {

/// Where each rank's row begins when all rows are concatenated, and their total length.
std::vector<std::size_t> rowOffsets(const Schedule& s) {
  std::vector<std::size_t> offsets{0};
  offsets.reserve(s.rows.size() + 1);
  for (const auto& row : s.rows) offsets.push_back(offsets.back() + row.size());
  return offsets;
}

// ---- Channels ----------------------------------------------------------------------------------------------------

/// One end of a channel, at the point where its order of operations departs from that of the other end.
struct Departure {
  Rank first;   ///< the sender; of a shared channel the lower rank
  Rank second;  ///< the receiver; of a shared channel the higher rank
  Rank rank;    ///< whose row it is: one of the two
  std::int32_t position;

  [[nodiscard]] auto key() const { return std::tuple(first, second, rank != first); }
};

/// The operations of all channels, numbered at both ends. A channel is one direction of a rank pair or, if shared, both. The two ends agree
/// if and only if every operation has the same number as its counterpart; the first that does not is the first difference at either end.
class Channels {
 public:
  Channels(const Examination& e, bool shared) : e_(e), shared_(shared), offsets_(rowOffsets(e.schedule)) { number(); }

  /// The first difference of every channel that has one: two consecutive departures, that of `first` and that of `second`.
  [[nodiscard]] std::vector<Departure> departures() const;
  /// Counts from 1.
  [[nodiscard]] std::int32_t numberOf(Rank rank, std::int32_t position) const {
    return numbers_[offsets_[rank.index()] + static_cast<std::size_t>(position)] + 1;
  }

 private:
  void number();
  /// One rank's channels, as an index below 2R.
  [[nodiscard]] std::size_t channelOf(const Action& message) const {
    return 2 * e_.rankOf(counterpart(message)).index() + (!shared_ && isSend(message.kind) ? 1 : 0);
  }

  const Examination& e_;
  bool shared_;
  std::vector<std::size_t> offsets_;
  std::vector<std::int32_t> numbers_ = {};  ///< by rank and position
};

void Channels::number() {
  const auto& rows = e_.schedule.rows;
  numbers_.assign(offsets_.back(), kNowhere);
  std::vector<std::int32_t> next(2 * rows.size(), 0);
  std::vector<std::size_t> used;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    for (std::size_t i = 0; i < rows[rank].size(); ++i) {
      if (!isMessage(rows[rank][i].kind)) continue;
      const std::size_t channel = channelOf(rows[rank][i]);
      if (next[channel] == 0) used.push_back(channel);
      numbers_[offsets_[rank] + i] = next[channel]++;
    }
    for (const std::size_t channel : used) next[channel] = 0;  // not all 2R of them: that would be quadratic in ranks
    used.clear();
  }
}

std::vector<Departure> Channels::departures() const {
  const auto& rows = e_.schedule.rows;
  std::vector<Departure> all;
  std::vector<std::size_t> seen(2 * rows.size(), 0);  // by channel: 1 + the last rank that departed from it
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const Action& message = rows[r][i];
      if (!isMessage(message.kind)) continue;
      const Action other = counterpart(message);
      const Rank rank{r};
      const Rank peer = e_.rankOf(other);
      const auto position = static_cast<std::int32_t>(i);
      if (numberOf(rank, position) == numberOf(peer, e_.place(other))) continue;
      if (std::exchange(seen[channelOf(message)], r + 1) == r + 1) continue;
      const bool isFirst = shared_ ? rank < peer : isSend(message.kind);
      all.push_back({isFirst ? rank : peer, isFirst ? peer : rank, rank, position});
    }
  }
  std::ranges::sort(all, {}, &Departure::key);
  return all;
}

// ---- Execution ---------------------------------------------------------------------------------------------------

/// One execution. A rank runs until it needs an action that another rank has not done, and registers there; the other rank wakes it. At
/// most one rank waits for any action, and an action is visited once and once per wake, so the cost is linear. With blocking sends a
/// message is done when both ranks have reached it; the second to arrive advances both.
class Execution {
 public:
  Execution(const Examination& e, bool blockingSends)
      : e_(e),
        blocking_(blockingSends),
        offsets_(rowOffsets(e.schedule)),
        done_(e.schedule.rows.size(), 0),
        waiter_(offsets_.back(), kNowhere) {}

  void run();

  /// Where a rank stopped, and what it waits for there.
  struct Wait {
    std::int32_t position;
    Action needed;
  };
  /// Nothing when the rank is at its end.
  [[nodiscard]] std::optional<Wait> waitOf(Rank rank) const;
  /// The ranks that wait for each other, starting with the lowest; empty when every rank finished. If there are several cycles: the one
  /// reached from the lowest waiting rank.
  [[nodiscard]] std::vector<Rank> cycle() const;

 private:
  [[nodiscard]] std::optional<Action> awaited(const Action& a) const;
  [[nodiscard]] const std::vector<Action>& row(Rank rank) const { return e_.schedule.rows[rank.index()]; }
  [[nodiscard]] bool isAtEnd(Rank rank) const { return static_cast<std::size_t>(done_[rank.index()]) == row(rank).size(); }
  /// How many actions the rank's next step does: 2 for a slot.
  [[nodiscard]] std::int32_t width(Rank rank) const {
    return row(rank)[static_cast<std::size_t>(done_[rank.index()])].overlapsNext ? 2 : 1;
  }
  bool mayStep(Rank rank);
  void finish(Rank rank);

  const Examination& e_;
  bool blocking_;
  std::vector<std::size_t> offsets_;
  std::vector<std::int32_t> done_;    ///< by rank: how many actions it has done
  std::vector<std::int32_t> waiter_;  ///< by rank and position: the rank that waits for that action, or kNowhere
  std::vector<Rank> ready_ = {};
};

/// What an action waits for outside its own row: a neighbour stage's compute action, or the other end of a message. With buffered sends a
/// send waits for nothing.
std::optional<Action> Execution::awaited(const Action& a) const {
  switch (a.kind) {
    case ActionKind::Forward:
    case ActionKind::Backward:
    case ActionKind::BackwardInput: {
      const Stage before{a.stage.value + (isForward(a.kind) ? -1 : +1)};
      if (!e_.hasStage(before)) return std::nullopt;
      if (e_.lowered && e_.schedule.placement.rankOf(before, a.microbatch) != e_.rankOf(a)) return std::nullopt;
      return isForward(a.kind) ? Action{before, a.kind, a.microbatch} : e_.backwardOf(before, a.microbatch);
    }
    case ActionKind::RecvForward:
    case ActionKind::RecvBackward: return counterpart(a);
    case ActionKind::SendForward:
    case ActionKind::SendBackward: return blocking_ ? std::optional{counterpart(a)} : std::nullopt;
    case ActionKind::BackwardWeight:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: return std::nullopt;
  }
  return std::nullopt;
}

void Execution::finish(Rank rank) {
  const auto at = static_cast<std::size_t>(done_[rank.index()]++);
  const std::int32_t woken = waiter_[offsets_[rank.index()] + at];
  if (woken != kNowhere) ready_.emplace_back(woken);
}

/// Whether the rank's next step can run now; otherwise registers the wait with the rank that can end it.
bool Execution::mayStep(Rank rank) {
  const std::int32_t begin = done_[rank.index()];
  for (std::int32_t i = begin; i < begin + width(rank); ++i) {
    const Action& action = row(rank)[static_cast<std::size_t>(i)];
    const auto needed = awaited(action);
    if (!needed) continue;
    const Rank peer = e_.rankOf(*needed);
    const std::int32_t place = e_.place(*needed);
    if (blocking_ && isMessage(action.kind)) {
      if (done_[peer.index()] != place) return false;  // the peer will find this rank here
      finish(peer);
      ready_.push_back(peer);
    } else if (done_[peer.index()] <= place) {
      waiter_[offsets_[peer.index()] + static_cast<std::size_t>(place)] = rank.value;
      return false;
    }
  }
  return true;
}

void Execution::run() {
  for (std::size_t rank = done_.size(); rank > 0; --rank) ready_.emplace_back(rank - 1);
  while (!ready_.empty()) {
    const Rank rank = ready_.back();
    ready_.pop_back();
    while (!isAtEnd(rank) && mayStep(rank)) {
      for (std::int32_t actions = width(rank); actions > 0; --actions) finish(rank);
    }
  }
}

std::optional<Execution::Wait> Execution::waitOf(Rank rank) const {
  if (isAtEnd(rank)) return std::nullopt;
  const std::int32_t begin = done_[rank.index()];
  for (std::int32_t i = begin; i < begin + width(rank); ++i) {
    const auto needed = awaited(row(rank)[static_cast<std::size_t>(i)]);
    if (needed && done_[e_.rankOf(*needed).index()] <= e_.place(*needed)) return Wait{i, *needed};
  }
  return std::nullopt;
}

std::vector<Rank> Execution::cycle() const {
  Rank rank{0};
  while (rank.index() < done_.size() && isAtEnd(rank)) ++rank.value;
  if (rank.index() == done_.size()) return {};
  const auto next = [&](Rank r) { return e_.rankOf(waitOf(r)->needed); };
  std::vector<bool> met(done_.size(), false);
  for (; !met[rank.index()]; rank = next(rank)) met[rank.index()] = true;
  std::vector<Rank> ranks{rank};
  for (Rank r = next(rank); r != rank; r = next(r)) ranks.push_back(r);
  std::ranges::rotate(ranks, std::ranges::min_element(ranks));
  return ranks;
}

const Action& actionAt(const Examination& e, Rank rank, std::int32_t position) {
  return e.schedule.rows[rank.index()][static_cast<std::size_t>(position)];
}

/// Reports receives out of the order of their sends, one for each direction of a rank pair.
void checkChannelOrder(Examination& e) {
  const Channels channels(e, false);
  const auto departures = channels.departures();
  for (std::size_t i = 0; i + 1 < departures.size(); i += 2) {
    const Departure& sent = departures[i];
    const Departure& received = departures[i + 1];
    const Action& receive = actionAt(e, received.rank, received.position);
    const std::int32_t number = channels.numberOf(received.rank, received.position);
    e.report(received.rank, received.position, receive,
             fmt::format("{} is receive {} from rank {}, but rank {}'s send {} to rank {} is {} (position {}); a channel "
                         "hands messages over in the order they are sent",
                         toString(receive), number, sent.rank.value, sent.rank.value, number, received.rank.value,
                         toString(actionAt(e, sent.rank, sent.position)), sent.position));
  }
}

/// Reports the rank pairs whose operations differ in order.
void checkSharedChannels(Examination& e) {
  const Channels channels(e, true);
  const auto departures = channels.departures();
  for (std::size_t i = 0; i + 1 < departures.size(); i += 2) {
    const Departure& low = departures[i];
    const Departure& high = departures[i + 1];
    const Action& operation = actionAt(e, low.rank, low.position);
    e.report(low.rank, low.position, operation,
             fmt::format("deadlock where ranks {} and {} share one channel for both directions (separate channels avoid it): "
                         "operation {} on it is {} of rank {} (position {}), but {} of rank {} (position {})",
                         low.rank.value, high.rank.value, channels.numberOf(low.rank, low.position), toString(operation), low.rank.value,
                         low.position, toString(actionAt(e, high.rank, high.position)), high.rank.value, high.position),
             Stops::OneChannel);
  }
}

/// The deadlock that an execution ends in, if it does.
std::optional<Problem> deadlock(const Examination& e, bool blockingSends) {
  Execution execution(e, blockingSends);
  execution.run();
  const std::vector<Rank> cycle = execution.cycle();
  if (cycle.empty()) return std::nullopt;
  std::string message = blockingSends ? "deadlock only under blocking sends (buffered sends avoid it): " : "deadlock: ";
  for (const Rank rank : cycle) {
    const auto [position, needed] = *execution.waitOf(rank);
    message += fmt::format("{}rank {} at position {} ({}) waits for {} of rank {}", rank == cycle.front() ? "" : "; ", rank.value, position,
                           toString(actionAt(e, rank, position)), toString(needed), e.rankOf(needed).value);
  }
  const std::int32_t position = execution.waitOf(cycle.front())->position;
  return Problem{cycle.front(), position, actionAt(e, cycle.front(), position), std::move(message),
                 blockingSends ? Stops::Blocking : Stops::Always};
}

}  // namespace

void checkRuns(Examination& e) {
  std::optional<Problem> blocking;
  if (e.lowered) {
    blocking = deadlock(e, true);
    if (!blocking) return;  // each pair's operations are then in one order, and a send that may start earlier blocks nobody
    checkChannelOrder(e);
  }
  if (e.problems.empty()) {
    if (auto always = deadlock(e, false)) e.problems.push_back(*std::move(always));
  }
  if (!e.lowered || !e.problems.empty()) return;
  checkSharedChannels(e);
  e.problems.push_back(*std::move(blocking));
}

}  // namespace pw::examination
