#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/job_rank.h"
#include "simulator/job/explain_job.h"

namespace pw {

/// A place in a job's steps, for a look at it.
struct StepPlace {
  std::optional<std::size_t> step;  ///< of the job; nothing: its usual one, or any
  std::optional<JobRank> worker;
  std::optional<Action> action;  ///< of the worker; where an operation is meant, the action beside it
  bool idle = false;             ///< the worker's idle time before the action is meant; without an action that after its last one

  bool operator==(const StepPlace&) const = default;
};

/// What a table of an explanation is about.
enum class ExplainTopic : std::uint8_t { Path, Bubble, Kinds, Stages, Ranks, Replicas, Workers, WorstSteps, Stalls };

struct ExplainedRow {
  std::vector<std::string> cells;  ///< as people read them
  double share = 0;                ///< how much it is, to be compared with the other rows of its table; 0: it says no size
  StepPlace place;                 ///< where it is, or where it is worst

  bool operator==(const ExplainedRow&) const = default;
};

struct ExplainedColumn {
  std::string title;
  bool isNumber = false;  ///< a time, a share or a slowdown

  bool operator==(const ExplainedColumn&) const = default;
};

struct ExplainedTable {
  ExplainTopic topic = ExplainTopic::Path;
  std::vector<ExplainedColumn> columns;  ///< of the cells
  std::vector<ExplainedRow> rows;        ///< the largest first

  bool operator==(const ExplainedTable&) const = default;
};

/// The explanation as tables, in the order of the topics, without those that say nothing: stages of a single one, replicas of a single
/// one, ranks that are the stages; that of the bubble may be empty. A row of the path is where its longest part is; a row of a bubble its
/// longest idle time; a straggler is where it takes longest beyond what is usual there (steps that warm up do not count; ties: the longest,
/// then the first). Cost: linear in the times of all steps.
[[nodiscard]] std::vector<ExplainedTable> explainedTables(const JobShape& shape, const Job& job, const JobExplanation& explanation);

/// `step 2.31 s on average = 2.10 s if all operations of a kind took equally long + …`, without a stop.
[[nodiscard]] std::string stepText(const JobExplanation& explanation);
/// How well replays meet the measured steps, a sentence.
[[nodiscard]] std::string replayText(const JobExplanation& explanation);

}  // namespace pw
