#include "simulator/step/compiled_rows.h"

#include <algorithm>
#include <utility>

#include "simulator/step/lanes.h"
#include "simulator/step/recost.h"

namespace pw {
namespace {

constexpr std::size_t kMostKept = 1U << 16U;  ///< peaks; some tens of MB

/// The rank, and everything besides its row that determines its peak.
std::pair<Rank, std::vector<Bytes>> keyOf(const Schedule& rows, const CostTable& costs, const CrossingBytes& crossing, Rank rank) {
  std::vector<Bytes> sizes{heldThroughout(rows.placement, rows.microbatches, costs, rank)};
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    if (!rows.placement.holds(rank, Stage(s))) continue;
    const StageCost& c = costs.stages[s];
    sizes.insert(sizes.end(),
                 {c.activationBytes, c.freedByInput, c.addedByInput, c.sharedForWeight, c.forwardPeak, c.backwardPeak, c.inputPeak,
                  c.weightPeak, crossing.in[endOf(Stage(s), false)], crossing.in[endOf(Stage(s), true)], crossing.out[s]});
  }
  for (const MessageCost& m : costs.messages) {
    if (m.backward && rows.placement.holds(rank, m.from) && rows.placement.holds(rank, m.to))
      sizes.insert(sizes.end(), {Bytes(m.from.value), Bytes(m.to.value), m.bytes});
  }
  return {rank, std::move(sizes)};
}

}  // namespace

int CompiledRows::prepare(const CostTable& costs) {
  if (!program_ || !sameStructure(rows_, costs, Sending::Overlapped, *program_)) {
    program_.reset();  // first, so that there are never two
    program_ = compile(rows_, costs);
    ++structure_;
  }
  return structure_;
}

void CompiledRows::updatePeaks(const CostTable& costs, const std::vector<Rank>& ranks, std::vector<Bytes>& peaks) {
  const CrossingBytes crossing(rows_.placement, costs);
  for (const Rank rank : ranks) {
    auto key = keyOf(rows_, costs, crossing, rank);
    const auto found = kept_.find(key);
    if (found != kept_.end()) {
      peaks[rank.index()] = found->second;
      continue;
    }
    static_cast<void>(prepare(costs));
    peaks[rank.index()] = peakOf(rows_, costs, crossing, *program_, rank);
    if (kept_.size() >= kMostKept) kept_.clear();
    kept_.emplace(std::move(key), peaks[rank.index()]);
  }
}

std::vector<Bytes> CompiledRows::peaks(const CostTable& costs) {
  std::vector<Bytes> peaks(rows_.rows.size(), 0);
  std::vector<Rank> ranks;
  for (std::size_t r = 0; r < peaks.size(); ++r) ranks.emplace_back(r);
  updatePeaks(costs, ranks, peaks);
  return peaks;
}

const Program& CompiledRows::timed(const CostTable& costs) {
  static_cast<void>(prepare(costs));
  setTimes(rows_, costs, *program_);
  return *program_;
}

}  // namespace pw
