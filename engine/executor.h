#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "backends/stage_module.h"
#include "simulator/plan.h"
#include "simulator/trace.h"

namespace pw {

/// Nanoseconds of the host's monotonic clock: the same for all processes of a host.
[[nodiscard]] Ns monotonicNow();

/// What a rank saw of one step. Times are on the monotonic clock. Message spans are complete only after `joinTraces`: a sender knows when it
/// started (end = start), a receiver when it had the message (start = end).
struct StepLog {
  std::vector<Span> spans;
  std::vector<MemorySample> memory;
  std::optional<double> loss;  ///< on the rank of the last stage

  bool operator==(const StepLog&) const = default;
};

/// Runs one rank's row of a lowered schedule: one loop over actions. Receives are posted ahead of their action, sends do not block the loop.
class Executor {
 public:
  /// `stages`: the modules of this rank's stages, by stage. All must outlive the executor.
  Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator);

  /// One training step: barrier, all actions, sum of replicated gradients, then `beforeUpdate` (may be empty) and the optimizer.
  /// Throws Error naming rank, step and action when a stage or a message fails.
  [[nodiscard]] StepLog step(int number, const std::function<void()>& beforeUpdate);

 private:
  struct Incoming {
    std::size_t transfer;
    Microbatch microbatch;
    bool backward;
    Rank from;
    std::optional<Communicator::Ticket> ticket;
  };

  void run(const Action& action);
  void planReceives();
  void postReceives(std::size_t upTo);
  void send(const Action& action, bool backward);
  void receive(const Action& action, bool backward);
  void finishForwardSends(Stage stage, Microbatch microbatch);
  void reduceReplicated();
  void optimize();
  void record(SpanKind kind, Stage stage, Microbatch microbatch, Ns start);
  void sampleMemory();

  const Plan& plan_;
  std::map<Stage, StageModule*> stages_;
  Communicator& communicator_;
  Rank rank_;
  std::vector<Incoming> incoming_;  // in the order of this rank's receive actions
  std::size_t posted_ = 0;          // receives posted so far
  std::size_t received_ = 0;        // receives waited for so far
  std::map<std::pair<Stage, Microbatch>, std::vector<Communicator::Ticket>> forwardSends_, backwardSends_;
  StepLog log_;
};

/// Joins what all ranks saw (index = rank) into one trace from 0: the start of a message comes from its sender, the end from its receiver.
[[nodiscard]] Trace joinTraces(const std::vector<StepLog>& ranks);

}  // namespace pw
