#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulator/job/job.h"

namespace pw {

/// What a slowdown is attributed to.
struct Culprit {
  std::string name;             ///< of a kind: `F`, `SEND_F`, `optimizer`; else empty
  int number = -1;              ///< of a stage, rank, replica or worker
  double slowdown = 1;          ///< the job's if only this were as measured and all else ideal
  std::vector<double> bySteps;  ///< the same of each step alone

  bool operator==(const Culprit&) const = default;
};

/// How much stragglers slow a job down, by replay: steps with their own durations, against one in which every operation of a kind takes the
/// same time. The definitions are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (2025), equations 1,
/// 2 and 4: the ideal time of a kind is its mean over all stages, workers and steps, of messages and collectives its median, for they are
/// sometimes far too long; waits of the host count in neither. Times are means over the usual steps. Of a worker it is the smaller one of
/// its pipeline rank (on all replicas) and its replica (all its workers), since all of them for each worker would cost too much and say as
/// much.
struct Slowdowns {
  Ns measured = 0;      ///< the step as measured, mean over the usual steps
  Ns replayed = 0;      ///< with its own durations and without waits, mean over the usual steps
  Ns ideal = 0;         ///< with ideal durations
  double slowdown = 1;  ///< replayed / ideal
  double waits = 1;     ///< measured / replayed: what hosts take before operations, and what is not in the model
  std::vector<Ns> replayedSteps;
  std::vector<Culprit> byKind, byStage, byRank, byReplica, byWorker;  ///< kinds: largest slowdown first; others by number

  bool operator==(const Slowdowns&) const = default;
};

/// Cost: (kinds + stages + ranks + replicas) replays of all steps.
[[nodiscard]] Slowdowns slowdownsOf(const JobShape& shape, const Job& job);
/// The same; nothing where `shouldContinue`, which is called before each replay of a step, returned false.
[[nodiscard]] std::optional<Slowdowns> slowdownsOf(const JobShape& shape, const Job& job, const std::function<bool()>& shouldContinue);

}  // namespace pw
