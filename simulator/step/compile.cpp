#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/lanes.h"
#include "simulator/step/message_buffers.h"
#include "simulator/step/messages_by_end.h"
#include "simulator/step/posting.h"
#include "simulator/step/posting_links.h"
#include "simulator/step/program.h"

namespace pw {
namespace {

constexpr std::int32_t kNone = Channels::kNone;

/// What has been done for a (stage, microbatch). A full backward sets both of its parts.
constexpr std::uint8_t kForwardDone = 1, kInputDone = 2, kWeightDone = 4;

/// A REDUCE_GRAD that takes time.
struct Reduction {
  std::size_t rank = 0, position = 0;
  Stage stage;
  std::int32_t after = kNone;  ///< the rank's step before it
};

/// A message that becomes a step of a channel.
struct Carried {
  std::int32_t step = 0, message = 0;
  Microbatch microbatch;
  std::int32_t sender = 0, consumer = 0;
};

class Compiler {
 public:
  Compiler(const Schedule& schedule, const CostTable& costs, Sending sending, const Posting* posting = nullptr);
  Program run();
  /// After `run` of a posting: where each rank is stuck.
  [[nodiscard]] const std::vector<Problem>& stuck() const { return stuck_; }

 private:
  [[nodiscard]] std::size_t pairOf(const Action& a) const { return a.stage.index() * microbatches_ + a.microbatch.index(); }
  [[nodiscard]] std::int32_t& stepOf(Stage stage, Microbatch m, bool backward) {
    return stepOf_[endOf(stage, backward) * microbatches_ + m.index()];
  }
  [[nodiscard]] std::size_t postOf(std::size_t message, Microbatch m) const { return message * microbatches_ + m.index(); }
  [[nodiscard]] bool posts() const { return sending_ != Sending::Overlapped; }
  [[nodiscard]] static std::int32_t useOf(const Action& a) {
    return 1 + static_cast<std::int32_t>(kComputeKinds * a.stage.index() + static_cast<std::size_t>(a.kind));
  }
  [[nodiscard]] std::int32_t slotUse(const Action& forward, const Action& backward);
  [[noreturn]] void failDeadlock(std::size_t rank, std::size_t position) const;

  void listUses();
  void addRow(std::size_t rank);
  void addCompute(std::size_t rank, std::size_t& position);
  void addPost(std::size_t rank, std::size_t position);
  void addWaits(std::size_t rank, std::size_t position);
  void linkPosting();
  void addStep(std::size_t rank, std::int32_t position, std::int32_t use, Microbatch microbatch);
  void enter(const Action& action, std::size_t rank, std::size_t position);
  template <class Visit>
  void forMessages(Visit visit);
  void requireSenders();
  void addTransfers();
  void linkTransfer(const Carried& carried);
  void noteReduction(std::size_t rank, std::size_t position);
  void addReductions();
  void linkCycles();
  void finish();

