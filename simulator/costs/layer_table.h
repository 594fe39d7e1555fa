#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schedules/ids.h"

namespace pw {

inline constexpr std::size_t kMostLayers = 100'000;

/// Costs of one layer for one microbatch.
struct Layer {
  static constexpr Ns kByLink = -1;
  static constexpr Bytes kNotSaid = -1;

  std::string name;  ///< unique in its table
  Ns forward = 0;
  Ns input = 0;           ///< the backward's part for the layer's inputs
  Ns weight = 0;          ///< the rest of the backward
  Bytes parameters = 0;   ///< there all the time
  Bytes activations = 0;  ///< kept from the start of F to the end of B (or W)
  Bytes afterInput = 0;   ///< what is kept of them, or instead, from the end of I to the end of W
  Bytes output = 0;       ///< crosses a cut after this layer, and as much gradient comes back
  Ns sent = kByLink;      ///< from the end of the sender's action to the arrival, both ways; `kByLink`: what the link takes
  std::string module;     ///< path of the module it belongs to, for display; may be empty
  Bytes kept = kNotSaid;  ///< from the start of F to that of I (or B) where its forward runs again then; `kNotSaid`: it cannot
  Ns optimizer = 0;       ///< its step of plain SGD, beside the table's `optimizerNsPerByte`

  bool operator==(const Layer&) const = default;
};

inline constexpr std::string_view kKeptIfRecomputed = "activation_if_recomputed_bytes";

/// A number of a layer by its name in files.
struct LayerNumber {
  std::string_view key;
  std::variant<Ns Layer::*, Bytes Layer::*> member;
  bool required = false;

  /// A plain number, of ns or bytes as the key says: readers and writers treat both alike, and cells of a table have no type.
  [[nodiscard]] std::int64_t of(const Layer& layer) const {
    return std::visit([&](auto number) { return (layer.*number).value; }, member);
  }
  void set(Layer& layer, std::int64_t to) const {
    std::visit([&](auto number) { (layer.*number).value = to; }, member);
  }
};
inline constexpr std::array<LayerNumber, 10> kLayerNumbers{{{"forward_ns", &Layer::forward, true},
                                                            {"input_ns", &Layer::input},
                                                            {"weight_ns", &Layer::weight},
                                                            {"parameter_bytes", &Layer::parameters, true},
                                                            {"activation_bytes", &Layer::activations, true},
                                                            {"activation_after_input_bytes", &Layer::afterInput},
                                                            {"output_bytes", &Layer::output, true},
                                                            {"sent_ns", &Layer::sent},
                                                            {"optimizer_ns", &Layer::optimizer},
                                                            {kKeptIfRecomputed, &Layer::kept}}};

/// A model as a chain of layers with measured or guessed costs, where there is no archive of it (formats.md shows one).
struct LayerTable {
  std::string name;
  std::int64_t microbatch = 1;    ///< samples in a microbatch
  Ns actionOverhead = 0;          ///< of every F, B, I and W of a stage, in addition to its layers
  double optimizerNsPerByte = 0;  ///< optimizer step per parameter byte, reading gradient and weight and writing the weight
  std::vector<Layer> layers;      ///< at least one
  Ns sendOverhead = 0;            ///< of each message that an action sends to another rank, at its end

  bool operator==(const LayerTable&) const = default;
};

/// What a table says of all its layers, without these.
[[nodiscard]] inline LayerTable emptyLike(const LayerTable& table) {
  return {table.name, table.microbatch, table.actionOverhead, table.optimizerNsPerByte, {}, table.sendOverhead};
}

/// Whether a model's file of this name is a layer table (`.json`, `.csv`), not an archive.
[[nodiscard]] inline bool isLayerTableName(std::string_view path) { return path.ends_with(".json") || path.ends_with(".csv"); }

/// Reads the JSON or CSV form; a text that begins with `{` is JSON. `source` names the text in errors; its stem is the name of a table that
/// has none. Where a row has `backward_ns` instead of its parts, half of it (rounded down) is for the inputs; beside one part it gives the
/// other. Without `activation_after_input_bytes` all activations are kept until W. Throws UsageError naming the layer and the key where one
/// is missing, repeated, no whole number of 0 or more, contradicts another or is too large to add up. Cost: linear.
[[nodiscard]] LayerTable parseLayerTable(std::string_view text, const std::string& source);

[[nodiscard]] std::string toJson(const LayerTable& table);
/// As CSV (RFC 4180). A CSV has no place for the table's name, which is that of its file.
[[nodiscard]] std::string toCsv(const LayerTable& table);

}  // namespace pw
