#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/named_values.h"

namespace pw {

/// Parameters that are updated with numbers of their own: one of torch.optim's `param_groups`.
struct OptimizerGroup {
  double learningRate = 0.01;
  double weightDecay = 0;
  std::vector<std::string> parameters;  ///< names

  bool operator==(const OptimizerGroup&) const = default;
};

/// How parameters are updated. Defaults are torch.optim's, but for the learning rate, which is SGD's old one for all.
struct OptimizerSpec {
  enum class Kind : std::uint8_t { Sgd, Adam, AdamW, RmsProp } kind = Kind::Sgd;
  double learningRate = 0.01;
  double momentum = 0;                                ///< SGD, RMSprop
  bool nesterov = false;                              ///< SGD; needs a momentum
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< Adam, AdamW; epsilon also RMSprop
  double alpha = 0.99;                                ///< RMSprop: how much of the mean of squares stays
  double weightDecay = 0;                             ///< AdamW shrinks the parameter, the others add it to the gradient
  int warmupSteps = 0;                                ///< the rate rises linearly: step s has (s + 1) / warmup of it
  int decaySteps = 0;                                 ///< from the end of warm-up a half cosine falls to `finalRate` at this step; 0: stays
  double finalRate = 0;                               ///< fraction of the learning rate at the end
  /// If any, each parameter is in one of these, whose two numbers count in place of those above.
  std::vector<OptimizerGroup> groups;

  bool operator==(const OptimizerSpec&) const = default;
};

/// What is fixed for each kind.
struct OptimizerFacts {
  OptimizerSpec::Kind kind{};
  std::string_view name;       ///< on the command line and in files: `adamw`
  std::string_view className;  ///< in torch.optim
  std::string_view megatron;   ///< for Megatron's `--optimizer`; empty: it has none
  bool hasMomentum = false, hasBetas = false, hasAlpha = false;
  bool countsSteps = false;  ///< whether torch.optim keeps a count of steps for each parameter
  /// torch.optim's names of what is kept for each parameter besides `momentum_buffer`; empty at the end.
  std::array<std::string_view, 2> state{};
  /// The numbers in checkpoints that say whose state they hold, without momentum and with it. Never used again for another.
  int stateNumber = -1, stateNumberWithMomentum = -1;
};

constexpr OptimizerFacts factsOf(OptimizerSpec::Kind kind) {
  switch (kind) {
    case OptimizerSpec::Kind::Sgd: return {kind, "sgd", "SGD", "sgd", true, false, false, false, {}, 0, 1};
    case OptimizerSpec::Kind::Adam: return {kind, "adam", "Adam", "adam", false, true, false, true, {"exp_avg", "exp_avg_sq"}, 2};
    case OptimizerSpec::Kind::AdamW: return {kind, "adamw", "AdamW", "adam", false, true, false, true, {"exp_avg", "exp_avg_sq"}, 3};
    case OptimizerSpec::Kind::RmsProp: return {kind, "rmsprop", "RMSprop", "", true, false, true, true, {"square_avg"}, 4, 5};
  }
  return {};
}
constexpr std::string_view nameOf(OptimizerSpec::Kind kind) { return factsOf(kind).name; }

/// In the order in which they are offered.
inline constexpr auto kOptimizers = [] {
  std::array<OptimizerFacts, countOf<OptimizerSpec::Kind>()> all{};
  for (const OptimizerSpec::Kind kind : valuesOf<OptimizerSpec::Kind>()) all[static_cast<std::size_t>(kind)] = factsOf(kind);
  return all;
}();

/// `sgd`, `adamw`, …; throws UsageError with the known names for others.
[[nodiscard]] OptimizerSpec::Kind parseOptimizer(std::string_view name);
/// All names: `sgd|adam`, with that separator.
[[nodiscard]] std::string optimizerNames(std::string_view separator);

/// Throws UsageError where a member is set that the kind does not have (momentum of Adam), or Nesterov's momentum without any.
void requireConsistent(const OptimizerSpec& spec);

/// The group that a parameter is in; 0 where none has it.
[[nodiscard]] std::size_t groupOf(const OptimizerSpec& spec, const std::string& parameter);
/// How the parameters of a group are updated; without groups the spec itself.
[[nodiscard]] OptimizerSpec ofGroup(const OptimizerSpec& spec, std::size_t group);

/// The optimizer that a plan or search accounts for. Throws UsageError for an unknown name and a momentum that it does not have.
[[nodiscard]] OptimizerSpec plannedOptimizer(const std::string& name, double momentum);

/// torch.optim's names of what is kept for each parameter, each as large as the parameter: `exp_avg`, …; empty for plain SGD.
[[nodiscard]] std::vector<std::string> stateNames(const OptimizerSpec& spec);
/// Bytes of state for each byte of parameters: as many as there are state names.
[[nodiscard]] int stateCopies(const OptimizerSpec& spec);

/// Learning rate η(s) of a step s (from 0), with w warm-up and d decay steps, final fraction f and full rate η:
/// η · (s + 1) / w while s < w; then η without decay, else η · (f + (1 − f) · (1 + cos(π · t)) / 2), t = (s − w) / (d − w) up to 1
/// (Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, one period). A decay that ends within the warm-up leaves η · f after it.
[[nodiscard]] double learningRateAt(const OptimizerSpec& spec, int step);

/// The options of `pipewright run` that give this optimizer: `--optimizer rmsprop --momentum 0.9`; only what differs from the defaults.
[[nodiscard]] std::vector<std::string> optimizerArguments(const OptimizerSpec& spec);

}  // namespace pw
