#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"
#include "schedules/schedule.h"
#include "simulator/plan/plan.h"

namespace pw {

/// One thing that a rank asked for in a step.
struct FlightEntry {
  enum class What : std::uint8_t {
    Compute,    ///< `action`
    Value,      ///< a message: what `action`, at the message's sender, made
    Gradients,  ///< of the parameters of `action.stage`, or of a shared one, for their sum
    NewValues,  ///< of those, after the update
    Number,     ///< for a sum of numbers over all ranks
    Barrier,
  };
  What what = What::Compute;
  bool sending = false;
  Action action{};
  std::optional<std::size_t> shared{};       ///< index into Partition::shared
  Rank peer{-1};                             ///< of a message, in the communicator
  const std::vector<Rank>* group = nullptr;  ///< of a collective; outlives the record
  std::uint32_t tag = 0;                     ///< of a message
  std::size_t bytes = 0;
  std::optional<Communicator::Request> request{};  ///< of messages and collectives
};

/// What a rank asked for in its present step: the last 256 entries and all that has not ended, under the plan's own names. After a failure
/// it tells which message of which action a rank waited for. On a GPU an entry ends when the rank has put the GPU's work behind it, not
/// when the GPU is done. Cost: some 20 ns an entry beside two readings of the clock, most of which its callers need anyway; nothing is
/// allocated unless an entry is still open 256 entries later; names are made when it is written.
class FlightRecord {
 public:
  using Id = std::uint64_t;

  /// Forgets the step before.
  void begin(int step);
  /// Times are `monotonicNow()`.
  Id add(const FlightEntry& entry, Ns asked = monotonicNow());
  /// Waits for an operation, whose entry has then ended; returns when. When that throws, the entry is the one that was waited for.
  Ns await(Communicator& communicator, Communicator::Request request, Id id);
  /// For what has no request: from now on the rank waits for it, until `end`.
  void awaits(Id id) { awaited_ = id; }
  void end(Id id, Ns ended = monotonicNow());

  /// `waited for 2F5 from rank 0 (asked for 120 s ago, not begun)`; empty when it waited for no message.
  [[nodiscard]] std::string awaited(const Plan& plan, Communicator& communicator) const;
  /// One JSON document: what was waited for and the oldest operation that had not ended first, then all entries, oldest first.
  [[nodiscard]] std::string toJson(const Plan& plan, Communicator& communicator, bool onDevice, const std::string& failure) const;

 private:
  static constexpr std::size_t kMost = 256;
  struct Noted {
    FlightEntry entry;
    Id id = 0;
    Ns asked = 0, ended = 0;  ///< ended 0: it has not
  };
  [[nodiscard]] Noted* find(Id id);
  [[nodiscard]] const Noted* find(Id id) const { return const_cast<FlightRecord*>(this)->find(id); }
  [[nodiscard]] std::vector<const Noted*> inOrder() const;

  int step_ = 0;
  Ns begin_ = 0;
  Id next_ = 0, first_ = 0;          // of the step
  std::array<Noted, kMost> last_{};  // entry n at n modulo its size
  std::map<Id, Noted> longOpen_;     // what has not ended and is no longer there
  std::optional<Id> awaited_;
};

/// Writes a file as a whole or not at all; returns whether it could. For reports of a failure: no second one may come of it.
[[nodiscard]] bool writeWhole(const std::string& path, const std::string& text) noexcept;

/// Where the flight record of a rank lies: `prefix`1.json.
[[nodiscard]] std::string flightFile(const std::string& prefix, Rank rank);

}  // namespace pw
