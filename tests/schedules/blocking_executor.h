#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "schedules/schedule.h"

namespace pw::test {

/// How the messages of a run travel.
enum class Transport {
  Buffered,    ///< a send leaves at once; each direction of a rank pair hands over in order
  OneChannel,  ///< as that, but a rank pair has one queue for both directions, worked off in order by both ends
  Rendezvous,  ///< a send waits for its receiver
};

/// A run of a schedule by threads that really block. Each rank's thread calls `runRank` once. Shares nothing with
/// `check` but the rules: what is not there to wait for, blocks forever. The run is dead when every rank that has
/// not finished is blocked; that is counted, so there are no timers.
class BlockingRun {
 public:
  BlockingRun(const Schedule& schedule, Transport transport)
      : schedule_(schedule),
        transport_(transport),
        unfinished_(schedule.rows.size()),
        conditions_(schedule.rows.size()),
        waiting_(schedule.rows.size()),
        meeting_(schedule.rows.size()) {
    for (const auto& row : schedule.rows) {
      for (const Action& a : row) lowered_ = lowered_ || isSend(a.kind) || isReceive(a.kind);
    }
  }

  [[nodiscard]] std::size_t ranks() const { return schedule_.rows.size(); }
  [[nodiscard]] bool finished() const { return unfinished_ == 0; }

  void runRank(std::size_t rank) {
    std::unique_lock lock(mutex_);
    const auto& row = schedule_.rows[rank];
    for (std::size_t i = 0; i < row.size(); i += row[i].overlapsNext ? 2 : 1) {
      if (!doNext(lock, rank, row[i], row[i].overlapsNext ? &row[i + 1] : nullptr)) return;
    }
    --unfinished_;
    dieIfAllBlocked();
  }

 private:
  /// What travels: forward or not, the stage that sends, the microbatch.
  using Message = std::tuple<bool, int, int>;
  /// One end's view of a message, for queues and meetings.
  struct Operation {
    Message message;
    bool send;
    std::size_t peer;
    std::size_t number = 0;
  };

  static Operation operationOf(const Schedule& s, const Action& a) {
    const bool forward = a.kind == ActionKind::SendForward || a.kind == ActionKind::RecvForward;
    const int downstream = forward == isSend(a.kind) ? 1 : -1;  // the other end is the stage after or before
    const int other = a.stage.value + downstream;
    const int sender = isSend(a.kind) ? a.stage.value : other;
    return {{forward, sender, a.microbatch.value}, isSend(a.kind), s.placement.rankOf(Stage{other}, a.microbatch).index()};
  }

  bool has(int stage, ActionKind kind, Microbatch m) const { return done_.contains({Stage{stage}, kind, m}); }
  bool hasGradient(int stage, Microbatch m) const {
    return has(stage, ActionKind::Backward, m) || has(stage, ActionKind::BackwardInput, m);
  }
  bool handsOver(int from, const Action& a) const {
    return !lowered_ || schedule_.placement.rankOf(Stage{from}, a.microbatch) == schedule_.placement.rankOf(a.stage, a.microbatch);
  }
  /// Whether all that a compute action or a send uses is there.
  bool isReady(const Action& a) const {
    const int s = a.stage.value;
    const int last = static_cast<int>(schedule_.placement.stages()) - 1;
    if (a.kind == ActionKind::Forward) {
      return s == 0 || (handsOver(s - 1, a) ? has(s - 1, a.kind, a.microbatch) : has(s, ActionKind::RecvForward, a.microbatch));
    }
    if (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput) {
      if (!has(s, ActionKind::Forward, a.microbatch)) return false;
      return s == last || (handsOver(s + 1, a) ? hasGradient(s + 1, a.microbatch) : has(s, ActionKind::RecvBackward, a.microbatch));
    }
    if (a.kind == ActionKind::BackwardWeight) return has(s, ActionKind::BackwardInput, a.microbatch);
    if (a.kind == ActionKind::SendForward) return has(s, ActionKind::Forward, a.microbatch);
    if (a.kind == ActionKind::SendBackward) return hasGradient(s, a.microbatch);
    return true;
  }

