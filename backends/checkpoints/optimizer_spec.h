#pragma once

#include <cstdint>
#include <string>

namespace pw {

/// How parameters are updated. Defaults are torch.optim's.
struct OptimizerSpec {
  enum class Kind : std::uint8_t { Sgd, Adam, AdamW } kind = Kind::Sgd;
  double learningRate = 0.01;
  double momentum = 0;                                ///< SGD
  bool nesterov = false;                              ///< SGD; needs a momentum
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< Adam, AdamW
  double weightDecay = 0;                             ///< SGD and Adam add it to the gradient, AdamW shrinks the parameter
  int warmupSteps = 0;                                ///< the rate rises linearly: step s has (s + 1) / warmup of it
  int decaySteps = 0;                                 ///< from the end of warm-up a half cosine falls to `finalRate` at this step; 0: stays
  double finalRate = 0;                               ///< fraction of the learning rate at the end

  bool operator==(const OptimizerSpec&) const = default;
};

/// `sgd`, `adam`, `adamw`; throws UsageError for others.
[[nodiscard]] OptimizerSpec::Kind parseOptimizer(const std::string& name);

/// Learning rate η(s) of a step s (from 0), with w warm-up and d decay steps, final fraction f and full rate η:
/// η · (s + 1) / w while s < w; then η without decay, else η · (f + (1 − f) · (1 + cos(π · t)) / 2), t = (s − w) / (d − w) up to 1
/// (Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, one period). A decay that ends within the warm-up leaves η · f after it.
[[nodiscard]] double learningRateAt(const OptimizerSpec& spec, int step);

/// Bytes of state for each byte of parameters: 0, 1 (momentum) or 2.
[[nodiscard]] int stateCopies(const OptimizerSpec& spec);

}  // namespace pw
