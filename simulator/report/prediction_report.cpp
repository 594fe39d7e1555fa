#include "simulator/report/prediction_report.h"

namespace pw {

PredictionReport predict(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, const Trace& trace,
                         bool everyCause) {
  PredictionReport prediction;
  prediction.metrics = metricsOf(trace);
  prediction.lowerBound = lowerBounds(rows, costs, {});
  prediction.steadyPeriod = steadyPeriod(trace);
  prediction.phases = phasesOf(trace);
  prediction.explanation = explain(rows, costs, program, times, everyCause);
  prediction.everyCause = everyCause;
  return prediction;
}

}  // namespace pw