  const Schedule& schedule_;
  const CostTable& costs_;
  Sending sending_;
  std::size_t microbatches_;
  MessagesByEnd leaving_, arriving_;
  bool trains_ = false;
  Program p_;
  Lanes lanes_;
  std::vector<std::int32_t> stepOf_;  ///< by end and microbatch: the step of F, of B or I
  std::vector<std::uint8_t> done_;    ///< by stage and microbatch
  Channels channels_;
  std::vector<bool> reduced_;  ///< by stage: whether the rows reduce its gradients
  std::map<std::pair<Stage, Stage>, std::int32_t> slotUses_;
  std::vector<std::int32_t> sent_, received_;  ///< by message and microbatch: the steps that post its ends
  std::vector<std::int32_t> cycle_;            ///< lockstep: by step of a rank
  std::vector<Carried> carried_;               ///< in lockstep and of a posting
  std::vector<Reduction> reductions_;          ///< by rank and position
  const Posting* posting_;
  std::vector<std::size_t> nextWait_;  ///< by rank
  std::vector<PostingLinks::Waiting> waiting_;
  std::vector<Problem> stuck_;
};

Compiler::Compiler(const Schedule& schedule, const CostTable& costs, Sending sending, const Posting* posting)
    : schedule_(schedule),
      costs_(costs),
      sending_(schedule.lockstep ? Sending::Overlapped : sending),
      microbatches_(static_cast<std::size_t>(schedule.microbatches)),
      leaving_(costs, &MessageCost::from),
      arriving_(costs, &MessageCost::to),
      trains_(trains(schedule)),
      posting_(posting),
      nextWait_(schedule.rows.size(), 0) {
  std::size_t actions = 0;
  for (const auto& row : schedule.rows) actions += row.size();
  const std::size_t pairs = costs.stages.size() * microbatches_;
  stepOf_.assign(2 * pairs, kNone);
  done_.assign(pairs, 0);
  if (posts()) {
    sent_.assign(costs.messages.size() * microbatches_, kNone);
    received_ = sent_;
  }
  channels_ = channelsOf(schedule, costs, sending_);
  reduced_.assign(costs.stages.size(), false);
  p_.ranks = static_cast<std::int32_t>(schedule.rows.size());
  p_.channels = channels_.count;
  lanes_.steps.reserve(2 * actions);
  lanes_.links.reserve(2 * actions);
}

void Compiler::failDeadlock(std::size_t rank, std::size_t position) const {
  throw Error(fmt::format(
      "schedule `{}` deadlocks: rank {} waits at position {} ({}) for something that never happens; `pipewright check` shows the cycle",
      schedule_.name, rank, position, toString(schedule_.rows[rank][position])));
}

/// Uses of memory: none, then of each stage F, B, I, W, all without buffers.
void Compiler::listUses() {
  const auto count = static_cast<std::int32_t>(1 + kComputeKinds * costs_.stages.size());
  for (std::int32_t action = 0; action < count; ++action) p_.sources.push_back({action, 0, 0});
}

std::int32_t Compiler::slotUse(const Action& forward, const Action& backward) {
  const auto [found, isNew] = slotUses_.emplace(std::pair{forward.stage, backward.stage}, static_cast<std::int32_t>(p_.sources.size()));
  if (isNew) p_.sources.push_back({useOf(forward), useOf(backward), 0});
  return found->second;
}

// ---- Steps of the ranks ------------------------------------------------------------------------------------------

void Compiler::addStep(std::size_t rank, std::int32_t position, std::int32_t use, Microbatch microbatch) {
  lanes_.steps.push_back({static_cast<std::int32_t>(rank), {position, microbatch}, use});
}

/// Records what the last step does. What it needs from its own row must have been done.
void Compiler::enter(const Action& action, std::size_t rank, std::size_t position) {
  constexpr std::array<std::uint8_t, kComputeKinds> kNeeds{0, kForwardDone, kForwardDone, kInputDone};
  constexpr std::array<std::uint8_t, kComputeKinds> kDoes{kForwardDone, kInputDone | kWeightDone, kInputDone, kWeightDone};
  const auto kind = static_cast<std::size_t>(action.kind);
  std::uint8_t& done = done_[pairOf(action)];
  if ((done & kDoes[kind]) != 0) {
    throw Error(fmt::format("schedule `{}` has {} twice; `pipewright check` lists its problems", schedule_.name, toString(action)));
  }
  if ((done & kNeeds[kind]) != kNeeds[kind]) failDeadlock(rank, position);
  done = static_cast<std::uint8_t>(done | kDoes[kind]);
  if (makesMessage(action.kind))
    stepOf(action.stage, action.microbatch, isBackward(action.kind)) = static_cast<std::int32_t>(lanes_.steps.size()) - 1;
}

void Compiler::addCompute(std::size_t rank, std::size_t& position) {
  const auto& row = schedule_.rows[rank];
  const Action& action = row[position];
  const std::size_t first = position;
  if (!beginsSlot(row, position)) {
    addStep(rank, static_cast<std::int32_t>(first), useOf(action), action.microbatch);
    return enter(action, rank, first);
  }
  const Action& partner = row[++position];
  addStep(rank, static_cast<std::int32_t>(first), slotUse(action, partner), action.microbatch);
  enter(action, rank, first);
  enter(partner, rank, first + 1);
}

/// The end of a message that an action of the row posts: a step without duration; with blocking sends one more, which waits.
void Compiler::addPost(std::size_t rank, std::size_t position) {
  const Action& action = schedule_.rows[rank][position];
  const bool send = isSend(action.kind);
  const auto step = static_cast<std::int32_t>(lanes_.steps.size());
  addStep(rank, static_cast<std::int32_t>(position), 0, action.microbatch);
  if (sending_ == Sending::Blocking) addStep(rank, static_cast<std::int32_t>(position), 0, action.microbatch);
  for (const std::size_t m : (send ? leaving_ : arriving_).at(action)) (send ? sent_ : received_)[postOf(m, action.microbatch)] = step;
}

/// The waits of a posting before this position of the row.
void Compiler::addWaits(std::size_t rank, std::size_t position) {
  const std::vector<Posting::Wait>& waits = posting_->waits[rank];
  for (std::size_t& next = nextWait_[rank]; next < waits.size() && waits[next].before <= position; ++next) {
    const Action& message = schedule_.rows[rank][waits[next].message];
    waiting_.push_back({static_cast<std::int32_t>(lanes_.steps.size()), message});
    addStep(rank, static_cast<std::int32_t>(waits[next].message), 0, message.microbatch);
  }
}

void Compiler::noteReduction(std::size_t rank, std::size_t position) {
  const Stage stage = schedule_.rows[rank][position].stage;
  if (stage.value < 0 || stage.index() >= costs_.stages.size() || !schedule_.placement.holds(Rank(rank), stage)) {
    throw Error(fmt::format("schedule `{}` reduces stage {} on rank {}, which does not hold it; `pipewright check` lists its problems",
                            schedule_.name, stage.value, rank));
  }
  reduced_[stage.index()] = true;
  if (costs_.stages[stage.index()].reduce == 0) return;
  const auto steps = static_cast<std::int32_t>(lanes_.steps.size());
  reductions_.push_back({rank, position, stage, steps == lanes_.begin.back() ? kNone : steps - 1});
}

void Compiler::addRow(std::size_t rank) {
  const auto& row = schedule_.rows[rank];
  const Stage last(costs_.stages.size() - 1);
  const int ranks = static_cast<int>(schedule_.rows.size());
  lanes_.begin.push_back(static_cast<std::int32_t>(lanes_.steps.size()));
  const bool mayLoad = schedule_.lockstep && costs_.load > 0, mayStore = schedule_.lockstep && costs_.store > 0;
  for (std::size_t at = 0; at < row.size(); ++at) {
    const Action action = row[at];
    if (posting_ != nullptr) addWaits(rank, at);
    const bool loads =  // the model's input and the target
        mayLoad && action.kind == ActionKind::Forward && (action.stage == Stage(0) || action.stage == last);
    const bool stores =
        mayStore && action.stage == last && (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight);
    if (loads) addStep(rank, kLoadStep, 0, action.microbatch);
    if (isCompute(action.kind)) addCompute(rank, at);
    if (action.kind == ActionKind::ReduceGrad) noteReduction(rank, at);
    if (posts() && (isSend(action.kind) || isReceive(action.kind))) addPost(rank, at);
    if (stores) addStep(rank, kStoreStep, 0, action.microbatch);
    if (schedule_.lockstep && isCompute(action.kind)) cycle_.resize(lanes_.steps.size(), lockstepCycle(ranks, action));
  }
  if (posting_ != nullptr) addWaits(rank, row.size());
}

// ---- Messages ----------------------------------------------------------------------------------------------------

/// Visits every message across ranks in the order of its channel: (message, microbatch, sending step).
template <class Visit>
void Compiler::forMessages(Visit visit) {
  for (std::size_t rank = 0; rank < schedule_.rows.size(); ++rank) {
    for (const Action& a : schedule_.rows[rank]) {
      if (!posts() && makesMessage(a.kind)) {
        for (const std::size_t m : leaving_.at(a)) visit(m, a.microbatch, stepOf(a.stage, a.microbatch, isBackward(a.kind)));
      }
      if (!posts() || !(isSend(a.kind) || isReceive(a.kind))) continue;
      for (const std::size_t m : (isSend(a.kind) ? leaving_ : arriving_).at(a)) {
        const MessageCost& message = costs_.messages[m];
        const Rank other = schedule_.placement.rankOf(isSend(a.kind) ? message.to : message.from, a.microbatch);
        // On a channel shared by both directions the lower rank's order applies; `check` reports differing orders.
        const bool mine = sending_ == Sending::OneChannel ? Rank(rank) < other : isSend(a.kind);
        if (mine && other != Rank(rank)) visit(m, a.microbatch, sent_[postOf(m, a.microbatch)]);
      }
    }
  }
}

/// Messages within a rank arrive in time if their actions are in order; messages on a channel that none of them ever holds become an edge;
/// all others become a step of their channel.
void Compiler::addTransfers() {
  const auto channel = [&](std::size_t m, Microbatch mb) {
    return channels_.ofMessage[m][schedule_.placement.bidirectional() && mb >= schedule_.placement.firstMirrored ? 1 : 0];
  };
  std::vector<std::int32_t> next(static_cast<std::size_t>(p_.channels) + 1, 0);
  forMessages([&](std::size_t m, Microbatch mb, std::int32_t) {
    const std::int32_t c = channel(m, mb);
    if (c != kNone && channels_.held[static_cast<std::size_t>(c)]) ++next[static_cast<std::size_t>(c) + 1];
  });
  next[0] = static_cast<std::int32_t>(lanes_.steps.size());
  for (std::size_t c = 1; c < next.size(); ++c) next[c] += next[c - 1];
  lanes_.begin.insert(lanes_.begin.end(), next.begin(), next.end());
  lanes_.steps.resize(static_cast<std::size_t>(next.back()));
  const bool keepsCarried = schedule_.lockstep || posting_ != nullptr;
  forMessages([&](std::size_t m, Microbatch mb, std::int32_t sender) {
    const MessageCost& message = costs_.messages[m];
    const std::int32_t consumer = stepOf(message.to, mb, message.backward);
    const std::int32_t c = channel(m, mb);
    if (consumer == kNone) {
      throw Error(fmt::format("schedule `{}` lacks {} of stage {} for microbatch {}; `pipewright check` lists what is missing",
                              schedule_.name, message.backward ? "the backward" : "the forward", message.to.value, mb.value));
    }
    const Lanes::Draft& user = lanes_.steps[static_cast<std::size_t>(consumer)];
    if (c == kNone && consumer < sender) failDeadlock(static_cast<std::size_t>(user.lane), static_cast<std::size_t>(user.origin.index));
    if (c == kNone) return;
    if (!channels_.held[static_cast<std::size_t>(c)]) return lanes_.links.push_back({sender, consumer, static_cast<std::int32_t>(m) + 1});
    const std::int32_t step = next[static_cast<std::size_t>(c)]++;
    lanes_.steps[static_cast<std::size_t>(step)] = {p_.ranks + c, {static_cast<std::int32_t>(m), mb}, 0};
    const Carried carried{step, static_cast<std::int32_t>(m), mb, sender, consumer};
    if (keepsCarried) carried_.push_back(carried);
    linkTransfer(carried);
  });
}

void Compiler::linkTransfer(const Carried& carried) {
  const std::int32_t step = carried.step;
  const std::int32_t delay = carried.message + 1;
  if (!schedule_.lockstep) lanes_.links.push_back({step, carried.consumer, delay});
  if (!posts()) return lanes_.links.push_back({carried.sender, step, 0});
  const std::size_t post = postOf(static_cast<std::size_t>(carried.message), carried.microbatch);
  const std::int32_t sent = sent_[post], received = received_[post];
  if (sent == kNone || received == kNone) {
    const MessageCost& m = costs_.messages[static_cast<std::size_t>(carried.message)];
    throw Error(fmt::format("schedule `{}` lacks the {} of the message from stage {} to stage {} of microbatch {}; lower it again",
                            schedule_.name, sent == kNone ? "SEND" : "RECV", m.from.value, m.to.value, carried.microbatch.value));
  }
  lanes_.links.push_back({sent, step, 0});
  lanes_.links.push_back({received, step, 0});
  if (sending_ != Sending::Blocking) return;
  lanes_.links.push_back({step, sent + 1, 0});
  lanes_.links.push_back({step, received + 1, delay});
}

/// What waits for what beyond the two ends of a message: streams, and ranks that wait.
void Compiler::linkPosting() {
  std::vector<std::int32_t> transferOf(costs_.messages.size() * microbatches_, kNone);
  for (const Carried& carried : carried_) transferOf[postOf(static_cast<std::size_t>(carried.message), carried.microbatch)] = carried.step;
  addPostingLinks({schedule_, costs_, leaving_, arriving_, transferOf, waiting_}, *posting_, lanes_.links);
}

/// Each rank's reductions, one after the other in parallel with its row; that of a stage starts when all ranks that hold it have reached
/// theirs.
void Compiler::addReductions() {
  if (reductions_.empty()) return;
  p_.reducers = p_.ranks;
  std::map<Stage, std::vector<const Reduction*>> holders;
  for (const Reduction& reduction : reductions_) holders[reduction.stage].push_back(&reduction);
  auto next = reductions_.cbegin();
  for (std::int32_t rank = 0; rank < p_.ranks; ++rank) {
    for (; next != reductions_.cend() && next->rank == static_cast<std::size_t>(rank); ++next) {
      const auto step = static_cast<std::int32_t>(lanes_.steps.size());
      lanes_.steps.push_back({p_.ranks + p_.channels + rank, {static_cast<std::int32_t>(next->position), {}}, 0});
      for (const Reduction* holder : holders[next->stage]) {
        if (holder->after != kNone) lanes_.links.push_back({holder->after, step, 0});
      }
    }
    lanes_.begin.push_back(static_cast<std::int32_t>(lanes_.steps.size()));
  }
}

/// Lockstep: after every cycle two barriers, one before and one after the exchange.
void Compiler::linkCycles() {
  const auto cycles = static_cast<std::int32_t>(lockstepCycles(shapeOf(schedule_)));
  const auto first = static_cast<std::int32_t>(lanes_.steps.size());
  for (std::int32_t i = 0; i < 2 * cycles; ++i) lanes_.steps.push_back({p_.ranks + p_.channels + p_.reducers, {i / 2, {}}, 0});
  for (std::size_t rank = 0; rank < schedule_.rows.size(); ++rank) {
    for (std::int32_t s = lanes_.begin[rank]; s < lanes_.begin[rank + 1]; ++s) {
      const std::int32_t cycle = cycle_[static_cast<std::size_t>(s)];
      const bool begins = s == lanes_.begin[rank] || cycle_[static_cast<std::size_t>(s) - 1] != cycle;
      const bool ends = s + 1 == lanes_.begin[rank + 1] || cycle_[static_cast<std::size_t>(s) + 1] != cycle;
      if (begins && cycle > 0) lanes_.links.push_back({first + 2 * cycle - 1, s, 0});
      if (ends) lanes_.links.push_back({s, first + 2 * cycle, 0});
    }
  }
  for (const Carried& carried : carried_) {
    const std::int32_t cycle = cycle_[static_cast<std::size_t>(carried.sender)];
    lanes_.links.push_back({first + 2 * cycle, carried.step, 0});
    lanes_.links.push_back({carried.step, first + 2 * cycle + 1, carried.message + 1});
  }
  lanes_.begin.push_back(static_cast<std::int32_t>(lanes_.steps.size()));
}

void Compiler::finish() {
  const std::vector<std::int32_t> stuck = layOut(lanes_, p_);
  for (std::size_t rank = 0; rank < schedule_.rows.size() && !stuck.empty() && posting_ != nullptr; ++rank) {
    if (stuck[rank] >= lanes_.begin[rank + 1]) continue;
    const int position = lanes_.steps[static_cast<std::size_t>(stuck[rank])].origin.index;
    const Action& action = schedule_.rows[rank][static_cast<std::size_t>(position)];
    stuck_.push_back({Rank(rank), position, action, fmt::format("rank {} waits for ever at {}", rank, toString(action)), Stops::Always});
  }
  if (!stuck_.empty()) return;
  for (std::size_t rank = 0; rank < schedule_.rows.size() && !stuck.empty(); ++rank) {
    if (stuck[rank] < lanes_.begin[rank + 1])
      failDeadlock(rank, static_cast<std::size_t>(std::max(0, lanes_.steps[static_cast<std::size_t>(stuck[rank])].origin.index)));
  }
  if (!stuck.empty())
    throw Error(fmt::format("schedule `{}` deadlocks in its messages; `pipewright check` shows the cycle", schedule_.name));
}

/// An action whose sender is missing would wait forever.
void Compiler::requireSenders() {
  for (const MessageCost& m : costs_.messages) {
    for (std::size_t mb = 0; mb < microbatches_; ++mb) {
      const std::int32_t consumer = stepOf(m.to, Microbatch(mb), m.backward);
      if (consumer == kNone || stepOf(m.from, Microbatch(mb), m.backward) != kNone) continue;
      const Lanes::Draft& step = lanes_.steps[static_cast<std::size_t>(consumer)];
      failDeadlock(static_cast<std::size_t>(step.lane), static_cast<std::size_t>(step.origin.index));
    }
  }
}

Program Compiler::run() {
  listUses();
  for (std::size_t rank = 0; rank < schedule_.rows.size(); ++rank) addRow(rank);
  requireSenders();
  addTransfers();
  if (posting_ != nullptr) linkPosting();
  addReductions();
  if (schedule_.lockstep) linkCycles();
  addBuffers(schedule_, costs_, posts(), lanes_, p_);
  finish();
  if (!stuck_.empty()) return {};
  p_.basis = basisOf(schedule_, costs_, sending_, reduced_, trains_);
  setCosts(schedule_, costs_, p_);
  return std::move(p_);
}

}  // namespace

Schedule rowsOf(const Schedule& schedule, Sending sending) {
  return sending == Sending::Overlapped || schedule.lockstep || isLowered(schedule) ? schedule : lower(schedule);
}

Program compile(const Schedule& schedule, const CostTable& costs, Sending sending) {
  requireFitting(schedule, costs);
  if (sending == Sending::Overlapped) return Compiler(schedule, costs, sending).run();
  const Schedule rows = rowsOf(schedule, sending);
  return Compiler(rows, costs, sending).run();
}

PostedProgram compile(const Schedule& rows, const CostTable& costs, const Posting& posting) {
  requireFitting(rows, costs);
  Compiler compiler(rows, costs, Sending::Posted, &posting);
  PostedProgram result{compiler.run(), {}};
  result.stuck = compiler.stuck();
  return result;
}

}  // namespace pw
