#pragma once

#include <optional>

#include "schedules/answer.h"
#include "simulator/costs/attention.h"
#include "simulator/costs/profile.h"
#include "simulator/model/loss.h"

namespace pw {

/// Estimates costs from FLOPs and bytes, for hardware that is not available: per node max(flops / (peak · efficiency), bytes moved / memory
/// bandwidth) + launch overhead; views are free. The backward of a node that needs gradients costs its forward, twice where that does
/// matrix work: one product for each gradient. Of an operator whose parameters' gradients the engine leaves for W (`weightPartOf`) W is
/// half of the backward, or all where nothing else needs a gradient. What operators keep for their backward is saved (`keptValues`);
/// gradients are as large as their values. Data-dependent sizes take their expected value (`bindExpected`); `notCounted` (operator_costs.h)
/// lists what is left out. `estimated` is set. A cross-entropy or squared error over an output costs what it reads and writes, in the
/// output's type as traced; the first keeps its logarithms in place of the output. `loss`: nothing is `defaultLoss`. Roofline model
/// (Williams, CACM 2009). Throws UsageError when the model cannot run with this microbatch. With a precision (BFloat16, Float16), matrix
/// products and similar operators run at its peak, and values that autocast casts are half as wide; parameters, their gradients and what
/// stages send stay as traced. With Float8 products with parameters run at the peak of fp8 and read 8 bits of each number, all else as in
/// BFloat16. `peakFlops` is that of the type with the most FLOPs. Throws UsageError when the cluster has no peak of it. Of a layer table:
/// its own costs, with the link and the optimizer's speed of the cluster.
[[nodiscard]] Profile estimate(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, DType precision = DType::Unknown,
                               Attention attention = Attention::AsTraced, const std::optional<Loss>& loss = std::nullopt);

/// Why a cluster has no costs in a precision: no peak of it. Nothing where it has; `estimate` throws the same.
[[nodiscard]] std::optional<Impossible> obstacleToPrecision(const Cluster& cluster, DType precision);

}  // namespace pw
