#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/inputs/schedule_source.h"
#include "schedules/csv.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/job/job_costs.h"
#include "simulator/order/problem/problem.h"
#include "simulator/plan/optimizer.h"
#include "simulator/report/certificate.h"
#include "simulator/report/prediction_report.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {

struct Job;
struct Plan;

/// What is simulated and with which costs: the options of `pipewright simulate`. Durations and sizes are texts with units; empty: not
/// given.
struct SubjectOptions {
  std::string plan, schedule, csv;  ///< one of plan (a file), schedule (a name, with `shape`) and csv (a file)
  std::optional<Letters> letters;   ///< of the CSV; nothing: torch's
  ShapeOptions shape;
  std::string forward, backward, input, weight, overlap;  ///< one duration, or one per stage: `1ms,2ms`
  std::string latency, transfer, load, store;             ///< one duration
  std::string costs;                                      ///< a problem file, instead of these times
  std::string layers;                                     ///< a layer table, instead of these times; with it also:
  std::vector<std::string> splits;                        ///< layers that begin stages; empty: balanced by time
  std::string costsFrom, costsFromSteps;                  ///< a job or its trace, instead of these times; and which of its steps: `5-8`
  std::shared_ptr<const Job> job = {};                    ///< a job at hand, instead of that file; `costsFrom` names it
  std::string cluster;                                    ///< whose links are counted; empty: none
  std::optional<OptimizerSpec::Kind> optimizer;           ///< whose state is counted; nothing: none
  std::string memoryLimit;                                ///< a size, of each rank
  std::vector<int> liveLimit;                             ///< one, or one per rank
  std::vector<std::string> slow;                          ///< `2=1.5`: a rank; `1-2=3`: a link
  std::optional<double> seconds;                          ///< how long an order is searched, for schedules made for costs; nothing: 2
  std::function<bool(double share)> shouldContinue{};     ///< then: as of `OrderEffort`
};

/// What is simulated: a plan's own schedule and costs, or a schedule with costs from the call, a problem file or a layer
/// table.
struct Subject {
  Schedule schedule;
  CostTable costs;
  std::vector<ActionTime> actionTimes;         ///< of single actions, where known: they stand before the costs
  bool halvedBackwards = false;                ///< its parts of backwards are halves of whole ones, as the job did no others
  std::string costSource;                      ///< a line for people
  std::vector<std::string> notes;              ///< of the job that the costs are from: what its traces lack
  std::vector<Bytes> limits;                   ///< memory of each rank; empty: none
  bool limitsInBytes = true;                   ///< else in the unit of a problem file
  std::vector<int> liveLimits;                 ///< live (stage, microbatch) pairs of each rank; empty: none
  std::vector<Bytes> processBytes;             ///< of a plan
  std::optional<Uncertainty> uncertainty;      ///< of a plan (`Profile::uncertainty`) or a job (`uncertaintyOf`)
  double usefulTime = 0;                       ///< of a plan that trains: the step [ns] at the ranks' peak FLOP/s; 0 where unknown
  StepWork work;                               ///< of a plan or layer table, as far as it is known
  std::optional<Certificate> certificate;      ///< of the schedule `auto`, where it fits
  std::shared_ptr<const OrderProblem> sought;  ///< what its order was searched for
};

/// Whether any of the times, `forward` to `store`, is given.
[[nodiscard]] bool hasTimes(const SubjectOptions& options);

/// The subject of these options; reads their files. The schedule `auto` is an order made for their costs and limits (`findOrder`): on the
/// placement of the problem file, else on a loop or, with two chunks, the faster of loop and V; one microbatch after the other where not
/// even that fits. Throws UsageError if they name no subject, two subjects, contradict each other, or have no effect on this schedule.
[[nodiscard]] Subject subjectOf(const SubjectOptions& options);

/// The subject of a schedule at hand and the times of the options; their plan, schedule and CSV are not looked at.
[[nodiscard]] Subject subjectOf(Schedule schedule, const SubjectOptions& options);
/// The subject of a plan at hand, and the options' limits and slow ranks. Throws UsageError where the options have times.
[[nodiscard]] Subject subjectOf(const Plan& plan, const SubjectOptions& options);

}  // namespace pw
