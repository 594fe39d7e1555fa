#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/model/sample_layout.h"
#include "simulator/operators/operators.h"

namespace pw {

/// How a value depends on the samples.
struct SampleFlow {
  enum class Kind : std::uint8_t {
    Same,     ///< not at all: it is the same for every batch
    Numbers,  ///< the sample indices 0, 1, … along `layout`
    Along,    ///< each sample's own rows along `layout`
    Mixed,    ///< on all samples together
  };
  Kind kind = Kind::Same;
  SampleLayout layout;

  bool operator==(const SampleFlow&) const = default;
};

/// An argument that is a tensor.
struct FlowingTensor {
  std::string argument;   ///< its name; of a list, that of the list
  std::size_t index = 0;  ///< in a list
  Extents extents;
  SampleFlow flow;
};

/// A call of an operator, with its sizes for a batch of `batch`.
struct FlowingCall {
  const Node* node = nullptr;
  std::vector<FlowingTensor> tensors;  ///< in argument order
  std::vector<Extents> results;        ///< empty if it is not a tensor
  std::int64_t batch = 1;
  bool symbolicBatch = false;                                 ///< `batch` divides no other size
  std::vector<std::pair<std::string, std::int64_t>> numbers;  ///< arguments that are numbers, computed ones included
};

/// What a call makes: one flow per output, and how it mixes the samples (in words), if it does.
struct FlowResult {
  std::vector<SampleFlow> flows;
  std::optional<std::string> mixes;
  bool unknown = false;  ///< the operator has no rule: the flow is guessed from its shapes
};

/// The sizes of a tensor under `bindings`; nothing where one is known only when the model runs, or the value is no tensor.
[[nodiscard]] std::optional<Extents> extentsOf(const Value& value, const Bindings& bindings);

/// The call of a node with sizes of tensors and numbers by `bindings`; the samples' flow by value is `flows`, none where it is empty.
/// Nothing where a size is known only when the model runs.
[[nodiscard]] std::optional<FlowingCall> callOf(const ModelGraph& graph, const Node& node, const Bindings& bindings,
                                                const std::vector<SampleFlow>& flows = {});

/// How operators mix samples, in words.
inline constexpr const char* kReduces = "reduces over the samples";
inline constexpr const char* kRuns = "runs along the samples";
inline constexpr const char* kPairs = "combines each sample with others";
inline constexpr const char* kPicks = "picks samples by their place";
inline constexpr const char* kRegroups = "regroups the samples";

/// The building blocks of the rules that follow samples through a call with at least one tensor; lives as long as the call.
class CallFlow {
 public:
  explicit CallFlow(const FlowingCall& call) : call_(call), op_(operatorOf(call.node->target)) {}

  [[nodiscard]] const FlowingCall& call() const { return call_; }
  [[nodiscard]] const Node& node() const { return *call_.node; }
  [[nodiscard]] const Operator& op() const { return op_; }
  [[nodiscard]] std::string_view name() const { return op_.name; }
  [[nodiscard]] const FlowingTensor& first() const { return call_.tensors.front(); }
  [[nodiscard]] std::size_t rank() const { return first().extents.size(); }
  [[nodiscard]] bool firstIsAlong() const { return first().flow.kind == SampleFlow::Kind::Along; }
  /// The tensor passed as this argument, or null.
  [[nodiscard]] const FlowingTensor* named(std::string_view name) const;
  [[nodiscard]] std::int64_t numberOf(std::string_view name, std::int64_t fallback) const;
  /// Spatial dimensions by the operator's name: conv2d → 2; 0 where it does not say.
  [[nodiscard]] std::size_t spatial() const;
  /// Of a product: which of the tensors is its left operand.
  [[nodiscard]] std::size_t leftOperand() const;

  [[nodiscard]] FlowResult all(const SampleFlow& flow) const { return {std::vector<SampleFlow>(call_.results.size(), flow), std::nullopt}; }
  /// Every result has each sample's own rows there.
  [[nodiscard]] FlowResult along(const SampleLayout& layout) const { return all({SampleFlow::Kind::Along, layout}); }
  /// Every result depends on the samples as the first tensor does, there.
  [[nodiscard]] FlowResult followsFirst(const SampleLayout& layout) const { return all({first().flow.kind, layout}); }
  /// Every result depends on all samples.
  [[nodiscard]] FlowResult mixed(const char* how) const;
  [[nodiscard]] FlowResult mixedIf(bool mixes, const char* how, FlowResult otherwise) const;
  /// Every result has the samples where the tensors have them after broadcasting. `most`: how many of the tensors count.
  [[nodiscard]] FlowResult each(std::size_t most = ~std::size_t{0}) const;
  /// The samples stay in their dimension, counted from the front; other tensors must be the same for all samples, or have them there too.
  [[nodiscard]] FlowResult sameDimension() const;
  /// Merges what several tensors say of the result; they must agree.
  [[nodiscard]] FlowResult agreed(const std::vector<std::optional<SampleLayout>>& layouts) const;
  /// Where a result has the samples of a tensor that is broadcast to it.
  [[nodiscard]] std::optional<SampleLayout> placeIn(const FlowingTensor& tensor, const Extents& result) const;

 private:
  [[nodiscard]] std::optional<SampleLayout> bySize(const Extents& extents) const;
  [[nodiscard]] bool keepsNumbers() const;

  const FlowingCall& call_;
  const Operator& op_;
};

}  // namespace pw
