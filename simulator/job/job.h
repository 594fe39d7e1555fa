#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/job_rank.h"
#include "schedules/schedule.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/job/times_of.h"

namespace pw {

/// Which workers do a collective operation together: nobody ends it before all have started.
enum class OperationGroup : std::uint8_t {
  Alone,     ///< no one waits
  Replicas,  ///< the workers with the same pipeline rank (and tensor rank) in all replicas: sums of gradients, gathered parameters
  Ends,      ///< first and last rank of a pipeline: gradients of a shared embedding
  All,       ///< every worker: the norm of the gradient
};
constexpr std::string_view nameOf(OperationGroup group) {
  switch (group) {
    case OperationGroup::Alone: return "alone";
    case OperationGroup::Replicas: return "replicas";
    case OperationGroup::Ends: return "ends";
    case OperationGroup::All: return "all";
  }
  return {};
}

/// The group and whether it communicates, by the name that Megatron and its descendants, or torch's schedules, give it; case, `-` and `_`
/// are ignored.
[[nodiscard]] OperationGroup groupNamed(std::string_view operation);
[[nodiscard]] bool communicates(std::string_view operation);

inline constexpr Ns kUnknownTime = -1;

/// What workers do in a step besides the actions of the pipeline.
struct JobOperation {
  std::string name;
  OperationGroup group = OperationGroup::Alone;
  std::vector<std::int32_t> after;  ///< by pipeline rank: how many actions of its row are done before; −1: the rank has none of these
  bool blocks = false;              ///< the next action of the row waits for it, of a row that has done none the first
  bool holdsMessage = false;        ///< what the action before it made leaves after it, as where DDP reduces within its last backward

  bool operator==(const JobOperation&) const = default;
};

/// The name without the number that tells several in a step apart: `params-all-gather` of `params-all-gather 2`.
[[nodiscard]] std::string kindOf(const JobOperation& operation);

/// The times of one step. By slot: the actions of all workers in the order of workers and rows (`JobShape`). `kUnknownTime`: not
/// measured, or not separable from what else the worker waited for.
struct JobStep {
  std::string name;
  Ns step = 0;                     ///< from the first start to the last end of anything
  Ns makespan = 0;                 ///< from the first start to the last end of an action
  Ns before = kUnknownTime;        ///< from the end of the recording's step before, the first excepted, to the first start
  std::vector<Ns> actions;         ///< by slot: duration
  std::vector<Ns> waits;           ///< by slot: from when everything was there, its rank included, to the start: the host's overhead
  std::vector<Ns> messages;        ///< by slot: from the end of the action that it needs of another rank to the arrival
  std::vector<Ns> operations;      ///< by worker × operation: duration; of a collective from when all have started
  std::vector<Ns> operationWaits;  ///< likewise: from the end of what the worker did before; of a collective of the last to come

  bool operator==(const JobStep&) const = default;
};

/// The memory of a pipeline rank in the job's steps, in whatever copy and step it is most.
struct MeasuredMemory {
  Bytes base = 0;  ///< least in a step: what stays
  Bytes peak = 0;  ///< most

  bool operator==(const MeasuredMemory&) const = default;
};

/// A job of any framework as its traces show it: the schedule and placement of one pipeline, its copies (data-parallel replicas, ranks of
/// tensor-parallel groups), what else a step does, and the times of every step.
struct Job {
  std::string name;
  int replicas = 1, tensor = 1;
  Schedule schedule;  ///< compute-only, of one pipeline; slots are not kept
  bool timedMessages = false;
  std::vector<JobOperation> operations;  ///< in the order in which they are done
  std::vector<JobStep> steps;            ///< at least one
  std::vector<std::string> notes;
  TimesOf times = TimesOf::Measured;
  std::vector<MeasuredMemory> memory = {};      ///< by pipeline rank; empty: the traces do not show it
  std::optional<Uncertainty> uncertainty = {};  ///< of predictions of other jobs from its times (`calibrateJob`); nothing: not calibrated

