#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "schedules/schedule.h"
#include "tests/schedules/blocking_executor.h"

namespace pw::test {

using Random = std::mt19937_64;

inline int below(Random& random, int bound) { return static_cast<int>(random() % static_cast<std::uint64_t>(bound)); }
inline bool oneOf(Random& random, int n) { return below(random, n) == 0; }

/// What a random schedule is like.
struct Wish {
  bool lowered = false;
  Transport soundUnder = Transport::Rendezvous;  ///< the strictest transport that a lowered one surely runs under
};

/// Loop, V, waves, bidirectional, any permutation with more stages anywhere, or any two replicas; every rank works.
inline Placement randomPlacement(Random& random, int ranks, int microbatches) {
  const auto permutation = [&] {
    std::vector<Rank> order;
    order.reserve(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) order.emplace_back(r);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };
  const int chunks = 1 + below(random, 2);
  switch (below(random, 5)) {
    case 0: return loopPlacement({ranks, ranks * chunks, microbatches});
    case 1: return wavePlacement({ranks, ranks * 2 * (ranks < 3 ? chunks : 1), microbatches});
    case 2: return bidirectionalPlacement({ranks, ranks, microbatches});
    case 3: {
      Placement placement{permutation(), permutation(), Microbatch{below(random, microbatches + 1)}};
      return placement;
    }
    default: {
      Placement placement{permutation()};
      for (int more = below(random, ranks + 1); more > 0; --more) placement.rankOfStage.emplace_back(below(random, ranks));
      std::shuffle(placement.rankOfStage.begin(), placement.rankOfStage.end(), random);
      return placement;
    }
  }
}

/// Grows a sound schedule: at every step any of the actions that are possible then, so that the steps themselves are an
/// execution of it. A message is two steps, send and receive, in order on each wire; for one channel no rank sends while
/// something is in flight to it from that peer; for rendezvous they are one step.
class Grower {
 public:
  Grower(Random& random, const Wish& wish) : random_(random), wish_(wish) {
    const int ranks = 1 + std::max(below(random, 5), below(random, 5));
    s_.name = "random";
    s_.microbatches = 1 + below(random, 5);
    s_.placement = randomPlacement(random, ranks, s_.microbatches);
    s_.rows.resize(static_cast<std::size_t>(ranks));
    training_ = !oneOf(random, 6);
    splits_ = below(random, 3);
    slots_ = oneOf(random, 3);
    hasty_ = oneOf(random, 2);
    sendsFirst_ = wish.soundUnder != Transport::Rendezvous && !oneOf(random, 3);
  }

  Schedule grow() {
    for (int m = 0; m < s_.microbatches; ++m) possible_.push_back({Stage{0}, ActionKind::Forward, Microbatch{m}});
    while (!possible_.empty()) {
      const Action a = take();
      if (isSend(a.kind)) {
        send(a);
      } else if (isReceive(a.kind)) {
        receive(a);
      } else {
        compute(a);
      }
    }
    decorate();
    return std::move(s_);
  }

 private:
  [[nodiscard]] Rank rankOf(const Action& a) const { return s_.placement.rankOf(a.stage, a.microbatch); }
  [[nodiscard]] Rank receiverOf(const Action& send) const {
    return s_.placement.rankOf(Stage{send.stage.value + (send.kind == ActionKind::SendForward ? 1 : -1)}, send.microbatch);
  }
  void put(const Action& a) { s_.rows[rankOf(a).index()].push_back(a); }

  Action take() {
    if (sendsFirst_) {
      const auto other =
          std::find_if(possible_.begin(), possible_.end(), [&](const Action& a) { return !isReceive(a.kind) && maySend(a); });
      if (other != possible_.end()) return takeAt(static_cast<std::size_t>(other - possible_.begin()));
    }
    const int n = static_cast<int>(possible_.size());
    const int at = hasty_ && n > 2 ? n - 1 - below(random_, 2) : below(random_, n);
    return takeAt(static_cast<std::size_t>(at));
  }
  Action takeAt(std::size_t at) {
    const Action a = possible_[at];
    possible_.erase(possible_.begin() + static_cast<std::ptrdiff_t>(at));
    return a;
  }

  void compute(Action a) {
    const auto partner = std::find_if(possible_.begin(), possible_.end(),
                                      [&](const Action& b) { return b.kind == ActionKind::Backward && rankOf(b) == rankOf(a); });
    if (slots_ && a.kind == ActionKind::Forward && partner != possible_.end()) {
      const Action b = takeAt(static_cast<std::size_t>(partner - possible_.begin()));
      a.overlapsNext = true;
      put(a);
      put(b);
      follow(a);
      follow(b);
    } else {
      put(a);
      follow(a);
    }
  }

  /// What becomes possible after a compute action.
  void follow(const Action& a) {
    if (a.kind == ActionKind::BackwardWeight) return;
    if (a.kind == ActionKind::BackwardInput) possible_.push_back({a.stage, ActionKind::BackwardWeight, a.microbatch});
    const bool forward = a.kind == ActionKind::Forward;
    const Action send{a.stage, forward ? ActionKind::SendForward : ActionKind::SendBackward, a.microbatch};
    const int next = a.stage.value + (forward ? 1 : -1);
    if (next < 0) return;
    if (next == static_cast<int>(s_.placement.stages())) {
      if (training_) arrive(a.stage, false, a.microbatch);
    } else if (!wish_.lowered || receiverOf(send) == rankOf(a)) {
      arrive(Stage{next}, forward, a.microbatch);
    } else {
      possible_.push_back(send);
    }
  }
  /// A stage has its input, or the gradient of its output.
  void arrive(Stage stage, bool forward, Microbatch m) {
    const bool split = splits_ == 2 || (splits_ == 1 && oneOf(random_, 2));
    possible_.push_back({stage, forward ? ActionKind::Forward : split ? ActionKind::BackwardInput : ActionKind::Backward, m});
  }

