#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/attention.h"
#include "simulator/costs/cluster.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Times and bytes of one node for one microbatch.
struct NodeCost {
  Ns forward = 0;
  Ns backward = 0;       ///< input and weight gradients together
  Ns forwardSpread = 0;  ///< half the interquartile range of the samples
  Ns backwardSpread = 0;
  Bytes saved = 0;   ///< tensor bytes that its forward adds to what is kept until its backward
  double flops = 0;  ///< forward, 2 per multiply-add; 0 where the operator does no matrix work
  Ns weight = 0;     ///< the part of `backward` that W can do later; 0 if the operator has none
  // Memory. Older profiles have only `saved`; the other fields are 0 there.
  Bytes heldForWeight = 0;   ///< kept from its I until its W, which frees it
  Bytes forwardPeak = 0;     ///< most during its forward, above what was alive when it started
  Bytes backwardPeak = 0;    ///< the same of its backward
  Bytes backwardChange = 0;  ///< alive after its backward less before: gradient of its input, less that of its output and what it frees
  Bytes weightPeak = 0;      ///< most during its W, above what was alive when it started
  Bytes inputPeak = 0;       ///< most during its I, what it keeps for W included; older profiles: `backwardPeak`
  Bytes inputChange = 0;     ///< alive after its I less before; older profiles: `backwardChange` and `heldForWeight`, where what several
                             ///< W's keep may be counted before the whole backward would have freed it
  Ns optimizer = 0;          ///< of a layer table only: step of the optimizer beside `optimizerNsPerByte`

  bool operator==(const NodeCost&) const = default;
};

/// Where a profile was taken.
struct Machine {
  std::string host;
  std::string processor;
  int cores = 0;
  std::string device = "cpu";

  bool operator==(const Machine&) const = default;
};

/// How ranks compute: the settings that their times depend on.
struct Computing {
  bool onGpu = false;
  DType precision = DType::Unknown;  ///< the type that autocast casts matrix products and similar operators to: BFloat16, Float16; Float8
                                     ///< (estimates only): linear layers in 8 bits, the others in BFloat16; Unknown: all as traced
  bool tf32 = false;                 ///< a GPU's float32 matrix products may round their inputs to 19 bits
  bool graphs = false;               ///< a GPU replays recorded actions (CUDA graphs) where they can be recorded

  bool operator==(const Computing&) const = default;
};

/// `traced`, `bf16`, `fp16` or `fp8`.
[[nodiscard]] std::string_view precisionName(DType precision);
/// Nothing for other names.
[[nodiscard]] std::optional<DType> precisionNamed(std::string_view name);
/// `on GPUs in bf16`, `on CPUs as traced`, `on GPUs as traced with TF32`.
[[nodiscard]] std::string computingText(const Computing& computing);

/// What a process loaded when it first used an operator: code and tables of libraries. A rank without any of these nodes does without.
struct OperatorLoad {
  std::string name;  ///< target of the operator
  Bytes bytes = 0;
  std::vector<NodeId> nodes;  ///< that may need it, ascending; none: the loss does

  bool operator==(const OperatorLoad&) const = default;
};

/// Costs of every node of a model at one microbatch size. `estimated` marks costs computed from FLOPs and bytes.
struct Profile {
  std::string model;            ///< ModelGraph::name
  std::int64_t microbatch = 1;  ///< samples per microbatch
  int ranksAtOnce = 1;          ///< processes that computed at the same time while measuring
  int threads = 1;              ///< intra-op threads of each
  bool estimated = false;
  Machine machine;
  Computing computing;                        ///< of a measured profile, or of one scaled from it to another microbatch size
  std::vector<NodeCost> nodes;                ///< one per node of the graph
  NodeCost loss;                              ///< loss function on the last stage (0 when the model has its own)
  std::optional<double> backwardFlops;        ///< of all nodes (`backwardFlops`); nothing in older profiles: twice those of the forward
  Ns actionOverhead = 0;                      ///< of one action, in addition to its nodes; fitted from full-model runs
  Ns sendOverhead = 0;                        ///< of each message that an action sends to another rank, at its end; fitted from runs
  double optimizerNsPerByte = 0;              ///< optimizer step per parameter byte
  Attention attention = Attention::AsTraced;  ///< how an estimate counts it
  Bytes processBytes = 0;  ///< measured on a CPU: what a process holds beside its tensors at most (program, libraries, buffers); 0: unknown
  double peakFlops = 0;    ///< of the device where its matrix products are computed [1/s]; 0: unknown
  std::string cluster;     ///< of which times or topology are (`Cluster::origin`); empty: none, or unknown
  Topology topology;       ///< of the ranks: of a cluster, or a link measured between two ranks of a node
  /// Of a layer table only, by layer: the time from the end of the action that sends its output, or that output's gradient, to the arrival;
  /// −1: what the link takes. Then a stage needs exactly its layers' parameters and, for each live microbatch, what they save.
  std::vector<Ns> sent;
  std::optional<Uncertainty> uncertainty;  ///< of predictions made from it; nothing: it was not calibrated by runs
  std::vector<OperatorLoad> loads;         ///< parts of `processBytes`

  bool operator==(const Profile&) const = default;
};

[[nodiscard]] std::string toJson(const Profile& profile);
/// `source` names the text in errors. Throws UsageError for text that is not a profile, has a newer version, has numbers that are negative
/// (allowed for saved bytes and the backward's change, where memory is freed) or too large to add up, or a weight part longer than its
/// backward. Files without the later fields (weight and memory, how ranks computed) load with zeros there.
[[nodiscard]] Profile parseProfile(std::string_view json, const std::string& source);

/// Where the times come from, in words: `measured on HOST (PROCESSOR), 2 processes at once, 1 thread each`, `measured on HOST (GPU), in
/// bf16`. With several `ranks` and no measured link it also says that messages between them take no time.
[[nodiscard]] std::string sourceOf(const Profile& profile, int ranks = 1);

/// FLOPs of so many samples: of their forward, and in training of their backward, too. What is recomputed does not count.
[[nodiscard]] double modelFlops(const Profile& profile, std::int64_t samples, bool trains);

/// Model FLOPs utilisation of a training step (PaLM, Chowdhery et al. 2022, appendix B): the `modelFlops` of its `samples`, as a fraction
/// of what `ranks` do in the time at peak. 0 where peak, FLOPs or time are unknown.
[[nodiscard]] double flopUtilisation(const Profile& profile, std::int64_t samples, Ns step, int ranks);

/// Prefix sums over the nodes: the cost of any range is one subtraction.
class CostSums {
 public:
  explicit CostSums(const Profile& profile);
  /// Summed cost of nodes [begin, end), both in 0..nodes; spreads and peaks do not add up and are 0. O(1).
  [[nodiscard]] NodeCost range(NodeId begin, NodeId end) const;

 private:
  std::vector<NodeCost> prefix_;
};

}  // namespace pw
