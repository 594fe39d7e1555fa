#pragma once

#include <string>
#include <string_view>

#include "simulator/costs/layer_table.h"

namespace pw {

/// Whether a text has a report of Megatron-LM's timers.
[[nodiscard]] bool isMegatronLog(std::string_view text);

/// Reads the output of a Megatron-LM training with `--timing-log-level 2` (megatron/core/timers.py): its list of arguments, and the reports
/// of its timers, `times across ranks (ms)` of `--timing-log-option all`, or `(min, max) time across ranks (ms)`. `forward-compute` and
/// `backward-compute` are sums over the microbatches of a step; of each rank the median over the reports but the first counts. A stage's
/// time is shared by its layers; what the first and the last stage take more than those between them (of three stages and more) is a layer
/// `embedding` before, and `output` after the transformer's. Outputs are sequence length × microbatch × hidden size in 2 bytes (4 where
/// parameters are fp32), over the tensor-parallel ranks with sequence parallelism; parameters and activations are not in the log and 0.
/// Ranks are numbered as Megatron does: pipeline parallelism outermost, or inside data parallelism (`use_tp_pp_dp_mapping`); virtual stages
/// take turns; with `account_for_embedding_in_pipeline_split` and `account_for_loss_in_pipeline_split` the ends have a layer less. A range
/// of times is taken where all ranks are alike (within a quarter). Halves of the backward are its parts. Throws UsageError naming the
/// argument or line for a log without these. Cost: linear.
[[nodiscard]] LayerTable parseMegatronLog(std::string_view text, const std::string& source);

/// A table of layers of whichever of the two it is: a graph of PipeDream's profiler, or a log of Megatron-LM.
[[nodiscard]] LayerTable parseMeasuredLayers(std::string_view text, const std::string& source);

}  // namespace pw
