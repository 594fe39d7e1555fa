#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/costs/layer_table.h"
#include "simulator/layout/layout.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/plan.h"

namespace pw {

/// A letter of a layout and the layers [begin, end) of a table that it stands for.
struct LayoutBlock {
  LayoutLayer letter = LayoutLayer::Transformer;
  std::size_t begin = 0, end = 0;
  std::string name;  ///< `blocks.3`, or of its first layer

  bool operator==(const LayoutBlock&) const = default;
};

/// The path up to its outermost part that ends in a number: `model.blocks.3` of `model.blocks.3.attn:end`; nothing without one, for nodes
/// (`@add_1`), and for parts named like an embedding, a norm or a head.
[[nodiscard]] std::optional<std::string> numberedModule(std::string_view path);

/// A table of layers as the letters that Megatron places. Layers under one numbered module (`blocks.3.attn`, `blocks.3.mlp`; by their
/// module, else by their name) are one t, in the order of the table; beside such lists a module whose own name ends in a number (`fc1`) is
/// not, unless a list is within it (`layer1.0`). What comes before the first of them is the E, what follows the last the L, and what stands
/// between two belongs to the one before. `mtp` in the path makes it an m. In a table without numbered layers each layer is a t, but for a
/// first one named like an embedding and last ones named like a norm, a head or a loss. Cost: n log n.
[[nodiscard]] std::vector<LayoutBlock> blocksOf(const LayerTable& table);

/// Throws UsageError for the equal parts of a job's stages, which are no layers of the model and cannot be cut by `tool`.
void requireLayersOfModel(const LayerTable& table, std::string_view tool);

/// Throws UsageError where a number of layers is given for a model that has its own.
void requireJobFor(const std::optional<std::int64_t>& layers, const ModelGraph& graph);
inline constexpr const char* kLayersAlike =
    "The layers of each of the job's stages are taken to be alike, and what its first and last stage do besides is spread over theirs.";

/// The table of a job (`isOfJob`) with so many transformer layers instead of parts, `layers.0`, …: as many in each of the job's stages, all
/// layers of a stage alike. Throws UsageError where the stages do not hold equally many. Linear.
[[nodiscard]] LayerTable withLayers(const LayerTable& ofJob, std::int64_t layers);

/// The nodes of a model as such blocks, by the modules that they are in: [begin, end) are nodes. Empty for a model without numbered
/// modules. Of a layer table as above. Cost: n log n.
[[nodiscard]] std::vector<LayoutBlock> blocksOf(const ModelGraph& graph);

/// The layout of a model that is cut there, or the cut that Megatron does not have.
struct CutLayout {
  Layout layout;
  Stage stage;         ///< the first that begins inside a block
  std::string inside;  ///< that block; empty: there is none, and `layout` is complete
};
/// `blocks`: of the model whose nodes `begins` name. Without a block for E or L these are in the first and last stage. Cost: linear.
[[nodiscard]] CutLayout layoutOf(const std::vector<LayoutBlock>& blocks, const std::vector<NodeId>& begins);

/// A layer table with at least one layer in every stage of a layout.
struct LaidOutTable {
  LayerTable table;                 ///< with a layer that takes no time where a stage has none
  std::vector<std::size_t> begins;  ///< the first layer of stages 1, 2, …
  std::vector<std::string> notes;   ///< what was assumed; sentences
};

/// What a plan of a job's times does not know, where whoever made it did not say it: how many samples a microbatch has (a plan counts 1),
/// and the optimizer (a plan counts SGD).
struct UnknownOfJob {
  bool samples = false, optimizer = false;
};
[[nodiscard]] UnknownOfJob unknownOf(const Plan& plan, bool isOfJob);
/// A sentence about it for the export to a program with these names for the sizes of a microbatch, of a replica's batch (empty: it has
/// none) and of a step's batch.
[[nodiscard]] std::string unknownText(const Plan& plan, UnknownOfJob unknown, std::string_view microbatch, std::string_view local,
                                      std::string_view batch);

/// Gives the table's layers to the stages of the layout. Stages without layers get one that only passes on what it receives: as many bytes
/// as the layer before it sends (before the first layer: as that one). Throws UsageError where the table has another number of transformer
/// or MTP layers than the layout, or layers for an E or L that the layout lacks. `endsWithin`: what E and L take is among the
/// layers' times, so that no note says that they take none. Cost: linear.
[[nodiscard]] LaidOutTable layOut(const LayerTable& table, const Layout& layout, bool endsWithin = false);

}  // namespace pw
