#pragma once

// Internal to the import of traces: which annotated range of a program launched which kernel of its device.

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// A range that a process annotated, on any of its threads.
struct AnnotatedRange {
  std::int64_t process = 0;
  Ns start = 0, end = 0;
  int kind = -1;                       ///< of actions: those of one kind are alike; −1: another range
  Ns firstKernel = 0, lastKernel = 0;  ///< begin of the first and end of the last kernel launched in it, where there are `kernels`
  std::int64_t kernels = 0;
  Ns reducedUntil = 0;  ///< end of the collectives beside it, where no other action's kernels begin before; else 0
};

enum class KernelKind : std::uint8_t {
  Compute,
  Collective,  ///< of NCCL
  Message,     ///< NCCL's sends and receives; an all-to-all is made of them, too
};

[[nodiscard]] KernelKind kernelKindOf(std::string_view name);

/// What processes launched, and within which of their ranges. Launches are added first, then kernels. A launch belongs to the range of its
/// process that began last before it and has not ended, on whatever thread: torch launches a backward's kernels from a thread of its own.
/// Collectives on a stream that few of the actions of a kind use are no part of these actions: reductions of gradients that the last
/// backward launches (DDP's buckets, Megatron's --overlap-grad-reduce), or parameters gathered for the first forward, run beside them and
/// wait for other replicas. Those of tensor parallelism are in every action, and part of it. Messages at either end of an action are no
/// part of it: torch's GPipe receives and sends within its `Forward 0`. A range of messages alone has their times.
class Launches {
 public:
  /// Keeps a reference.
  explicit Launches(std::vector<AnnotatedRange>& ranges);
  void addLaunch(std::int64_t process, std::int64_t correlation, Ns time);
  /// `stream`: told apart of collectives.
  void addKernel(KernelKind kind, std::int64_t process, std::int64_t correlation, Ns start, Ns end, std::int64_t stream);
  /// Decides about collectives and messages; call it once, after the last kernel.
  void finish();
  [[nodiscard]] bool any() const { return !rangeOf_.empty(); }

 private:
  /// From `time` until the next cut: the innermost range, or −1.
  struct Cut {
    Ns time = 0;
    std::int32_t range = -1;
  };
  /// A collective or message of an action.
  struct Transfer {
    std::int32_t range = 0;
    std::int64_t stream = 0;
    Ns start = 0, end = 0;
  };
  void extend(AnnotatedRange& range, Ns start, Ns end);

  std::vector<AnnotatedRange>& ranges_;
  std::vector<Transfer> collectives_, messages_;
  std::unordered_map<std::int64_t, std::vector<Cut>> cuts_;         ///< by process
  std::unordered_map<std::uint64_t, std::int32_t> rangeOf_;         ///< by process and correlation
  std::unordered_map<std::int64_t, std::uint64_t> processNumbers_;  ///< small numbers, for the key
};

}  // namespace pw
