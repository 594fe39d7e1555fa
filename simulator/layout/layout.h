#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// What a layout places: the letters of Megatron's `--pipeline-model-parallel-layout`.
enum class LayoutLayer : std::uint8_t {
  Embedding,    ///< E
  Transformer,  ///< t
  Mtp,          ///< m: multi-token prediction
  Loss,         ///< L
};
inline constexpr std::size_t kLayoutLayers = 4;

constexpr std::string_view nameOf(LayoutLayer layer) {
  switch (layer) {
    case LayoutLayer::Embedding: return "embedding";
    case LayoutLayer::Transformer: return "decoder";
    case LayoutLayer::Mtp: return "mtp";
    case LayoutLayer::Loss: return "loss";
  }
  return {};
}
constexpr char letterOf(LayoutLayer layer) {
  switch (layer) {
    case LayoutLayer::Embedding: return 'E';
    case LayoutLayer::Transformer: return 't';
    case LayoutLayer::Mtp: return 'm';
    case LayoutLayer::Loss: return 'L';
  }
  return '?';
}

/// The layers of each stage, in the order of the model. With R ranks, stage s is chunk s div R of rank s mod R (a loop).
struct Layout {
  std::vector<std::vector<LayoutLayer>> stages;

  [[nodiscard]] std::size_t count(LayoutLayer layer) const;
  bool operator==(const Layout&) const = default;
};

inline constexpr std::size_t kLongestLayout = 1'000'000;  ///< characters, before and after repetitions are written out

/// Reads a layout string as Megatron-LM does (`PipelineParallelLayerLayout.parse_str_to_list`, megatron/core/transformer/
/// pipeline_parallel_layer_layout.py): commas mean nothing; `(...)*N` and then `x*N` are written out as text, each in one pass from left to
/// right, so parentheses do not nest and a second `*N` repeats nothing; `|` ends a stage, which may be empty. What the letters must be is
/// in rules.h. Throws UsageError naming the character and its place, from 1, where Megatron refuses the string; also where it is longer
/// than `kLongestLayout` or has more than `kMaxStages` stages, and for digits that are not ASCII. Cost: linear in what is written out.
[[nodiscard]] Layout parseLayout(std::string_view text);

/// Where each stage of the layout begins in the text [characters, from 1]; of what a repetition writes out, where that stands.
[[nodiscard]] std::vector<std::size_t> stagePlaces(std::string_view text);

/// The stages as one short string that `parseLayout` reads back: `Et*3|(t*2|)*29m|L`. Equal stages in a row become one repetition.
[[nodiscard]] std::string toString(const Layout& layout);
/// One stage: `Et*3`; empty for an empty stage.
[[nodiscard]] std::string toString(const std::vector<LayoutLayer>& stage);

}  // namespace pw
