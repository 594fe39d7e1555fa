#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <optional>

#include "schedules/families.h"
#include "schedules/generate.h"

// V-Half and V-Min (Pipeline Parallelism with Controllable Memory, arXiv 2405.15362, section 3 and appendix): a building block of six
// passes a rank is repeated every six slots, then warmup and cooldown are moved together within the same peak memory.

namespace pw::families {
namespace {

/// The passes of one microbatch on one rank, in the order of the block. Chunk 0 goes down the ranks, chunk 1 comes back up.
enum Pass : std::uint8_t { F0, F1, I1, I0, W1, W0, kNothing };
constexpr int kPasses = 6;

constexpr std::array kKinds{ActionKind::Forward,       ActionKind::Forward,        ActionKind::BackwardInput,
                            ActionKind::BackwardInput, ActionKind::BackwardWeight, ActionKind::BackwardWeight};
constexpr std::array kChunks{0, 1, 1, 0, 1, 0};

/// Slots from a pass to the one that follows it: to the next rank on the four chains and at the three turns between them.
struct Offsets {
  int forward0, turnUp, forward1, turnBack, input1, turnDown, input0;
};

/// How many chunks are live in each slot. Slots are kept in groups with a maximum each, so that a long range costs one step per group; 64
/// is about the square root of the few thousand slots of 1024 ranks.
class LiveCounts {
 public:
  /// Appends a slot.
  void push(int live) {
    if (live_.size() % kGroup == 0) groups_.push_back({});
    live_.push_back(live);
    groups_.back().most = std::max(groups_.back().most, live);
  }

  /// Adds to all slots of [from, to).
  void add(std::size_t from, std::size_t to, int amount) {
    while (from < to) {
      Group& group = groups_[from / kGroup];
      const std::size_t begin = from / kGroup * kGroup;
      const std::size_t end = std::min(begin + kGroup, live_.size());
      if (from == begin && end <= to) {
        group.added += amount;
        group.most += amount;
      } else {
        for (std::size_t slot = from; slot < std::min(end, to); ++slot) live_[slot] += amount;
        group.most = *std::max_element(live_.begin() + offset(begin), live_.begin() + offset(end)) + group.added;
      }
      from = end;
    }
  }

  /// The first slot of [least, before] such that every slot from it to `before` has fewer than `limit` live.
  [[nodiscard]] std::size_t belowSince(std::size_t least, std::size_t before, int limit) const {
    std::size_t slot = before;
    while (slot > least) {
      const Group& group = groups_[(slot - 1) / kGroup];
      if (group.most < limit) {
        slot = (slot - 1) / kGroup * kGroup;
      } else if (live_[slot - 1] + group.added < limit) {
        --slot;
      } else {
        return slot;
      }
    }
    return least;
  }

 private:
  static constexpr std::size_t kGroup = 64;
  struct Group {
    int added = 0;  ///< to all slots of the group
    int most = 0;   ///< the maximum of the group's slots, including `added`
  };
  [[nodiscard]] static std::ptrdiff_t offset(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }

  std::vector<int> live_;
  std::vector<Group> groups_;
};

/// What one rank does in each slot. The first slots are a table in which passes can be moved; later ones repeat the block.
struct Line {
  std::array<int, kPasses> first{};                    ///< slot of each pass of microbatch 0 in the unmoved block
  std::array<Pass, kPasses> ofResidue{};               ///< pass of each slot mod 6
  std::vector<Pass> slots;                             ///< by slot: pass or nothing
  LiveCounts live;                                     ///< of the slots in the table
  std::array<std::vector<std::size_t>, kPasses> ends;  ///< by pass and microbatch: end of those moved so far