  bool doNext(std::unique_lock<std::mutex>& lock, std::size_t rank, const Action& a, const Action* overlapped) {
    if (!waitFor(lock, rank, [&] { return isReady(a) && (!overlapped || isReady(*overlapped)); })) return false;
    if (isSend(a.kind) || isReceive(a.kind)) {
      const Operation operation = operationOf(schedule_, a);
      if (transport_ == Transport::Buffered && !travelBuffered(lock, rank, operation)) return false;
      if (transport_ == Transport::OneChannel && !travelInOneChannel(lock, rank, operation)) return false;
      if (transport_ == Transport::Rendezvous && !meet(lock, rank, operation)) return false;
    }
    done_.insert({a.stage, a.kind, a.microbatch});
    if (overlapped) done_.insert({overlapped->stage, overlapped->kind, overlapped->microbatch});
    wake();
    return true;
  }

  bool travelBuffered(std::unique_lock<std::mutex>& lock, std::size_t rank, const Operation& o) {
    if (o.send) {
      wires_[{rank, o.peer}].push_back(o.message);
      return true;
    }
    auto& wire = wires_[{o.peer, rank}];
    if (!waitFor(lock, rank, [&] { return !wire.empty() && wire.front() == o.message; })) return false;
    wire.pop_front();
    return true;
  }

  /// Both ends append what they want to do; the heads go together when they are the two ends of one message.
  bool travelInOneChannel(std::unique_lock<std::mutex>& lock, std::size_t rank, Operation o) {
    auto& mine = queues_[{rank, o.peer}];
    auto& theirs = queues_[{o.peer, rank}];
    auto& ended = ended_[{rank, o.peer}];
    o.number = ended + mine.size();
    mine.push_back(o);
    while (!mine.empty() && !theirs.empty() && mine.front().message == theirs.front().message && mine.front().send != theirs.front().send) {
      mine.pop_front();
      theirs.pop_front();
      ++ended;
      ++ended_[{o.peer, rank}];
    }
    wake();
    return o.send || waitFor(lock, rank, [&] { return ended > o.number; });
  }

  bool meet(std::unique_lock<std::mutex>& lock, std::size_t rank, const Operation& o) {
    auto& there = meeting_[o.peer];
    if (there && there->peer == rank && there->message == o.message && there->send != o.send) {
      there.reset();
      return true;
    }
    meeting_[rank] = o;
    return waitFor(lock, rank, [&] { return !meeting_[rank]; });
  }

  /// Blocks until the condition holds; false when the run died.
  bool waitFor(std::unique_lock<std::mutex>& lock, std::size_t rank, const std::function<bool()>& condition) {
    if (condition()) return true;
    waiting_[rank] = &condition;
    ++blocked_;
    dieIfAllBlocked();
    conditions_[rank].wait(lock, [&] { return dead_ || waiting_[rank] == nullptr; });
    return !dead_;
  }
  void wake() {
    for (std::size_t rank = 0; rank < waiting_.size(); ++rank) {
      if (waiting_[rank] == nullptr || !(*waiting_[rank])()) continue;
      waiting_[rank] = nullptr;
      --blocked_;
      conditions_[rank].notify_one();
    }
  }
  void dieIfAllBlocked() {
    if (unfinished_ == 0 || blocked_ < unfinished_) return;
    dead_ = true;
    for (auto& condition : conditions_) condition.notify_one();
  }

  const Schedule& schedule_;
  Transport transport_;
  bool lowered_ = false;
  std::mutex mutex_;
  std::size_t unfinished_;
  std::size_t blocked_ = 0;
  bool dead_ = false;
  std::vector<std::condition_variable> conditions_;
  std::vector<const std::function<bool()>*> waiting_;
  std::set<Action> done_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Message>> wires_;     ///< by sender and receiver
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Operation>> queues_;  ///< by end and peer
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> ended_;             ///< by end and peer
  std::vector<std::optional<Operation>> meeting_;                                ///< what each rank stands at
};

/// Runs all with one thread per rank number. A thread that is through with its row of one run continues with the next, so
/// there is no meeting of all between runs.
inline void runAll(const std::vector<std::unique_ptr<BlockingRun>>& runs) {
  std::size_t ranks = 0;
  for (const auto& run : runs) ranks = std::max(ranks, run->ranks());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&runs, rank] {
      for (const auto& run : runs) {
        if (rank < run->ranks()) run->runRank(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace pw::test
