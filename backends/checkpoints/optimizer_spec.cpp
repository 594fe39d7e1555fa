#include "backends/checkpoints/optimizer_spec.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numbers>

#include "schedules/error.h"

namespace pw {

OptimizerSpec::Kind parseOptimizer(const std::string& name) {
  if (name == "sgd") return OptimizerSpec::Kind::Sgd;
  if (name == "adam") return OptimizerSpec::Kind::Adam;
  if (name == "adamw") return OptimizerSpec::Kind::AdamW;
  throw UsageError(fmt::format("Unknown optimizer {}; use sgd, adam or adamw.", name));
}

double learningRateAt(const OptimizerSpec& spec, int step) {
  if (step < spec.warmupSteps) return spec.learningRate * (step + 1) / spec.warmupSteps;
  if (spec.decaySteps <= 0) return spec.learningRate;
  const int length = spec.decaySteps - spec.warmupSteps;
  const double passed = length > 0 ? std::min(1.0, static_cast<double>(step - spec.warmupSteps) / length) : 1.0;
  return spec.learningRate * (spec.finalRate + (1 - spec.finalRate) * (1 + std::cos(std::numbers::pi * passed)) / 2);
}

int stateCopies(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerSpec::Kind::Sgd: return spec.momentum != 0 ? 1 : 0;
    case OptimizerSpec::Kind::Adam:
    case OptimizerSpec::Kind::AdamW: break;
  }
  return 2;
}

}  // namespace pw
