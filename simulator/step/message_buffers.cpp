#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "simulator/step/lanes.h"
#include "simulator/step/message_buffers.h"

namespace pw {
namespace {

/// Which values and gradients cross between ranks, by end (stage and direction), and which stages follow another on their rank.
struct Crossing {
  std::vector<bool> arrives;                             ///< something comes from another rank
  std::vector<bool> leaves;                              ///< gradients go to another rank; values for others count as activations
  std::vector<std::vector<std::int32_t>> handed, taken;  ///< by stage: messages of gradients for, and from, other stages of its rank
  bool hands = false;                                    ///< there are such messages
  std::vector<bool> follows;                             ///< by stage: whether the stage before is on its rank, and none after the last

  Crossing(const Placement& placement, const CostTable& costs)
      : arrives(2 * costs.stages.size(), false), leaves(arrives), handed(costs.stages.size()), taken(handed) {
    for (const MessageCost& m : costs.messages) {
      if (placement.rankOfStage[m.from.index()] == placement.rankOfStage[m.to.index()]) {
        const auto message = static_cast<std::int32_t>(&m - costs.messages.data());
        if (m.backward) handed[m.from.index()].push_back(message);
        if (m.backward) taken[m.to.index()].push_back(message);
        hands = hands || m.backward;
        continue;
      }
      arrives[endOf(m.to, m.backward)] = true;
      if (m.backward) leaves[endOf(m.from, true)] = true;
    }
    for (std::size_t s = 0; s <= costs.stages.size(); ++s) {
      const bool isAfter = s > 0 && s < costs.stages.size() && !placement.bidirectional();
      follows.push_back(isAfter && placement.rankOfStage[s - 1] == placement.rankOfStage[s]);
    }
  }
};

using What = BufferChange::What;

/// A buffer change as a number, which sorts and compares in one instruction: in the order of `BufferChange`.
using PackedChange = std::uint64_t;
constexpr int kWhatBits = 3, kMessageBits = 29;
constexpr PackedChange kWhat = (PackedChange{1} << kWhatBits) - 1, kMessage = (PackedChange{1} << kMessageBits) - 1;

constexpr bool isFollowedBy(What begins, What ends) { return static_cast<int>(ends) == static_cast<int>(begins) + 1; }
static_assert(isFollowedBy(What::Posted, What::Used) && isFollowedBy(What::Kept, What::Sent) && isFollowedBy(What::Held, What::Freed));
static_assert(static_cast<PackedChange>(What::Taken) <= kWhat);

PackedChange packed(const BufferChange& c) {
  const PackedChange end = static_cast<PackedChange>(endOf(c.stage, c.backward));
  return (end << kWhatBits | static_cast<PackedChange>(c.what)) << kMessageBits | static_cast<PackedChange>(c.message + 1);
}

What whatOf(PackedChange c) { return static_cast<What>(c >> kMessageBits & kWhat); }

BufferChange unpacked(PackedChange c) {
  const PackedChange end = c >> (kWhatBits + kMessageBits);
  return {Stage(static_cast<std::int32_t>(end / 2)), end % 2 == 1, whatOf(c), static_cast<std::int32_t>(c & kMessage) - 1};
}

/// Finds uses by their source: an open hash table of them.
class Uses {
 public:
  Uses(std::vector<UseSource>& sources, std::vector<BufferChange>& buffers) : sources_(sources), buffers_(buffers), slots_(1024, -1) {}

  /// The use of `plain` (a use without buffers) together with these buffer changes, in any order. Changes of one buffer that cancel are
  /// left out.
  std::int32_t with(std::int32_t plain, std::vector<PackedChange>& changes) {
    if (last_.size() <= static_cast<std::size_t>(plain)) last_.resize(static_cast<std::size_t>(plain) + 1);
    Found& last = last_[static_cast<std::size_t>(plain)];  // most steps change what the one before of their kind did
    if (last.changes == changes) return last.use;
    last.changes = changes;
    return last.use = find(plain, changes);
  }

