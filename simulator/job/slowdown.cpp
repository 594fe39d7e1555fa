#include "simulator/job/slowdown.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>

#include "simulator/job/replay_job.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

Ns meanOf(const std::vector<Ns>& values) {
  if (values.empty()) return 0;
  long double sum = 0;
  for (const Ns value : values) sum += static_cast<long double>(value);
  return static_cast<Ns>(sum / static_cast<long double>(values.size()) + 0.5L);
}

/// Which of the times of a step are as measured.
struct Chosen {
  std::function<bool(std::size_t worker, const Action&)> action;
  std::function<bool(std::size_t worker, const Action&)> message;  ///< by the action that needs it
  std::function<bool(std::size_t worker, std::size_t operation)> operation;
};

class Attribution {
 public:
  Attribution(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue);
  std::optional<Slowdowns> run();

 private:
  void findIdeal();
  [[nodiscard]] Ns usualMean(const std::vector<Ns>& steps) const;
  [[nodiscard]] std::vector<Ns> stepsWith(const Chosen& chosen);
  [[nodiscard]] Culprit culprit(std::string name, int number, const Chosen& chosen);
  [[nodiscard]] Culprit ofKind(ActionKind kind);
  [[nodiscard]] Culprit ofMessages(bool backward);
  [[nodiscard]] Culprit ofOperations(const std::string& kind);
  void addWorkers();

  const JobShape& shape_;
  const Job& job_;
  const std::function<bool()>& shouldContinue_;
  bool stopped_ = false;  ///< what is computed from then on is of no use
  JobTimes ideal_;
  std::vector<JobTimes> own_;  ///< by step, without waits
  std::array<bool, kComputeKinds> has_{};
  std::vector<std::string> kinds_;        ///< by operation
  const std::vector<std::size_t> usual_;  ///< steps that means are of
  JobReplay replay_;
  Slowdowns result_;
};

bool isForwardMessage(const Action& user) { return user.kind == ActionKind::Forward; }

Attribution::Attribution(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue)
    : shape_(shape), job_(job), shouldContinue_(shouldContinue), usual_(usualSteps(job)) {
  for (const JobOperation& operation : job.operations) kinds_.push_back(kindOf(operation));
  findIdeal();
}

void Attribution::findIdeal() {
  const std::size_t copy = shape_.slotsOfCopy();
  std::array<std::vector<Ns>, kComputeKinds> actions;
  std::array<std::vector<Ns>, 2> messages;
  std::map<std::string, std::vector<Ns>> operations;  // by kind
  const std::vector<std::vector<Ns>> times = messageTimes(shape_, job_, typicalTimes(shape_, job_).times.waits);
  for (const std::size_t k : usual_) {
    const JobStep& step = job_.steps[k];
    for (std::size_t i = 0; i < step.actions.size(); ++i) {
      const JobShape::Slot& slot = shape_.copySlots[i % copy];
      actions[static_cast<std::size_t>(slot.action.kind)].push_back(step.actions[i]);
      if (slot.crosses) messages[isForwardMessage(slot.action) ? 0 : 1].push_back(times[k][i]);
    }
    for (std::size_t at = 0; at < step.operations.size(); ++at) {
      if (step.operations[at] >= 0) operations[kinds_[at % shape_.operations]].push_back(step.operations[at]);
    }
  }
  std::array<Ns, kComputeKinds> action{};
  for (std::size_t k = 0; k < kComputeKinds; ++k) {
    has_[k] = !actions[k].empty();
    action[k] = meanOf(actions[k]);
  }
  const std::array<Ns, 2> message{medianOf(std::move(messages[0])).value_or(Ns{0}), medianOf(std::move(messages[1])).value_or(Ns{0})};
  std::vector<Ns> operation;
  for (const std::string& kind : kinds_)
    operation.push_back(communicates(kind) ? medianOf(operations[kind]).value_or(Ns{0}) : meanOf(operations[kind]));
  ideal_.waits.assign(shape_.allSlots(), 0);
  ideal_.operationWaits.assign(shape_.workers * shape_.operations, 0);
  for (std::size_t i = 0; i < shape_.allSlots(); ++i) {
    const JobShape::Slot& slot = shape_.copySlots[i % copy];
    ideal_.actions.push_back(action[static_cast<std::size_t>(slot.action.kind)]);
    ideal_.messages.push_back(slot.crosses ? message[isForwardMessage(slot.action) ? 0 : 1] : 0);
  }
  for (std::size_t at = 0; at < ideal_.operationWaits.size(); ++at) ideal_.operations.push_back(operation[at % shape_.operations]);
  for (std::size_t k = 0; k < job_.steps.size(); ++k) {
    JobTimes& own = own_.emplace_back(ideal_);
    own.actions = job_.steps[k].actions;
    own.operations = job_.steps[k].operations;
    own.messages = times[k];
  }
}