  /// The pass of the slot in the repeated block of M microbatches.
  [[nodiscard]] Pass repeated(int slot, int microbatches) const {
    const Pass pass = ofResidue[static_cast<std::size_t>(slot % kPasses)];
    const int since = slot - first[static_cast<std::size_t>(pass)];
    return since >= 0 && since / kPasses < microbatches ? pass : kNothing;
  }
  [[nodiscard]] Pass at(int slot, int microbatches) const {
    const auto index = static_cast<std::size_t>(slot);
    return index < slots.size() ? slots[index] : repeated(slot, microbatches);
  }
};

/// The block of one rank: F and I where the offsets put them, W in the next slots that no pass of another microbatch occupies.
Line block(int rank, int ranks, const Offsets& d) {
  Line line;
  const int hops = ranks - 1;
  line.first[F0] = d.forward0 * rank;
  line.first[F1] = d.forward0 * hops + d.turnUp + d.forward1 * (hops - rank);
  const int back = d.forward0 * hops + d.turnUp + d.forward1 * hops + d.turnBack;
  line.first[I1] = back + d.input1 * rank;
  line.first[I0] = back + d.input1 * hops + d.turnDown + d.input0 * (hops - rank);
  line.ofResidue.fill(kNothing);
  const auto put = [&](Pass pass, int slot) {
    while (line.ofResidue[static_cast<std::size_t>(slot % kPasses)] != kNothing) ++slot;
    line.first[pass] = slot;
    line.ofResidue[static_cast<std::size_t>(slot % kPasses)] = pass;
  };
  for (const Pass pass : {F0, F1, I1, I0}) {
    [[maybe_unused]] const int slot = line.first[pass];
    put(pass, slot);
    assert(line.first[pass] == slot && "two passes of the block share a slot");
  }
  put(W1, line.first[I1] + 1);
  put(W0, line.first[I0] + 1);
  return line;
}

/// Fills the table up to the end of the warmup, and counts what is live in each slot.
void tabulate(Line& line, int slots, int microbatches) {
  int live = 0;
  for (int slot = 0; slot < slots; ++slot) {
    const Pass pass = line.repeated(slot, microbatches);
    line.slots.push_back(pass);
    if (pass == F0 || pass == F1) ++live;
    line.live.push(live);
    if (pass == W0 || pass == W1) --live;
  }
}

/// One pass of one rank.
struct Link {
  int rank;
  Pass pass;
};

/// What a pass waits for. F and I of a microbatch are one chain over all ranks, so a pass waits for the previous link only; F0 of rank 0 is
/// the first.
std::optional<Link> before(const Link& link, int ranks) {
  const auto [rank, pass] = link;
  const bool top = rank == 0;
  const bool bottom = rank == ranks - 1;
  switch (pass) {
    case F0: return top ? std::nullopt : std::optional(Link{rank - 1, F0});
    case F1: return bottom ? Link{rank, F0} : Link{rank + 1, F1};
    case I1: return top ? Link{rank, F1} : Link{rank - 1, I1};
    case I0: return bottom ? Link{rank, I1} : Link{rank + 1, I0};
    case W1: return Link{rank, I1};
    case W0: return Link{rank, I0};
    case kNothing: break;
  }
  return std::nullopt;
}

/// When the next pass of this type may start: after the previous link and after the same pass of the previous microbatch.
std::size_t ready(const std::vector<Line>& lines, const Link& link) {
  const auto endsOf = [&](const Link& of) -> const auto& { return lines[static_cast<std::size_t>(of.rank)].ends[of.pass]; };
  const auto& own = endsOf(link);
  const std::size_t last = own.empty() ? 0 : own.back();
  const auto needed = before(link, static_cast<int>(lines.size()));
  return needed ? std::max(last, endsOf(*needed)[own.size()]) : last;
}

/// Moves the pass at `slot` to the earliest free slot at or after `least`; a forward only as far as no slot exceeds `limit` live.
std::size_t moveEarlier(Line& line, std::size_t slot, std::size_t least, int limit) {
  const Pass pass = line.slots[slot];
  const bool forward = pass == F0 || pass == F1;
  std::size_t to = forward ? line.live.belowSince(least, slot, limit) : least;
  while (to < slot && line.slots[to] != kNothing) ++to;
  line.slots[slot] = kNothing;
  line.slots[to] = pass;
  if (forward) line.live.add(to, slot, 1);
  if (pass == W0 || pass == W1) line.live.add(to + 1, slot + 1, -1);
  return to;
}

/// Moves the passes of the warmup, up to the first I0 of rank 0, one by one in the order of the block. Memory is given to passes in this
/// order: a greedy order in time would spend it on first chunks and starve the second ones.
void compactWarmup(std::vector<Line>& lines, int microbatches, int limit) {
  const auto slots = static_cast<std::size_t>(lines.front().first[I0]) + 1;
  for (Line& line : lines) tabulate(line, static_cast<int>(slots), microbatches);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    for (std::size_t rank = 0; rank < lines.size(); ++rank) {
      Line& line = lines[rank];
      const Pass pass = line.slots[slot];
      if (pass == kNothing) continue;
      const std::size_t least = ready(lines, {static_cast<int>(rank), pass});
      line.ends[static_cast<std::size_t>(pass)].push_back(moveEarlier(line, slot, least, limit) + 1);
    }
  }
}

/// Executes the lines in equal slots and writes down what each rank does. A rank follows its line, waiting where it must, until its last
/// forward; from then on memory only falls, so input gradients run as early as they can and weight gradients fill the gaps.
class Performance {
 public:
  Performance(const Shape& shape, const std::vector<Line>& lines, Schedule& schedule)
      : ranks_(shape.ranks), microbatches_(shape.microbatches), lines_(lines), slots_(lines.size(), 0) {
    for (auto& actions : schedule.rows) rows_.emplace_back(shape, actions);
  }

