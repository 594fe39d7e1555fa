#pragma once

// Internal to the import of traces: which actions were met already.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// An action as a number that is not 0: kind, stage and microbatch, from the lowest bit up.
inline constexpr unsigned kStageShift = 4, kMicrobatchShift = 28;
inline std::uint64_t actionKey(const Span& span) {
  return (1U + static_cast<std::uint64_t>(span.kind)) |
         (static_cast<std::uint64_t>(static_cast<std::uint32_t>(span.stage.value + 1)) << kStageShift) |
         (static_cast<std::uint64_t>(static_cast<std::uint32_t>(span.microbatch.value + 1)) << kMicrobatchShift);
}

/// A set of actions that is emptied often. Keys are not 0.
class ActionSet {
 public:
  /// Whether it was not there.
  bool insert(std::uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    std::uint64_t& slot = slotOf(key);
    if (slot == key) return false;
    slot = key;
    ++count_;
    return true;
  }
  void clear() {
    std::fill(slots_.begin(), slots_.end(), 0);
    count_ = 0;
  }

 private:
  std::uint64_t& slotOf(std::uint64_t key) {
    // Microbatches that follow each other share a cache line of eight slots: they are met one after another.
    const std::uint64_t line = (key & ~(std::uint64_t{7} << kMicrobatchShift)) * 0x9E3779B97F4A7C15ULL >> 32U;
    std::size_t at = static_cast<std::size_t>(line * 8 + (key >> kMicrobatchShift) % 8) & (slots_.size() - 1);
    while (slots_[at] != 0 && slots_[at] != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void grow() {
    std::vector<std::uint64_t> old(std::max<std::size_t>(64, 2 * slots_.size()));
    old.swap(slots_);
    for (const std::uint64_t key : old) {
      if (key != 0) slotOf(key) = key;
    }
  }
  std::vector<std::uint64_t> slots_;
  std::size_t count_ = 0;
};

}  // namespace pw
