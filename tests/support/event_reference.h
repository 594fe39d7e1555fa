#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/span_kind.h"
#include "simulator/trace/trace.h"

namespace pw::test {

/// A slow and simple reference for one iteration: every rank does its next action, and every channel carries its next message, as soon as
/// everything it needs is available, until nothing changes. Slots, bidirectional placements, every way of sending, and lockstep. Shares
/// nothing with the simulator but the rules in its headers.
class EventReference {
 public:
  /// `rows`: lowered unless messages go in the background. All three must outlive this.
  EventReference(const Schedule& rows, const CostTable& costs, Sending sending)
      : rows_(rows), costs_(costs), sending_(sending), ranks_(rows.rows.size()) {
    if (rows.lockstep) goInCycles();
    for (bool moved = !rows.lockstep; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (act(rank)) moved = true;
      }
      for (auto& [channel, queue] : waiting_) {
        while (carry(channel, queue)) moved = true;
      }
    }
  }

  /// Whether every rank came to the end of its row; if not, they deadlock.
  [[nodiscard]] bool finished() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].next != rows_.rows[rank].size()) return false;
    }
    return true;
  }
  /// Compute, loads, stores and messages, in the order of a trace.
  [[nodiscard]] std::vector<Span> spans() const {
    Trace trace{static_cast<int>(ranks_.size()), spans_, {}};
    normalize(trace);
    return trace.spans;
  }
  /// When the rank came to the RECV at this position (not in the background).
  [[nodiscard]] Ns postedAt(Rank rank, std::size_t position) const { return posts_.at({rank, position}); }

 private:
  using Message = std::pair<std::size_t, Microbatch>;  ///< of the cost table
  using Channel = std::pair<Rank, Rank>;
  struct Flight {
    std::optional<Ns> sent, received;  ///< when each end was posted
    std::optional<Ns> over, there;     ///< when the channel is free again, when the receiver has it
  };
  struct Progress {
    std::size_t next = 0;
    Ns clock = 0;
    bool posted = false;  ///< the next action's end of a message stands, and holds the rank
  };

  static bool goesBack(ActionKind kind) {
    return kind == ActionKind::Backward || kind == ActionKind::BackwardInput || kind == ActionKind::SendBackward ||
           kind == ActionKind::RecvBackward;
  }
  [[nodiscard]] Ns scaled(Ns time, Microbatch m) const {
    return costs_.microbatchScale.empty() ? time : Ns(std::llround(static_cast<double>(time) * costs_.microbatchScale[m.index()]));
  }
  [[nodiscard]] Ns durationOf(const Action& a) const {
    const StageCost& cost = costs_.stages[a.stage.index()];
    if (a.kind == ActionKind::Forward) return scaled(cost.forward, a.microbatch);
    if (a.kind == ActionKind::Backward) return scaled(cost.backward, a.microbatch);
    return scaled(a.kind == ActionKind::BackwardInput ? cost.backwardInput : cost.backwardWeight, a.microbatch);
  }
  [[nodiscard]] Channel endsOf(const Message& message) const {
    const MessageCost& cost = costs_.messages[message.first];
    return {rows_.placement.rankOf(cost.from, message.second), rows_.placement.rankOf(cost.to, message.second)};
  }
  [[nodiscard]] bool staysOnItsRank(const Message& message) const { return endsOf(message).first == endsOf(message).second; }
  /// Messages that the action needs, or (`leaving`) makes, in the order of the table.
  [[nodiscard]] std::vector<Message> messagesOf(const Action& a, bool leaving) const {
    std::vector<Message> found;
    if (a.kind == ActionKind::BackwardWeight) return found;
    for (std::size_t i = 0; i < costs_.messages.size(); ++i) {
      const MessageCost& cost = costs_.messages[i];
      if ((leaving ? cost.from : cost.to) == a.stage && cost.backward == goesBack(a.kind)) found.emplace_back(i, a.microbatch);
    }
    return found;
  }

  bool act(std::size_t rank) {
    Progress& me = ranks_[rank];
    const auto& row = rows_.rows[rank];
    if (me.next == row.size()) return false;
    const Action& action = row[me.next];
    if (isCompute(action.kind)) return compute(rank);
    if (sending_ != Sending::Overlapped && (isSend(action.kind) || isReceive(action.kind))) return post(Rank(rank), action);
    ++me.next;
    return true;
  }

  bool compute(std::size_t rank) {
    Progress& me = ranks_[rank];
    const auto& row = rows_.rows[rank];
    const std::size_t count =
        row[me.next].overlapsNext && me.next + 1 < row.size() && row[me.next + 1].kind == ActionKind::Backward ? 2 : 1;
    Ns start = me.clock;
    Ns length = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const auto ready = readyAt(row[me.next + k]);
      if (!ready) return false;
      start = std::max(start, *ready);
      length += durationOf(row[me.next + k]);
    }
    if (count == 2 && !costs_.overlap.empty()) length = scaled(costs_.overlap[row[me.next].stage.index()], row[me.next].microbatch);
    me.clock = start + length;
    for (std::size_t k = 0; k < count; ++k, ++me.next) record(Rank(rank), row[me.next], start, me.clock);
    return true;
  }
  /// Notes the span; in the background its messages queue up at once.
  void record(Rank rank, const Action& a, Ns start, Ns end) {
    spans_.push_back({rank, *spanKind(a.kind), a.stage, a.microbatch, rank, 0, start, end});
    if (a.kind == ActionKind::BackwardWeight) return;
    ends_[{a.stage, goesBack(a.kind), a.microbatch}] = end;
    if (sending_ != Sending::Overlapped) return;
    for (const Message& message : messagesOf(a, true)) {
      if (staysOnItsRank(message)) continue;
      flights_[message] = {.sent = end, .received = Ns{0}, .over = {}, .there = {}};
      waiting_[endsOf(message)].push_back(message);
    }
  }
  /// When all that the action needs is on its rank; nothing while it is not.
  [[nodiscard]] std::optional<Ns> readyAt(const Action& a) const {
    Ns latest = 0;
    for (const Message& message : messagesOf(a, false)) {
      const MessageCost& cost = costs_.messages[message.first];
      const auto flight = flights_.find(message);
      const auto end = ends_.find({cost.from, cost.backward, message.second});
      if (staysOnItsRank(message) ? end == ends_.end() : flight == flights_.end() || !flight->second.there) return std::nullopt;
      latest = std::max(latest, staysOnItsRank(message) ? end->second : *flight->second.there);
    }
    return latest;
  }

  /// A SEND or RECV: posts its ends of messages when the rank comes to it; where that holds the rank, continues when all are over.
  bool post(Rank rank, const Action& a) {
    Progress& me = ranks_[rank.index()];
    const bool sends = isSend(a.kind);
    Ns over = me.clock;
    for (const Message& message : messagesOf(a, sends)) {
      if (staysOnItsRank(message)) continue;
      Flight& flight = flights_[message];
      Channel channel = endsOf(message);
      if (!me.posted) {
        (sends ? flight.sent : flight.received) = me.clock;
        const bool lower = rank == std::min(channel.first, channel.second);
        if (sending_ == Sending::OneChannel && channel.first > channel.second) std::swap(channel.first, channel.second);
        if (sending_ == Sending::OneChannel ? lower : sends) waiting_[channel].push_back(message);
      } else {
        const auto end = sends ? flight.over : flight.there;
        if (!end) return false;
        over = std::max(over, *end);
      }
    }
    if (!me.posted) posts_[{rank, me.next}] = me.clock;
    me.posted = !me.posted && sending_ == Sending::Blocking;
    if (me.posted) return true;
    me.clock = over;
    ++me.next;
    return true;
  }

  /// The oldest message of the channel goes once both ends stand and the one before it is over.
  bool carry(const Channel& channel, std::deque<Message>& queue) {
    if (queue.empty()) return false;
    const Message message = queue.front();
    Flight& flight = flights_[message];
    if (!flight.sent || !flight.received) return false;
    fly(message, std::max({*flight.sent, *flight.received, free_[channel]}), channel);
    queue.pop_front();
    return true;
  }
  /// Notes the span and gives back when the message is there.
  Ns fly(const Message& message, Ns start, const Channel& channel) {
    const MessageCost& cost = costs_.messages[message.first];
    const Ns over = start + scaled(cost.transfer, message.second);
    const auto [from, to] = endsOf(message);
    const Ns there = over + cost.latency;
    spans_.push_back(
        {from, cost.backward ? SpanKind::SendBackward : SpanKind::SendForward, cost.from, message.second, to, cost.bytes, start, there});
    flights_[message].over = free_[channel] = over;
    flights_[message].there = there;
    return there;
  }

  /// PopART: stage i does F of microbatch m in cycle m + i, its backward in cycle m + 2R − 2 − i; after the slowest rank all exchange.
  void goInCycles() {
    const auto last = static_cast<std::int32_t>(ranks_.size()) - 1;
    sending_ = Sending::Posted;  // messages wait for the exchange
    Ns begin = 0;
    for (int cycle = 0; cycle <= rows_.microbatches - 1 + 2 * last; ++cycle) {
      Ns slowest = begin;
      std::vector<Message> messages;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const Rank rank(r);
        Ns clock = begin;
        const auto host = [&](SpanKind kind, Ns time, Microbatch m) {
          if (time == 0) return;
          spans_.push_back({rank, kind, Stage(rank.value), m, rank, 0, clock, clock + scaled(time, m)});
          clock += scaled(time, m);
        };
        for (const auto& row = rows_.rows[r]; ranks_[r].next < row.size(); ++ranks_[r].next) {
          const Action& a = row[ranks_[r].next];
          const bool forward = a.kind == ActionKind::Forward;
          if (isCompute(a.kind)) {
            if (a.microbatch.value + (forward ? a.stage.value : 2 * last - a.stage.value) != cycle) break;
            if (forward && (a.stage.value == 0 || a.stage.value == last))
              host(SpanKind::Load, costs_.load, a.microbatch);  // R ≥ 2: input or target
            record(rank, a, clock, clock + durationOf(a));
            clock += durationOf(a);
            if (!forward && a.kind != ActionKind::BackwardInput && a.stage.value == last) host(SpanKind::Store, costs_.store, a.microbatch);
            for (const Message& message : messagesOf(a, true)) messages.push_back(message);
          }
        }
        slowest = std::max(slowest, clock);
      }
      begin = slowest;
      for (const Message& message : messages) {
        if (!staysOnItsRank(message)) begin = std::max(begin, fly(message, std::max(slowest, free_[endsOf(message)]), endsOf(message)));
      }
    }
  }

  const Schedule& rows_;
  const CostTable& costs_;
  Sending sending_;
  std::vector<Progress> ranks_;
  std::map<std::tuple<Stage, bool, Microbatch>, Ns> ends_;  ///< of F; of B or I
  std::map<Message, Flight> flights_;
  std::map<Channel, std::deque<Message>> waiting_;
  std::map<Channel, Ns> free_;
  std::map<std::pair<Rank, std::size_t>, Ns> posts_;
  std::vector<Span> spans_;
};

}  // namespace pw::test
