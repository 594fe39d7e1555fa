#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/plan/plan.h"
#include "simulator/report/compare.h"

namespace pw {

/// Where a model is cut into stages.
struct ModelCut {
  std::string model;                        ///< its name; empty: not known
  std::vector<std::vector<NodeId>> begins;  ///< where the stages after the first begin, of each replica; one: of all alike

  bool operator==(const ModelCut&) const = default;
};

/// Nothing where there are no stages, as without a model.
[[nodiscard]] std::optional<ModelCut> cutOf(const Partition& partition, const std::optional<ReplicaCuts>& cuts);
[[nodiscard]] std::optional<ModelCut> cutOf(const Plan& plan);

/// Whether stages of one number do the same work in steps with these cuts; two models have other stages. What is not known, as of traces of
/// other tools, counts as the same.
[[nodiscard]] Splits splitsOf(const std::optional<ModelCut>& a, const std::optional<ModelCut>& b);

}  // namespace pw