  void run() {
    std::vector<Pass> chosen(lines_.size());
    for (std::int64_t left = std::int64_t{kPasses} * ranks_ * microbatches_; left > 0;) {
      for (int rank = 0; rank < ranks_; ++rank) chosen[static_cast<std::size_t>(rank)] = choose(rank);
      for (int rank = 0; rank < ranks_; ++rank) left -= perform(rank, chosen[static_cast<std::size_t>(rank)]) ? 1 : 0;
    }
  }

 private:
  [[nodiscard]] Stage stageOf(int rank, int chunk) const { return Stage{chunk == 0 ? rank : 2 * ranks_ - 1 - rank}; }

  int done(const Link& link) {
    return rows_[static_cast<std::size_t>(link.rank)].done(stageOf(link.rank, kChunks[link.pass]), kKinds[link.pass]);
  }

  bool canStart(const Link& link) {
    const int m = done(link);
    if (m == microbatches_) return false;
    const auto needed = before(link, ranks_);
    return !needed || done(*needed) > m;
  }

  Pass choose(int rank) {
    const Line& line = lines_[static_cast<std::size_t>(rank)];
    if (done({rank, F0}) + done({rank, F1}) == 2 * microbatches_) {
      for (const Pass pass : {I1, I0, W1, W0}) {
        if (canStart({rank, pass})) return pass;
      }
      return kNothing;
    }
    int& slot = slots_[static_cast<std::size_t>(rank)];
    while (line.at(slot, microbatches_) == kNothing) ++slot;
    const Pass pass = line.at(slot, microbatches_);
    return canStart({rank, pass}) ? pass : kNothing;
  }

  bool perform(int rank, Pass pass) {
    if (pass == kNothing) return false;
    const auto index = static_cast<std::size_t>(pass);
    Row& row = rows_[static_cast<std::size_t>(rank)];
    const Stage stage = stageOf(rank, kChunks[index]);
    if (kKinds[index] == ActionKind::Forward) row.f(stage);
    if (kKinds[index] == ActionKind::BackwardInput) row.i(stage);
    if (kKinds[index] == ActionKind::BackwardWeight) row.w(stage);
    ++slots_[static_cast<std::size_t>(rank)];
    return true;
  }

  int ranks_;
  int microbatches_;
  const std::vector<Line>& lines_;
  std::vector<int> slots_;  ///< by rank: where it is in its line
  std::vector<Row> rows_;
};

Schedule controllable(std::string_view name, const Shape& shape, const Offsets& offsets, int limit) {
  std::vector<Line> lines;
  lines.reserve(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) lines.push_back(block(rank, shape.ranks, offsets));
  compactWarmup(lines, shape.microbatches, limit);
  Schedule schedule = empty(name, shape, wavePlacement(shape));
  Performance(shape, lines, schedule).run();
  return schedule;
}

}  // namespace

/// V-Half: at most k = 2·floor((R+2)/2) chunks live, half the memory of 1F1B. With equal passes makespan and window are
/// max(6M, 6M + 6R − 3k − 1) passes, for M ≥ R and from M ≥ 2R/3 on where R ≥ 4; two ranks, M ≥ 3: only the window, the makespan is
/// 6M + 1 as rank 1 begins one pass late. Fewer microbatches take up to the chain of 4R + 1 passes (M = 1). Cost: linear in the
/// actions; the warmup takes R³/32 steps of a few instructions.
Schedule vHalf(const Shape& shape) {
  const int turnBack = shape.ranks % 2 == 0 ? 4 : 1;
  return controllable("v-half", shape,
                      {.forward0 = 2, .turnUp = 2, .forward1 = 1, .turnBack = turnBack, .input1 = 2, .turnDown = 1, .input0 = 1},
                      2 * ((shape.ranks + 2) / 2));
}

/// V-Min: at most k = 2·floor((R+4)/3) chunks live, a third of the memory of 1F1B. With equal passes makespan and window are
/// 6M + 6R − 3k − 1 passes, four more where R mod 3 = 2, for M ≥ R ≥ 2; 6M on one rank. Where times differ the steady state waits.
/// Cost: as V-Half.
Schedule vMin(const Shape& shape) {
  const int turnBack = shape.ranks % 3 == 0 ? 3 : 1;
  return controllable("v-min", shape,
                      {.forward0 = 1, .turnUp = 1, .forward1 = 1, .turnBack = turnBack, .input1 = 1, .turnDown = 1, .input0 = 1},
                      2 * ((shape.ranks + 4) / 3));
}

}  // namespace pw::families
