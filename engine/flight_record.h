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

/// One operation that a rank posted in a step.
struct FlightEntry {
  enum class What : std::uint8_t {
    Compute,    ///< `action`
    Value,      ///< a message: the result of `action` at the sender
    Gradients,  ///< gradients of the parameters of `action.stage`, or of a shared one, to be summed
    NewValues,  ///< new values of those, after the update
    Number,     ///< for a sum of numbers over all ranks
    Log,        ///< what a rank saw of the step, on its way to rank 0
    Barrier,
  };
  What what = What::Compute;
  bool sending = false;
  Action action{};
  std::optional<std::size_t> shared{};          ///< index into Partition::shared
  JobRank peer{-1};                             ///< of a message, in the communicator
  const std::vector<JobRank>* group = nullptr;  ///< of a collective; outlives the record
  std::uint32_t tag = 0;                        ///< of a message
  std::size_t bytes = 0;
  std::optional<Communicator::Request> request{};  ///< of messages and collectives
};

/// The operations that a rank posted in its current step, and to bring its log to rank 0: the last 256 entries and all that have not ended,
/// with the plan's names. After a failure it shows which message of which action a rank waited for. On a GPU an entry ends when the rank
/// has ordered the GPU's work after it, not when the GPU is done. Cost: some 20 ns per entry plus two clock readings, most of which the
/// callers need anyway; nothing is allocated unless an entry is still open 256 entries later; names are formatted when the record is
/// written.
class FlightRecord {
 public:
  using Id = std::uint64_t;

  /// Clears the previous step.
  void begin(int step);
  /// Times are `monotonicNow()`.
  Id add(const FlightEntry& entry, Ns posted = monotonicNow());
  /// Waits for an operation and ends its entry; returns the time. If that throws, the entry stays marked as the one that was waited for.
  Ns await(Communicator& communicator, Communicator::Request request, Id id);
  /// For operations without a request: marks it as waited for until `end`.
  void awaits(Id id) { awaited_ = id; }
  void end(Id id, Ns ended = monotonicNow());

  /// `waited for 2F5 from rank 0 (posted 120 s ago, not begun)`; empty when it waited for no message.
  [[nodiscard]] std::string awaited(const Plan& plan, Communicator& communicator) const;
  /// One JSON document: first what was waited for and the oldest operation that had not ended, then all entries, oldest first. `job`: what
  /// tells the records of one start of a job from those of another; empty: nothing does.
  [[nodiscard]] std::string toJson(const Plan& plan, Communicator& communicator, bool onDevice, const std::string& failure,
                                   const std::string& job = {}) const;

 private:
  static constexpr std::size_t kMost = 256;
  struct Noted {
    FlightEntry entry;
    Id id = 0;
    Ns posted = 0, ended = 0;  ///< ended 0: it has not
  };
  [[nodiscard]] Noted* find(Id id);
  [[nodiscard]] const Noted* find(Id id) const { return const_cast<FlightRecord*>(this)->find(id); }
  [[nodiscard]] std::vector<const Noted*> inOrder() const;

  int step_ = 0;
  Ns begin_ = 0;
  Id next_ = 0, first_ = 0;          // of the step
  std::array<Noted, kMost> last_{};  // entry n at n modulo its size
  std::map<Id, Noted> longOpen_;     // open entries that were overwritten in the ring
  std::optional<Id> awaited_;
};

/// Writes a file completely or not at all; returns whether it succeeded. For failure reports, which must not cause another failure.
[[nodiscard]] bool writeWhole(const std::string& path, const std::string& text) noexcept;

/// The file of a rank's flight record: `prefix`1.json.
[[nodiscard]] std::string flightFile(const std::string& prefix, JobRank rank);

}  // namespace pw
