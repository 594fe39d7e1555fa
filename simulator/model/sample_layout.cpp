#include "simulator/model/sample_layout.h"

namespace pw {

std::optional<SampleLayout> reshaped(const SampleLayout& layout, const Extents& from, const Extents& to, std::int64_t batch) {
  // Elements of one sample stand `before` blocks apart; this number is what a reshape keeps.
  std::int64_t before = layout.outer;
  for (std::size_t d = 0; d < layout.dimension; ++d) before *= from[d];
  std::int64_t prefix = 1;
  for (std::size_t d = 0; d < to.size() && prefix > 0 && before % prefix == 0; ++d) {
    const std::int64_t outer = before / prefix;
    if (outer > 0 && to[d] % outer == 0 && to[d] / outer % batch == 0 && to[d] > 0) return SampleLayout{d, outer, to[d] / outer / batch};
    prefix *= to[d];
  }
  return std::nullopt;
}

std::optional<SampleLayout> sliced(const SampleLayout& layout, std::int64_t begin, std::int64_t count, std::int64_t step,
                                   std::int64_t batch) {
  const std::int64_t block = batch * layout.inner;
  if (begin == 0 && step == 1 && count == layout.outer * block) return layout;
  if (step != 1 || count <= 0 || begin % block != 0 || count % block != 0) return std::nullopt;
  return SampleLayout{layout.dimension, count / block, layout.inner};
}

SampleLayout broadcast(const SampleLayout& layout, std::size_t fromRank, std::size_t toRank) {
  return {layout.dimension + toRank - fromRank, layout.outer, layout.inner};
}

}  // namespace pw