  bool operator==(const Job&) const = default;
};

/// The slots of a job and what each needs. A worker is the process copy × ranks + rank, a slot `copy × slotsOfCopy + slot of the copy`.
struct JobShape {
  explicit JobShape(const Job& job);  ///< Throws Error where the schedule deadlocks. Cost: linear in actions, times ranks at worst.

  struct Slot {
    Rank rank;
    Action action;
    std::int32_t producer = -1;  ///< slot of the copy whose result it needs; −1: none
    bool crosses = false;        ///< which is on another rank
  };
  std::size_t ranks = 0, copies = 0, workers = 0, operations = 0;
  std::vector<Slot> copySlots;      ///< of one copy, by rank and position
  std::vector<std::size_t> begin;   ///< by rank, and one more: its first slot
  std::vector<std::int32_t> order;  ///< slots of a copy, each after what it needs
  std::vector<std::vector<std::int32_t>>
      within;              ///< by slot of a copy: operations after it within the row, which holds until they are done
  bool hasWithin = false;  ///< any
  [[nodiscard]] std::size_t slotsOfCopy() const { return copySlots.size(); }
  [[nodiscard]] std::size_t allSlots() const { return copySlots.size() * copies; }
  [[nodiscard]] Rank rankOf(JobRank worker) const { return Rank(worker.index() % ranks); }
  [[nodiscard]] std::size_t copyOf(JobRank worker) const { return worker.index() / ranks; }
};

/// Calls with the index of every slot, that in its copy, and the slot.
template <class Visit>
void forSlots(const JobShape& shape, const Visit& visit) {
  for (std::size_t copy = 0, i = 0; copy < shape.copies; ++copy) {
    for (std::size_t s = 0; s < shape.copySlots.size(); ++s, ++i) visit(i, s, shape.copySlots[s]);
  }
}

/// The longest single time that a job may hold [ns], so that the sums of any replay, and of its makespan over the ranks, stay within 64
/// bits.
[[nodiscard]] Ns longestTime(const JobShape& shape);

/// When a rank does an operation: before its row, after an action of it that something waits for, or beside and after the row.
enum class OperationTurn : std::uint8_t { Before, Within, After };
[[nodiscard]] OperationTurn turnOf(const Job& job, const JobOperation& operation, std::size_t rank);

/// The group of workers that a worker does operations of this kind with, as a number below the number of workers.
[[nodiscard]] std::size_t groupOf(const JobShape& shape, const Job& job, OperationGroup group, JobRank worker);

/// The last number in the name of a step, beside that of a pass: 12 of `iteration 12`, 3 of `step 3, pass 2`; nothing where it has none.
[[nodiscard]] std::optional<std::int64_t> stepNumberIn(std::string_view step);
/// Whether the name of a step says that it warms up.
[[nodiscard]] bool warmsUp(std::string_view step);
/// The steps that stand for the job, by index: all but those that warm up, or all where there are no others. Means and
/// medians are of these.
[[nodiscard]] std::vector<std::size_t> usualSteps(const Job& job);
/// The note of a job with so many steps that warm up; `withSteps` takes it out where none of them is left.
[[nodiscard]] std::string warmUpNote(std::size_t count);
/// How the note on a slow first step begins; `withSteps` takes it out where another step is the first. Of a job with steps.
[[nodiscard]] std::string slowStartWords(const Job& job);

/// The steps whose names hold a number from `first` to `last`: of `step 5` or `iteration 12`. Throws UsageError where none does.
[[nodiscard]] Job withSteps(Job job, std::int64_t first, std::int64_t last);

/// `1f1b, 4 ranks, 4 stages, 8 microbatches, 2 replicas`, for people.
[[nodiscard]] std::string shapeText(const Job& job);
/// `3 measured steps`: those that stand for the job.
[[nodiscard]] std::string stepsText(const Job& job);

}  // namespace pw
