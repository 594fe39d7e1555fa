#pragma once

// Internal to the profiler: what it measures of a model, and the profile that follows.

#include <cstddef>
#include <vector>

#include "simulator/costs/profile.h"

namespace pw {

[[nodiscard]] Ns median(std::vector<Ns> values);  ///< 0 of none

/// What is measured of each node, and of the loss in the last place.
struct ModelSamples {
  explicit ModelSamples(std::size_t slots);

  std::vector<std::vector<Ns>> forward, backward, weight;  ///< of each node
  std::vector<Bytes> saved, forwardPeak, backwardPeak, inputPeak, change, inputChange, held, weightPeak;
  std::vector<Ns> overhead, forwardTotals, backwardTotals;  ///< of the whole model

  /// Of one sample with separate weight gradients: time of each node before them and in them.
  void addBackward(const std::vector<Ns>& spent, const std::vector<Ns>& inWeights);
  /// Of a whole backward: its peaks, and what each node left in memory.
  void setFullBackward(const std::vector<Bytes>& peaks, const std::vector<Bytes>& left);
  /// Nodes, loss and overhead of the profile: medians, scaled so that they add up to the times of the whole model.
  void fill(Profile& profile) const;
};

}  // namespace pw
