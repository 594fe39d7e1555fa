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

/// Runs one rank's row of a lowered schedule: one loop over actions. Sends do not block the loop. A receive is posted when the compute action
/// before its RECV starts, so that the message comes in meanwhile; the compute action that uses it waits for it.
class Executor {
 public:
  /// `stages`: the modules of this rank's stages, by stage. All must outlive the executor.
  Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator);

  /// One training step: barrier, all actions, sum of replicated gradients, then `beforeUpdate` (may be empty) and the optimizer.
  /// Throws Error naming rank, step and action when a stage or a message fails.
  [[nodiscard]] StepLog step(int number, const std::function<void()>& beforeUpdate);

 private:
  /// What one RECV brings: values for a forward, gradients for a backward.
  struct Incoming {
    Action receive;
    std::vector<std::size_t> transfers;
    std::vector<Communicator::Ticket> tickets;  ///< once posted, as the transfers
  };

  void run(std::size_t position);
  void compute(const Action& action, bool backward);
  void planReceives();
  void postReceives(std::size_t upTo);
  void send(const Action& action, bool backward);
  void awaitReceive(const Action& action, bool backward);
  void finishForwardSends(Stage stage, Microbatch microbatch);
  void reduceReplicated();
  void optimize();
  void record(SpanKind kind, Stage stage, Microbatch microbatch, Ns start);
  void sampleMemory();

  const Plan& plan_;
  std::map<Stage, StageModule*> stages_;
  Communicator& communicator_;
  Rank rank_;
  std::vector<Incoming> incoming_;               // in the order of this rank's RECV actions
  std::map<Action, std::size_t> incomingOf_;     // by RECV
  std::vector<std::size_t> postedBy_;            // by position: how many receives are posted before the action is run
  std::size_t posted_ = 0;                       // receives posted so far
  std::map<std::pair<Stage, Microbatch>, std::vector<Communicator::Ticket>> forwardSends_, backwardSends_;
  StepLog log_;
};

/// Joins what all ranks saw (index = rank) into one trace from 0: the start of a message comes from its sender, the end from its receiver.
[[nodiscard]] Trace joinTraces(const std::vector<StepLog>& ranks);

}  // namespace pw
