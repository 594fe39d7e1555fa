#include "backends/torch/model_samples.h"

#include <algorithm>

namespace pw {
namespace {

Ns halfQuartileRange(std::vector<Ns> values) {
  if (values.size() < 4) return 0;
  std::sort(values.begin(), values.end());
  return (values[values.size() * 3 / 4] - values[values.size() / 4]) / 2;
}

}  // namespace

Ns median(std::vector<Ns> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ModelSamples::ModelSamples(std::size_t slots)
    : forward(slots),
      backward(slots),
      weight(slots),
      saved(slots),
      forwardPeak(slots),
      backwardPeak(slots),
      inputPeak(slots),
      change(slots),
      inputChange(slots),
      held(slots),
      weightPeak(slots) {}

void ModelSamples::addBackward(const std::vector<Ns>& spent, const std::vector<Ns>& inWeights) {
  for (std::size_t n = 0; n < spent.size(); ++n) {
    backward[n].push_back(spent[n] + inWeights[n]);
    weight[n].push_back(inWeights[n]);
  }
}

void ModelSamples::setFullBackward(const std::vector<Bytes>& peaks, const std::vector<Bytes>& left) {
  backwardPeak = peaks;
  change = left;
}

void ModelSamples::fill(Profile& profile) const {
  const auto total = [](const std::vector<std::vector<Ns>>& samples) {
    Ns sum = 0;
    for (const auto& values : samples) sum += median(values);
    return std::max<Ns>(sum, 1);
  };
  profile.actionOverhead = median(overhead);
  const double forwardScale = static_cast<double>(median(forwardTotals) - profile.actionOverhead) / static_cast<double>(total(forward));
  const double backwardScale = static_cast<double>(median(backwardTotals)) / static_cast<double>(total(backward));
  const auto scaled = [](const std::vector<Ns>& values, double scale) {
    return static_cast<Ns>(static_cast<double>(median(values)) * scale);
  };
  for (std::size_t n = 0; n < forward.size(); ++n) {
    NodeCost cost;
    cost.forward = scaled(forward[n], forwardScale);
    cost.backward = scaled(backward[n], backwardScale);
    cost.weight = std::min(cost.backward, scaled(weight[n], backwardScale));
    cost.forwardSpread = halfQuartileRange(forward[n]);
    cost.backwardSpread = halfQuartileRange(backward[n]);
    cost.saved = saved[n];
    cost.heldForWeight = std::max<Bytes>(0, held[n]);
    cost.forwardPeak = std::max<Bytes>(0, forwardPeak[n]);
    cost.backwardPeak = std::max<Bytes>(0, backwardPeak[n]);
    cost.inputPeak = std::max<Bytes>(0, inputPeak[n]);
    cost.backwardChange = change[n];
    cost.inputChange = inputChange[n];
    cost.weightPeak = std::max<Bytes>(0, weightPeak[n]);
    profile.nodes.push_back(cost);
  }
  profile.loss = profile.nodes.back();
  profile.nodes.pop_back();
}

}  // namespace pw
