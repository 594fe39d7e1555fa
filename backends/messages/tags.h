#pragma once

#include <cstdint>

namespace pw {

// Who uses which tags of a communicator's messages. Two uses with one tag would take each other's messages, so each has a range of its own
// here. Within a range its owner numbers as it likes, and may use a tag again: messages of one tag keep their order.

/// The tags from `first` on, `count` of them.
struct TagRange {
  std::uint32_t first = 0, count = 1;

  [[nodiscard]] constexpr std::uint32_t end() const { return first + count; }
};

/// Of a plan: boundary values and their gradients (`engine/exchange.h`), above those the sums of gradients (`engine/reducer.h`).
inline constexpr TagRange kPlanTags{0, 0x60000000};
/// Outputs of an evaluation: output, then microbatch (`engine/evaluation.h`).
inline constexpr TagRange kOutputTags{kPlanTags.end(), 0x1D000000};
/// What ranks compare before a step: their words, the verdict (`engine/batch_agreement.h`).
inline constexpr TagRange kAgreementTags{0x7D000001, 2};
/// Pieces of the training state: of each file, one after the other (`engine/checkpoint.h`).
inline constexpr TagRange kStateTags{0x7E000000, 0x01000000};
/// Logs of the ranks, and what rank 0 answers (`engine/gathering.h`).
inline constexpr TagRange kGatheringTags{0x7FFF0001, 5};
/// Readings of a clock: there and back (`engine/clock.h`).
inline constexpr TagRange kClockTags{0x7FFF0100, 0x100};
/// Rounds of `meetByMessages`: at most 31.
inline constexpr TagRange kMeetingTags{0x7FFF0200, 32};
/// Of UCX: the first message to each rank, and the last (`backends/messages/ucx/communicator.cpp`).
inline constexpr TagRange kUcxTags{0x7FFF0300, 2};
/// Loss, norm and the like of a step (`engine/reducer.h`).
inline constexpr TagRange kNumberTags{0x7FFF0400, 4};
/// What announces a message of a device's memory, and the bell (`backends/messages/device_inbox.h`).
inline constexpr TagRange kAnnouncementTags{0x7FFF0500, 0x100}, kBellTags{kAnnouncementTags.end(), 1};
/// For communicators of tests.
inline constexpr TagRange kTestTags{0x7FFF0700, 0x100};
/// Unique ids of NCCL (`backends/cuda/nccl_ids.h`).
inline constexpr TagRange kNcclIdTags{0x7FFF4000, 1};

/// Throws UsageError where a plan needs `count` tags of a range that has fewer: too many messages to tell apart.
void requireTags(const TagRange& range, std::uint64_t count);

/// All, in ascending order.
inline constexpr TagRange kTagRanges[] = {kPlanTags, kOutputTags, kAgreementTags,    kStateTags, kGatheringTags, kClockTags, kMeetingTags,
                                          kUcxTags,  kNumberTags, kAnnouncementTags, kBellTags,  kTestTags,      kNcclIdTags};

static_assert([] {
  std::uint32_t end = 0;
  for (const TagRange& range : kTagRanges) {
    if (range.count == 0 || range.first < end || range.end() < range.first) return false;
    end = range.end();
  }
  return end <= 0x80000000U;  // Gloo's are signed
}());

}  // namespace pw
