#pragma once

#include <optional>
#include <string>

#include "simulator/costs/layer_table.h"
#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// A layer table as a model, so that what plans, searches and shows models does the same with tables: one node for each layer, which reads
/// the output of the layer before and a parameter, with the layer's numbers as arguments. Tensors have a byte per element. `path` is the
/// table's file.
[[nodiscard]] ModelGraph chainOf(const LayerTable& table, const std::string& path);

/// The table that `chainOf` made this model of.
[[nodiscard]] LayerTable tableOf(const ModelGraph& chain);

/// What a layer keeps where its forward runs again before its backward (`Layer::kept`); nothing where the table does not say.
[[nodiscard]] std::optional<Bytes> keptIfRecomputed(const Node& layer);
/// Whether the table says it of all layers, so that all stages may recompute.
[[nodiscard]] bool mayRecompute(const ModelGraph& chain);

/// The table's own costs; messages of layers without a time of theirs take none. Stages then need exactly what the table says: see
/// `Profile::sent`.
[[nodiscard]] Profile profileOf(const ModelGraph& chain);

}  // namespace pw
