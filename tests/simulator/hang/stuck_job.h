#pragma once

// A little job of its own that runs rows of messages until nothing moves, for tests of `diagnose`. It shares no code with `check` or the
// simulator: ranks are polled in turn, and messages of a rank pair and direction are taken in the order they are sent.

#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/hang/recording.h"
#include "tests/support/random_costs.h"

namespace pw::test {

struct StuckJob {
  enum class Mode {
    Blocking,  ///< a send ends when its receiver takes it, and each operation is waited for
    Buffered,  ///< a send ends at once; receives are waited for
    Ahead,     ///< sends end at once, receives are posted and waited for by the action that needs them, as torch's runtime does
  };
  struct Op {
    int position = 0, peer = -1;
    bool sends = false, done = false;
    std::int64_t posted = 0;
  };

  Schedule schedule;  ///< what the ranks do
  Mode mode = Mode::Blocking;
  int endsRank = -1, endsAt = 0;  ///< this rank does nothing from that position on
  std::vector<std::vector<Op>> ops{};
  std::vector<int> at{};                                                                    ///< by rank: the position it is in
  std::map<std::pair<int, int>, std::vector<std::pair<int, std::size_t>>> sent{}, taken{};  ///< by (from, to): rank and op of each end

  [[nodiscard]] int peerOf(const Action& a) const {
    const int stage = a.stage.value + (a.kind == ActionKind::SendForward || a.kind == ActionKind::RecvBackward ? 1 : -1);
    return schedule.placement.rankOf(Stage{stage}, a.microbatch).value;
  }
  [[nodiscard]] bool isWaiting(int rank) const {
    return at[static_cast<std::size_t>(rank)] < static_cast<int>(schedule.rows[static_cast<std::size_t>(rank)].size()) && rank != endsRank;
  }
  /// The operation in which a rank is stuck.
  [[nodiscard]] std::optional<Op> stuckIn(int rank) const {
    if (!isWaiting(rank)) return std::nullopt;
    for (const Op& op : ops[static_cast<std::size_t>(rank)]) {
      if (!op.done && (mode != Mode::Ahead || op.position == neededBy(rank))) return op;
    }
    return std::nullopt;
  }
  /// In mode Ahead: the position of the receive that the rank's next action needs, −1 for none.
  [[nodiscard]] int neededBy(int rank) const {
    const auto& row = schedule.rows[static_cast<std::size_t>(rank)];
    const Action& a = row[static_cast<std::size_t>(at[static_cast<std::size_t>(rank)])];
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool forward = row[i].kind == ActionKind::RecvForward && a.kind == ActionKind::Forward;
      const bool backward =
          row[i].kind == ActionKind::RecvBackward && (a.kind == ActionKind::Backward || a.kind == ActionKind::BackwardInput);
      if ((forward || backward) && row[i].stage == a.stage && row[i].microbatch == a.microbatch) return static_cast<int>(i);
    }
    return -1;
  }

  /// Runs until nothing moves; the order in which ranks are polled is random. Returns whether a rank is stuck.
  bool run(std::mt19937_64& random);
  /// What the ranks recorded; without the dump of a rank where `left`.
  [[nodiscard]] hang::Dumps dumps(int left = -1) const;

 private:
  bool step(int rank, std::int64_t now);
  void match(int from, int to);
};

inline void StuckJob::match(int from, int to) {
  auto& sends = sent[{from, to}];
  auto& takes = taken[{from, to}];
  for (std::size_t k = 0; k < std::min(sends.size(), takes.size()); ++k) {
    ops[static_cast<std::size_t>(sends[k].first)][sends[k].second].done = true;
    ops[static_cast<std::size_t>(takes[k].first)][takes[k].second].done = true;
  }
}

inline bool StuckJob::step(int rank, std::int64_t now) {
  const auto r = static_cast<std::size_t>(rank);
  if (!isWaiting(rank)) return false;
  if (rank == endsRank && at[r] >= endsAt) return false;
  const Action& a = schedule.rows[r][static_cast<std::size_t>(at[r])];
  if (!isSend(a.kind) && !isReceive(a.kind)) {
    if (mode == Mode::Ahead) {
      const int needed = neededBy(rank);
      for (const Op& op : ops[r]) {
        if (op.position == needed && !op.done) return false;
      }
    }
    ++at[r];
    return true;
  }
  const bool sends = isSend(a.kind);
  bool moved = false;
  if (ops[r].empty() || ops[r].back().position != at[r]) {
    const int peer = peerOf(a);
    ops[r].push_back({at[r], peer, sends, sends && mode != Mode::Blocking, now});
    auto& ends = sends ? sent[{rank, peer}] : taken[{peer, rank}];
    ends.emplace_back(rank, ops[r].size() - 1);
    sends ? match(rank, peer) : match(peer, rank);
    moved = true;
  }
  if (!ops[r].back().done && mode != Mode::Ahead) return moved;
  ++at[r];
  return true;
}

inline bool StuckJob::run(std::mt19937_64& random) {
  const int ranks = static_cast<int>(schedule.rows.size());
  ops.resize(schedule.rows.size());
  at.assign(schedule.rows.size(), 0);
  const int ends = std::exchange(endsRank, -1);
  std::int64_t now = 1;
  for (bool moved = true; moved;) {
    moved = false;
    const int first = static_cast<int>(draw(random, 0, ranks - 1));
    for (int i = 0; i < ranks; ++i) {
      const int rank = (first + i) % ranks;
      const auto r = static_cast<std::size_t>(rank);
      while ((rank != ends || at[r] < endsAt) && step(rank, ++now)) moved = true;
    }
  }
  endsRank = ends;
  for (int rank = 0; rank < ranks; ++rank) {
    if (isWaiting(rank)) return true;
  }
  return false;
}

inline hang::Dumps StuckJob::dumps(int left) const {
  hang::Dumps all;
  all.ranks = static_cast<int>(schedule.rows.size());
  hang::Group group{"0", {}};
  for (int r = 0; r < all.ranks; ++r) group.ranks.emplace_back(r);
  all.groups.push_back(group);
  for (int r = 0; r < all.ranks; ++r) {
    if (r == left) continue;
    hang::RankDump dump{JobRank{r}, "rank" + std::to_string(r) + ".json", {}};
    for (const Op& op : ops[static_cast<std::size_t>(r)]) {
      hang::RecordedOp recorded;
      recorded.kind = op.sends ? hang::OpKind::Send : hang::OpKind::Receive;
      recorded.state = op.done ? hang::OpState::Done : hang::OpState::Posted;
      recorded.name = (op.sends ? "nccl:send " : "nccl:recv ") + std::to_string(r) + (op.sends ? "->" : "<-") + std::to_string(op.peer);
      recorded.peer = JobRank{op.peer};
      recorded.bytes = 1024;
      recorded.posted = Ns(op.posted);
      dump.ops.push_back(recorded);
    }
    all.dumps.push_back(dump);
  }
  return all;
}

}  // namespace pw::test