 private:
  std::int32_t find(std::int32_t plain, std::vector<PackedChange>& changes) {
    std::sort(changes.begin(), changes.end());
    cancel(changes);
    if (changes.empty()) return plain;
    const UseSource& base = sources_[static_cast<std::size_t>(plain)];
    const std::uint64_t hash = hashOf(base, changes);
    std::size_t slot = hash & (slots_.size() - 1);
    for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1)) {
      if (is(static_cast<std::size_t>(slots_[slot]), base, changes)) return slots_[slot];
    }
    const auto made = static_cast<std::int32_t>(sources_.size());
    const UseSource source{base.action, base.partner, static_cast<std::int32_t>(buffers_.size())};
    sources_.push_back(source);
    std::ranges::transform(changes, std::back_inserter(buffers_), unpacked);
    slots_[slot] = made;
    hashes_.resize(sources_.size());
    hashes_.back() = hash;
    if (++count_ > slots_.size() / 2) grow();
    return made;
  }
  static std::uint64_t hashOf(const UseSource& base, std::span<const PackedChange> changes) {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
    std::uint64_t hash = static_cast<std::uint64_t>(base.action) << 32U ^ static_cast<std::uint64_t>(base.partner);
    for (const PackedChange c : changes) hash = (hash ^ hash >> 32U ^ c) * kOdd;
    return hash >> 32U;
  }
  [[nodiscard]] std::span<const BufferChange> buffersOf(std::size_t use) const {
    const auto first = static_cast<std::size_t>(sources_[use].firstBuffer);
    return std::span(buffers_).subspan(
        first, (use + 1 == sources_.size() ? buffers_.size() : static_cast<std::size_t>(sources_[use + 1].firstBuffer)) - first);
  }
  [[nodiscard]] bool is(std::size_t use, const UseSource& base, std::span<const PackedChange> changes) const {
    return sources_[use].action == base.action && sources_[use].partner == base.partner &&
           std::ranges::equal(buffersOf(use), changes, {}, packed);
  }
  /// A buffer that is used by the step that posts it never existed, nor did a gradient that is sent by the step that keeps it.
  static void cancel(std::vector<PackedChange>& changes) {
    constexpr PackedChange kNextWhat = PackedChange{1} << kMessageBits;
    for (std::size_t i = 0; i + 1 < changes.size();) {
      const What what = whatOf(changes[i]);
      const bool begins = what == What::Posted || what == What::Kept || what == What::Held;  // and the next one ends it
      if (!begins || changes[i] + kNextWhat != changes[i + 1]) {
        ++i;
        continue;
      }
      changes.erase(changes.begin() + static_cast<std::ptrdiff_t>(i), changes.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      if (i > 0) --i;
    }
  }
  void grow() {
    std::vector<std::int32_t> old(4 * slots_.size(), -1);
    old.swap(slots_);
    for (const std::int32_t use : old) {
      if (use < 0) continue;
      std::size_t slot = hashes_[static_cast<std::size_t>(use)] & (slots_.size() - 1);
      while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = use;
    }
  }

  std::vector<UseSource>& sources_;
  std::vector<BufferChange>& buffers_;
  struct Found {
    std::vector<PackedChange> changes;  ///< as given
    std::int32_t use = 0;
  };
  std::vector<Found> last_;            ///< by plain use
  std::vector<std::uint64_t> hashes_;  ///< by use
  std::vector<std::int32_t> slots_;
  std::size_t count_ = 0;
};

/// What the row that was entered last receives.
class Receives {
 public:
  explicit Receives(const Schedule& rows)
      : microbatches_(rows.microbatches),
        rowOf_(2 * rows.placement.stages() * static_cast<std::size_t>(std::max(0, rows.microbatches)), 0) {}

  void enter(const std::vector<Action>& row) {
    ++row_;
    for (const Action& a : row) {
      if (isReceive(a.kind) && a.microbatch.value >= 0 && a.microbatch.value < microbatches_) rowOf_[placeOf(a)] = row_;
    }
  }
  /// Not of rows before lowering, nor where the stage before is on this rank and only a skip connection comes from elsewhere.
  [[nodiscard]] bool has(const Action& compute) const { return rowOf_[placeOf(compute)] == row_; }

 private:
  [[nodiscard]] std::size_t placeOf(const Action& a) const {
    return endOf(a.stage, isBackward(a.kind)) * static_cast<std::size_t>(microbatches_) + a.microbatch.index();
  }

  int microbatches_;
  std::int32_t row_ = 0;
  std::vector<std::int32_t> rowOf_;  ///< by end and microbatch: the last row that receives it, from 1
};

/// The changes of buffers along one row, collected in the order of its actions and then queried step by step.
class RowBuffers {
 public:
  /// `receives`: of this row.
  RowBuffers(const std::vector<Action>& row, std::span<const Lanes::Draft> steps, const Crossing& crossing, const Receives& receives,
             bool posted)
      : row_(row), steps_(steps), crossing_(crossing), receives_(receives), posted_(posted), last_(steps.size(), -1) {
    changes_.reserve(3 * steps.size());
    collect();
    if (crossing.hands) collectHanded();
    if (std::ranges::find(crossing.follows, true) != crossing.follows.end()) collectShared();
  }
  void of(std::size_t step, std::vector<PackedChange>& changes) const {
    changes.clear();
    for (std::int32_t i = last_[step]; i >= 0; i = changes_[static_cast<std::size_t>(i)].second)
      changes.push_back(changes_[static_cast<std::size_t>(i)].first);
  }

