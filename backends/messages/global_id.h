#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>

#include "schedules/job_rank.h"

namespace pw {

/// A number that no other worker of the job gives out: the worker that made it in the high 16 bits, its counter (from 1) below. 0: none.
template <class Tag>
struct GlobalId {
  std::uint64_t value = 0;

  constexpr GlobalId() = default;
  constexpr explicit GlobalId(std::uint64_t v) : value(v) {}
  [[nodiscard]] constexpr JobRank maker() const { return JobRank(static_cast<std::int32_t>(value >> 48U)); }
  [[nodiscard]] constexpr explicit operator bool() const { return value != 0; }
  constexpr auto operator<=>(const GlobalId&) const = default;
};

using CallId = GlobalId<struct CallIdTag>;
using ReferenceId = GlobalId<struct ReferenceIdTag>;
using ContextId = GlobalId<struct ContextIdTag>;                  ///< a forward and its backward passes
using PassId = GlobalId<struct PassIdTag>;                        ///< one backward pass
using AutogradMessageId = GlobalId<struct AutogradMessageIdTag>;  ///< a send function and its receive function

/// Gives out ids of one kind; any thread.
template <class Identifier>
class IdSource {
 public:
  explicit IdSource(JobRank worker) : next_((static_cast<std::uint64_t>(worker.value) << 48U) + 1) {}
  [[nodiscard]] Identifier next() { return Identifier(next_.fetch_add(1, std::memory_order_relaxed)); }

 private:
  std::atomic<std::uint64_t> next_;
};

}  // namespace pw

template <class Tag>
struct std::hash<pw::GlobalId<Tag>> {
  std::size_t operator()(pw::GlobalId<Tag> id) const noexcept { return std::hash<std::uint64_t>{}(id.value); }
};