Ns Attribution::usualMean(const std::vector<Ns>& steps) const {
  std::vector<Ns> usual;
  for (const std::size_t k : usual_) usual.push_back(steps[k]);
  return meanOf(usual);
}

/// The times of all steps where only what is chosen is as measured.
std::vector<Ns> Attribution::stepsWith(const Chosen& chosen) {
  const std::size_t copy = shape_.slotsOfCopy();
  std::vector<bool> actions(shape_.allSlots()), messages(shape_.allSlots()), operations(shape_.workers * shape_.operations);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const JobShape::Slot& slot = shape_.copySlots[i % copy];
    const std::size_t worker = i / copy * shape_.ranks + slot.rank.index();
    actions[i] = chosen.action(worker, slot.action);
    messages[i] = slot.crosses && chosen.message(worker, slot.action);
  }
  for (std::size_t at = 0; at < operations.size(); ++at) operations[at] = chosen.operation(at / shape_.operations, at % shape_.operations);
  std::vector<Ns> steps;
  for (const JobTimes& own : own_) {
    stopped_ = stopped_ || (shouldContinue_ && !shouldContinue_());
    if (stopped_) return std::vector<Ns>(own_.size(), 0);
    JobTimes times = ideal_;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i]) times.actions[i] = own.actions[i];
      if (messages[i]) times.messages[i] = own.messages[i];
    }
    // What a worker did not do in this step it does not do at all.
    for (std::size_t at = 0; at < operations.size(); ++at) {
      if (operations[at] || own.operations[at] < 0) times.operations[at] = own.operations[at];
    }
    replayJob(shape_, job_, times, replay_);
    steps.push_back(replay_.step);
  }
  return steps;
}

Culprit Attribution::culprit(std::string name, int number, const Chosen& chosen) {
  const std::vector<Ns> steps = stepsWith(chosen);
  const double ideal = static_cast<double>(std::max<Ns>(1, result_.ideal));
  Culprit made{std::move(name), number, static_cast<double>(usualMean(steps)) / ideal, {}};
  for (const Ns step : steps) made.bySteps.push_back(static_cast<double>(step) / ideal);
  return made;
}

Culprit Attribution::ofKind(ActionKind kind) {
  return culprit(std::string(letters(kind)), -1,
                 {[&](std::size_t, const Action& a) { return a.kind == kind; }, [](std::size_t, const Action&) { return false; },
                  [](std::size_t, std::size_t) { return false; }});
}

Culprit Attribution::ofMessages(bool backward) {
  return culprit(std::string(letters(backward ? ActionKind::SendBackward : ActionKind::SendForward)), -1,
                 {[](std::size_t, const Action&) { return false; },
                  [&](std::size_t, const Action& user) { return isForwardMessage(user) != backward; },
                  [](std::size_t, std::size_t) { return false; }});
}

Culprit Attribution::ofOperations(const std::string& kind) {
  return culprit(kind, -1,
                 {[](std::size_t, const Action&) { return false; }, [](std::size_t, const Action&) { return false; },
                  [&](std::size_t, std::size_t o) { return kinds_[o] == kind; }});
}

