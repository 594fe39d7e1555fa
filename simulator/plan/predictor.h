#pragma once

#include <memory>
#include <vector>

#include "simulator/job/job_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/timeline/fill.h"
#include "simulator/timeline/timeline.h"

namespace pw {

/// The prediction of one plan, with the compiled program it comes from, so that bubbles can be explained and a trace made on demand.
struct Prediction {
  std::shared_ptr<const Schedule> rows;  ///< as the plan has them
  Priced priced;                         ///< of a model; else only `costs` is set
  CostTable costs;                       ///< including optimizer state: what was simulated
  std::vector<ActionTime> actionTimes;   ///< of single actions, where known: they stand before the costs
  Program program;
  Times times;
  Timeline timeline;
  // Figures, as in `Metrics` (exposed communication is not counted here).
  Ns makespan = 0, window = 0, step = 0;
  double bubbleFraction = 0, bubbleFractionWindow = 0;
  std::vector<RankMetrics> ranks;
};

[[nodiscard]] inline Trace traceOf(const Prediction& p) { return traceOf(*p.rows, p.costs, p.program, p.times); }

/// Predicts many plans of one model in a row, as when a user drags a split: a program is compiled again only if its structure changed
/// (`recost`), and the memory of a prediction that is no longer held is reused. Not thread-safe: one thread at a time.
class Predictor {
 public:
  /// `rows`: of `planRows`, with as many stages as `request.begins` makes; the same pointer means the same rows. Throws as `price` and
  /// `compile`.
  [[nodiscard]] std::shared_ptr<const Prediction> predict(const PlanRequest& request, const ModelGraph& graph, const Profile& profile,
                                                          const std::shared_ptr<const Schedule>& rows);
  /// The same with times that are known otherwise, of a job, in place of the model's.
  [[nodiscard]] std::shared_ptr<const Prediction> predict(const PlanRequest& request, const ModelGraph& graph, const Profile& profile,
                                                          const std::shared_ptr<const Schedule>& rows, const JobStepTimes& times);
  /// Of rows and costs without a model.
  [[nodiscard]] std::shared_ptr<const Prediction> predict(const std::shared_ptr<const Schedule>& rows, const CostTable& costs);

 private:
  std::shared_ptr<Prediction> spare(const std::shared_ptr<const Schedule>& rows);
  std::shared_ptr<const Prediction> simulate(std::shared_ptr<Prediction> p, const std::shared_ptr<const Schedule>& rows);
  static constexpr std::size_t kKept = 4;          ///< one shown, one being computed, one being explained, one to fill
  std::vector<std::shared_ptr<Prediction>> kept_;  ///< newest first
};

}  // namespace pw
