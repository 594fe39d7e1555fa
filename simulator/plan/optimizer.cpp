#include "simulator/plan/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "schedules/error.h"

namespace pw {

OptimizerSpec::Kind parseOptimizer(std::string_view name) {
  const auto kind = valueNamed<OptimizerSpec::Kind>(name);
  if (!kind) throw UsageError(fmt::format("Unknown optimizer {}; the known ones are {}.", name, optimizerNames(", ")));
  return *kind;
}

std::string optimizerNames(std::string_view separator) { return namesOf<OptimizerSpec::Kind>(separator); }

void requireConsistent(const OptimizerSpec& spec) {
  const OptimizerFacts facts = factsOf(spec.kind);
  const OptimizerSpec none;
  const auto require = [&](const char* option, bool isSet, auto has) {
    if (!isSet || has(facts)) return;
    std::string others;
    for (const OptimizerFacts& other : kOptimizers) {
      if (has(other)) others.append(others.empty() ? "" : ", ").append(other.name);
    }
    throw UsageError(
        fmt::format("{} does not apply to {}, only to {}; leave it out, or choose another --optimizer.", option, facts.name, others));
  };
  require("--momentum", spec.momentum != 0, [](const OptimizerFacts& f) { return f.hasMomentum; });
  require("--nesterov", spec.nesterov, [](const OptimizerFacts& f) { return f.kind == OptimizerSpec::Kind::Sgd; });
  require("--betas", spec.beta1 != none.beta1 || spec.beta2 != none.beta2, [](const OptimizerFacts& f) { return f.hasBetas; });
  require("--alpha", spec.alpha != none.alpha, [](const OptimizerFacts& f) { return f.hasAlpha; });
  if (spec.nesterov && spec.momentum <= 0) throw UsageError("--nesterov needs --momentum.");
}

std::size_t groupOf(const OptimizerSpec& spec, const std::string& parameter) {
  const auto has = [&](const OptimizerGroup& group) { return std::ranges::find(group.parameters, parameter) != group.parameters.end(); };
  const auto found = std::ranges::find_if(spec.groups, has);
  return found == spec.groups.end() ? 0 : static_cast<std::size_t>(found - spec.groups.begin());
}

OptimizerSpec ofGroup(const OptimizerSpec& spec, std::size_t group) {
  OptimizerSpec own = spec;
  own.groups.clear();
  if (spec.groups.empty()) return own;
  own.learningRate = spec.groups.at(group).learningRate;
  own.weightDecay = spec.groups.at(group).weightDecay;
  return own;
}

OptimizerSpec plannedOptimizer(const std::string& name, double momentum) {
  OptimizerSpec optimizer;
  optimizer.kind = parseOptimizer(name);
  optimizer.momentum = momentum;
  requireConsistent(optimizer);
  return optimizer;
}

std::vector<std::string> stateNames(const OptimizerSpec& spec) {
  std::vector<std::string> names;
  for (const std::string_view name : factsOf(spec.kind).state) {
    if (!name.empty()) names.emplace_back(name);
  }
  if (spec.momentum != 0) names.emplace_back("momentum_buffer");
  return names;
}

int stateCopies(const OptimizerSpec& spec) { return static_cast<int>(stateNames(spec).size()); }

double learningRateAt(const OptimizerSpec& spec, int step) {
  if (step < spec.warmupSteps) return spec.learningRate * (step + 1) / spec.warmupSteps;
  if (spec.decaySteps <= 0) return spec.learningRate;
  const int length = spec.decaySteps - spec.warmupSteps;
  const double passed = length > 0 ? std::min(1.0, static_cast<double>(step - spec.warmupSteps) / length) : 1.0;
  return spec.learningRate * (spec.finalRate + (1 - spec.finalRate) * (1 + std::cos(std::numbers::pi * passed)) / 2);
}

std::vector<std::string> optimizerArguments(const OptimizerSpec& spec) {
  const OptimizerSpec none;
  std::vector<std::string> words;
  if (spec.kind != none.kind) words.insert(words.end(), {"--optimizer", std::string(factsOf(spec.kind).name)});
  if (spec.momentum != none.momentum) words.insert(words.end(), {"--momentum", fmt::format("{}", spec.momentum)});
  if (spec.nesterov) words.emplace_back("--nesterov");
  if (spec.beta1 != none.beta1 || spec.beta2 != none.beta2)
    words.insert(words.end(), {"--betas", fmt::format("{},{}", spec.beta1, spec.beta2)});
  if (spec.alpha != none.alpha) words.insert(words.end(), {"--alpha", fmt::format("{}", spec.alpha)});
  return words;
}

}  // namespace pw