 private:
  void add(std::size_t step, const Action& action, What what) { addTo(step, {action.stage, isBackward(action.kind), what, -1}); }
  void addTo(std::size_t step, const BufferChange& change) {
    if (step >= steps_.size()) return;  // after the row's last step nothing is left to use it
    changes_.emplace_back(packed(change), last_[step]);
    last_[step] = static_cast<std::int32_t>(changes_.size()) - 1;
  }
  /// A gradient on its way to another rank stays until the compute action after its own has ended; there is none after the last.
  void keepUntilSent(std::size_t maker, const Action& action) {
    for (std::size_t next = maker + 1; next < steps_.size(); ++next) {
      if (steps_[next].origin.index < 0 || !isCompute(row_[static_cast<std::size_t>(steps_[next].origin.index)].kind)) continue;
      add(maker, action, What::Kept);
      add(next, action, What::Sent);
      return;
    }
  }
  /// The step that does the action at this place of the row, or for a message the next one. `step`: the first that is no earlier than the
  /// action; starts at 0 and moves along the row.
  std::size_t stepOf(std::size_t at, std::size_t& step) const {
    while (step < steps_.size() && steps_[step].origin.index < static_cast<std::int32_t>(at)) ++step;
    const bool secondOfSlot =
        step > 0 && isCompute(row_[at].kind) && (step == steps_.size() || steps_[step].origin.index > static_cast<std::int32_t>(at));
    return secondOfSlot ? step - 1 : step;
  }
  /// A gradient for another stage of the rank is there from the backward that makes it to the one that uses it.
  void collectHanded() {
    std::size_t step = 0;
    for (std::size_t at = 0; at < row_.size(); ++at) {
      const Action& action = row_[at];
      if (action.kind != ActionKind::Backward && action.kind != ActionKind::BackwardInput) continue;
      const auto &handed = crossing_.handed[action.stage.index()], &taken = crossing_.taken[action.stage.index()];
      if (handed.empty() && taken.empty()) continue;
      const std::size_t user = stepOf(at, step);
      for (const std::int32_t message : handed) addTo(user, {action.stage, true, What::Handed, message});
      for (const std::int32_t message : taken) addTo(user, {action.stage, true, What::Taken, message});
    }
  }
  /// What a W needs of the stage before is that stage's until its backward ends, and the W's alone from there on.
  void collectShared() {
    std::map<std::pair<Stage, Microbatch>, bool> waiting;  // Ws whose I is over, and whether the stage before has ended its backward
    std::size_t step = 0;
    for (std::size_t at = 0; at < row_.size(); ++at) {
      const Action& action = row_[at];
      if (!isCompute(action.kind) || !isBackward(action.kind)) continue;
      const Stage after(action.stage.value + 1);
      const bool isShared = crossing_.follows[action.stage.index()], feedsShared = crossing_.follows[after.index()];
      if (!isShared && !feedsShared) continue;
      const std::size_t user = stepOf(at, step);
      if (isShared && action.kind == ActionKind::BackwardInput) waiting[{action.stage, action.microbatch}] = false;
      if (isShared && action.kind == ActionKind::BackwardWeight) {
        const auto weight = waiting.extract({action.stage, action.microbatch});
        if (!weight.empty() && weight.mapped()) addTo(user, {action.stage, true, What::Freed, -1});
      }
      const auto weight = waiting.find({after, action.microbatch});
      if (weight == waiting.end() || action.kind == ActionKind::BackwardWeight) continue;
      weight->second = true;
      addTo(user, {after, true, What::Held, -1});
    }
  }
  void collect() {
    std::size_t step = 0;
    for (std::size_t at = 0; at < row_.size(); ++at) {
      const Action& action = row_[at];
      if (!isReceive(action.kind) && !makesMessage(action.kind)) continue;
      const bool arrives = crossing_.arrives[endOf(action.stage, isBackward(action.kind))];
      const bool leaves = isCompute(action.kind) && isBackward(action.kind) && crossing_.leaves[endOf(action.stage, true)];
      if (!arrives && !leaves) continue;
      const std::size_t user = stepOf(at, step);
      std::size_t poster = posted_ || user == 0 ? user : user - 1;
      while (poster > 0 && !posted_ && steps_[poster].origin.index < 0) --poster;  // a load is no action
      const bool posts = isReceive(action.kind) || !receives_.has(action);
      if (arrives && posts) add(poster, action, What::Posted);
      if (arrives && isCompute(action.kind)) add(user, action, What::Used);
      if (leaves) keepUntilSent(user, action);
    }
  }

  const std::vector<Action>& row_;
  std::span<const Lanes::Draft> steps_;
  const Crossing& crossing_;
  const Receives& receives_;
  bool posted_;
  std::vector<std::int32_t> last_;                              ///< by step: its change added last; −1: none
  std::vector<std::pair<PackedChange, std::int32_t>> changes_;  ///< and the one added before it
};

}  // namespace

void addBuffers(const Schedule& rows, const CostTable& costs, bool posted, Lanes& lanes, Program& p) {
  const Crossing crossing(rows.placement, costs);
  Receives receives(rows);
  Uses uses(p.sources, p.buffers);
  std::vector<PackedChange> changes;
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) {
    const auto first = static_cast<std::size_t>(lanes.begin[rank]);
    const auto steps = std::span(lanes.steps).subspan(first, static_cast<std::size_t>(lanes.begin[rank + 1]) - first);
    receives.enter(rows.rows[rank]);
    const RowBuffers buffers(rows.rows[rank], steps, crossing, receives, posted);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      buffers.of(i, changes);
      if (!changes.empty()) steps[i].use = uses.with(steps[i].use, changes);
    }
  }
  p.sources.push_back({0, 0, static_cast<std::int32_t>(p.buffers.size())});
}

}  // namespace pw
