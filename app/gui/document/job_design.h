#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/loading.h"
#include "simulator/job/job_costs.h"
#include "simulator/order/made.h"

namespace pw::gui {

/// Reads the job of these files or this run, with the progress of `loadFiles`. Null where that stopped it. Throws as `loadJob`.
[[nodiscard]] std::shared_ptr<const JobBasis> readJob(const JobOptions& from,
                                                      const std::function<bool(std::int64_t, std::int64_t)>& progress);

/// A document of the job as it ran: with its ranks, stages, microbatches and schedule, whose costs are its usual times. Its usual step is
/// what was measured. Throws UsageError for a job of too many stages.
[[nodiscard]] std::shared_ptr<Loaded> planOfJob(const std::shared_ptr<const JobBasis>& basis);
/// Makes a design that of the job as it ran.
void setAsItRan(const JobBasis& basis, Design& design);

/// Where so many stages begin in a job's layers, of which each stage has as many as another. Throws UsageError where there are fewer
/// layers.
[[nodiscard]] std::vector<NodeId> evenBegins(const pw::Job& job, int stages);

/// How far off the prediction of a plan with a job's times may be: whether it is of what the job ran, or of something else. Nothing: not
/// known.
[[nodiscard]] std::optional<Uncertainty> uncertaintyOf(const JobBasis& basis, const Prediction& prediction);

/// A step of a job, put together from its times; without `step` the usual one. Of the copy of the pipeline that has this worker.
[[nodiscard]] std::shared_ptr<const Measured> replayedStep(const JobBasis& basis, std::optional<std::size_t> step, JobRank worker);

/// What a job's times make of schedules: as `simulate --costs-from` has them where stages are even, else of the job's work at the splits:
/// then each action takes as much longer or shorter as its stage's costs, where the schedule does the job's microbatches on its ranks.
/// What was asked last is kept, as a job may be large.
class JobTimes {
 public:
  [[nodiscard]] const JobStepTimes& of(const std::shared_ptr<const JobBasis>& basis, const PlanRequest& request,
                                       const std::shared_ptr<const Schedule>& rows);

  /// An order made for these times at the request's splits (`seekOrder`), for its schedule of `kMadeSchedules`: what `simulate
  /// --costs-from` makes. Where none fits: one microbatch after the other, without a certificate.
  struct Order {
    Schedule rows;
    std::optional<Certificate> certificate;
  };
  [[nodiscard]] Order order(const std::shared_ptr<const JobBasis>& basis, const PlanRequest& request, int stages,
                            const OrderEffort& effort);

 private:
  std::shared_ptr<const JobBasis> basis_;  ///< held, so that no other has its address
  JobStepTimes own_;                       ///< of the job's own schedule
  std::shared_ptr<const Schedule> rows_;
  std::vector<NodeId> begins_;
  JobStepTimes times_;
};

}  // namespace pw::gui