/// The smaller one of a worker's rank and replica.
void Attribution::addWorkers() {
  for (std::size_t w = 0; w < shape_.workers; ++w) {
    const Culprit& rank = result_.byRank[w % shape_.ranks];
    const Culprit& replica = result_.byReplica[w / shape_.ranks / static_cast<std::size_t>(job_.tensor)];
    Culprit worker = rank.slowdown <= replica.slowdown ? rank : replica;
    for (std::size_t k = 0; k < worker.bySteps.size(); ++k) worker.bySteps[k] = std::min(rank.bySteps[k], replica.bySteps[k]);
    worker.number = static_cast<int>(w);
    result_.byWorker.push_back(std::move(worker));
  }
}

std::optional<Slowdowns> Attribution::run() {
  const auto all = [](std::size_t, const auto&) { return true; };
  const auto none = [](std::size_t, const auto&) { return false; };
  std::vector<Ns> measured;
  for (const JobStep& step : job_.steps) measured.push_back(step.step);
  result_.measured = usualMean(measured);
  result_.ideal = usualMean(stepsWith({none, none, none}));
  result_.replayedSteps = stepsWith({all, all, all});
  result_.replayed = usualMean(result_.replayedSteps);
  if (result_.ideal > 0) result_.slowdown = static_cast<double>(result_.replayed) / static_cast<double>(result_.ideal);
  if (result_.replayed > 0) result_.waits = static_cast<double>(result_.measured) / static_cast<double>(result_.replayed);
  for (std::size_t k = 0; k < kComputeKinds; ++k) {
    if (has_[k]) result_.byKind.push_back(ofKind(static_cast<ActionKind>(k)));
  }
  const bool crosses = std::ranges::any_of(shape_.copySlots, [](const JobShape::Slot& s) { return s.crosses; });
  if (crosses) result_.byKind.push_back(ofMessages(false));
  if (crosses && trains(job_.schedule)) result_.byKind.push_back(ofMessages(true));
  for (std::size_t o = 0; o < shape_.operations; ++o) {
    if (std::ranges::find(kinds_, kinds_[o]) == kinds_.begin() + static_cast<std::ptrdiff_t>(o))
      result_.byKind.push_back(ofOperations(kinds_[o]));
  }
  std::ranges::stable_sort(result_.byKind, std::ranges::greater(), &Culprit::slowdown);
  // A rank's operations are its stage's where it has one.
  const std::vector<Rank>& placed = job_.schedule.placement.rankOfStage;
  for (std::size_t s = 0; s < placed.size(); ++s) {
    const bool only = std::ranges::count(placed, placed[s]) == 1;
    const auto ofStage = [&](std::size_t, const Action& a) { return a.stage == Stage(s); };
    result_.byStage.push_back(culprit("", static_cast<int>(s), {ofStage, ofStage, [&](std::size_t w, std::size_t) {
                                                                  return only && w % shape_.ranks == placed[s].index();
                                                                }}));
  }
  for (std::size_t r = 0; r < shape_.ranks; ++r) {
    const auto ofRank = [&](std::size_t w, const auto&) { return w % shape_.ranks == r; };
    result_.byRank.push_back(culprit("", static_cast<int>(r), {ofRank, ofRank, ofRank}));
  }
  for (std::size_t d = 0; d < static_cast<std::size_t>(job_.replicas); ++d) {
    const auto ofReplica = [&](std::size_t w, const auto&) { return w / shape_.ranks / static_cast<std::size_t>(job_.tensor) == d; };
    result_.byReplica.push_back(culprit("", static_cast<int>(d), {ofReplica, ofReplica, ofReplica}));
  }
  addWorkers();
  return stopped_ ? std::nullopt : std::optional(std::move(result_));
}

}  // namespace

Slowdowns slowdownsOf(const JobShape& shape, const Job& job) { return *slowdownsOf(shape, job, {}); }

std::optional<Slowdowns> slowdownsOf(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue) {
  return Attribution(shape, job, shouldContinue).run();
}

}  // namespace pw
