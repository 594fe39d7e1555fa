#include "simulator/report/prediction_report.h"

namespace pw {

PredictionReport predict(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, const Trace& trace,
                         bool everyCause) {
  PredictionReport prediction;
  prediction.metrics = metricsOf(trace);
  for (std::size_t r = 0; r < prediction.metrics.ranks.size(); ++r)  // by the order of the row, also within an instant
    prediction.metrics.ranks[r].peakLiveMicrobatches = program.peakLive[r];
  prediction.lowerBound = lowerBounds(rows, costs, {});
  prediction.steadyPeriod = steadyPeriod(trace);
  prediction.phases = phasesOf(trace);
  prediction.explanation = explain(rows, costs, program, times, everyCause);
  prediction.everyCause = everyCause;
  return prediction;
}

}  // namespace pw