  /// On one channel no send goes before what is in flight to its rank from its peer has been taken.
  bool maySend(const Action& a) {
    return !isSend(a.kind) || wish_.soundUnder != Transport::OneChannel || wires_[{receiverOf(a), rankOf(a)}].empty();
  }
  void send(const Action& a) {
    if (!maySend(a)) {
      possible_.insert(possible_.begin(), a);
      return;
    }
    const Rank from = rankOf(a);
    const Rank to = receiverOf(a);
    put(a);
    const Action taken{Stage{a.stage.value + (a.kind == ActionKind::SendForward ? 1 : -1)},
                       a.kind == ActionKind::SendForward ? ActionKind::RecvForward : ActionKind::RecvBackward, a.microbatch};
    if (wish_.soundUnder == Transport::Rendezvous) {
      put(taken);
      arrive(taken.stage, taken.kind == ActionKind::RecvForward, taken.microbatch);
    } else {
      wires_[{from, to}].push_back(taken);
      possible_.push_back(taken);
    }
  }
  /// Takes the oldest on the wire, whichever was drawn.
  void receive(const Action& drawn) {
    const Stage sender{drawn.stage.value + (drawn.kind == ActionKind::RecvForward ? -1 : 1)};
    auto& wire = wires_[{s_.placement.rankOf(sender, drawn.microbatch), rankOf(drawn)}];
    const Action oldest = wire.front();
    wire.pop_front();
    if (oldest != drawn) *std::find(possible_.begin(), possible_.end(), oldest) = drawn;
    put(oldest);
    arrive(oldest.stage, oldest.kind == ActionKind::RecvForward, oldest.microbatch);
  }

  /// Idle cells, reductions and sharding where they may stand.
  void decorate() {
    for (std::size_t rank = 0; rank < s_.rows.size(); ++rank) {
      auto& row = s_.rows[rank];
      if (oneOf(random_, 4)) {
        const int at = below(random_, static_cast<int>(row.size()) + 1);
        if (at == 0 || !row[static_cast<std::size_t>(at) - 1].overlapsNext) row.insert(row.begin() + at, kIdle);
      }
      if (!oneOf(random_, 4)) continue;
      for (std::size_t stage = 0; stage < s_.placement.stages(); ++stage) {
        if (!s_.placement.holds(Rank{rank}, Stage{stage})) continue;
        row.insert(row.begin(), {Stage{stage}, ActionKind::Unshard, Microbatch{-1}});
        row.push_back({Stage{stage}, ActionKind::ReduceGrad, Microbatch{-1}});
      }
    }
  }

  Random& random_;
  Wish wish_;
  Schedule s_;
  bool training_ = true;
  int splits_ = 0;  ///< 0 no backward is split, 1 some, 2 all
  bool slots_ = false;
  bool hasty_ = false;       ///< prefers what has just become possible: depth first
  bool sendsFirst_ = false;  ///< takes receives last, so that sends cross
  std::vector<Action> possible_;
  std::map<std::pair<Rank, Rank>, std::deque<Action>> wires_;
};

/// One damage: most often an action elsewhere in its row, else one dropped, doubled, changed, added, on another rank, or flagged.
inline void damage(Random& random, Schedule& s) {
  auto& row = s.rows[random() % s.rows.size()];
  if (row.empty()) return;
  const int size = static_cast<int>(row.size());
  const int at = below(random, size);
  const int near = std::clamp(at + 1 + below(random, 3), 0, size - 1);
  Action& a = row[static_cast<std::size_t>(at)];
  switch (below(random, 32)) {
    case 0: row.erase(row.begin() + at); break;
    case 1: row.insert(row.begin() + below(random, size + 1), Action{a}); break;
    case 2: a.kind = static_cast<ActionKind>(below(random, 12)); break;
    case 3: a.microbatch.value += oneOf(random, 2) ? 1 : -1; break;
    case 4: a.stage.value += oneOf(random, 2) ? 1 : -1; break;
    case 5: a.overlapsNext = !a.overlapsNext; break;
    case 6: row.insert(row.begin() + at, {a.stage, ActionKind::ReduceGrad, Microbatch{-1}}); break;
    case 17: row.insert(row.begin() + at, {a.stage, static_cast<ActionKind>(4 + below(random, 4)), a.microbatch}); break;
    case 7: {
      const Action moved = a;
      row.erase(row.begin() + at);
      s.rows[random() % s.rows.size()].push_back(moved);
      break;
    }
    case 8:
    case 9: std::swap(a, row[random() % row.size()]); break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
    case 16: {  // further down, past up to four others
      const int last = std::min(size, at + 2 + below(random, 4));
      std::rotate(row.begin() + at, row.begin() + at + 1, row.begin() + last);
      break;
    }
    default: std::swap(a, row[static_cast<std::size_t>(near)]); break;
  }
}

}  // namespace pw::test
