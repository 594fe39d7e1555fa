#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/stages/stage_module.h"
#include "engine/flight_record.h"
#include "engine/step_log.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Whether values are sent forward or gradients backward.
enum class Direction : std::uint8_t { Forward, Backward };
/// The direction of what the action makes.
constexpr Direction directionOf(ActionKind kind) { return kind == ActionKind::Forward ? Direction::Forward : Direction::Backward; }

/// Moves boundary values and gradients between the stages of this rank and those of others: without a copy between two stages of a rank,
/// otherwise as one message per value. The communicator spans all replicas. Records every message in `flights`.
class Exchange {
 public:
  Exchange(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, FlightRecord& flights);
  /// Operations that are still pending after a failure keep their buffers alive through the communicator.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Posts receives for what this stage gets from other ranks for this microbatch. Does nothing if they were posted before.
  void post(Stage stage, Microbatch microbatch, Direction direction);
  /// Whether everything that the stage needs has arrived; only if the transport can tell (`Communicator::isDone`).
  [[nodiscard]] bool isReady(Stage stage, Microbatch microbatch, Direction direction);
  /// Posts what is not posted yet, waits for everything, and passes it to the stage. Returns whether something came from another rank.
  bool await(Stage stage, Microbatch microbatch, Direction direction, StepLog& log);

  /// Passes the stage's outputs (or input gradients) to the stages of this rank that need them.
  void handOver(Stage stage, Microbatch microbatch, Direction direction);
  /// Starts sending the stage's outputs (or input gradients) to other ranks.
  void send(Stage stage, Microbatch microbatch, Direction direction, StepLog& log);
  [[nodiscard]] bool sendsAway(Stage stage, Microbatch microbatch, Direction direction) const;
  [[nodiscard]] bool receives(Stage stage, Microbatch microbatch, Direction direction) const;

  /// Frees what has been sent: of this microbatch's forward, whose consumers have answered, and everything else that is known to be done.
  void release(Stage stage, Microbatch microbatch);
  /// Waits until everything was sent.
  void finish();
  /// Sets the times of this step's message spans that the transport knows by now (Communicator::timesOf). Call after every barrier, and at
  /// the step's end once the device is done. Times not known yet are queried again at the next call.
  void settleTimes(StepLog& log);
  /// Begins a step: times of the previous step are no longer queried.
  void begin() { timed_.clear(); }
  /// Receives that are posted and not yet consumed.
  [[nodiscard]] std::vector<Communicator::Request> awaited() const;

  /// The first tag above those of boundary values.
  [[nodiscard]] std::uint32_t firstFreeTag() const;

 private:
  struct Key {
    Stage stage;
    Microbatch microbatch;
    Direction direction = Direction::Forward;
    auto operator<=>(const Key&) const = default;
  };
  struct Incoming {
    std::size_t transfer = 0;
    Communicator::Request request = 0;
    FlightRecord::Id flight = 0;
    HeldBuffer buffer;
  };
  struct Outgoing {
    Key key;
    Communicator::Request request = 0;
    FlightRecord::Id flight = 0;
    HeldBuffer buffer;
  };

  /// Transfers into, or out of, the stage in a direction.
  [[nodiscard]] const std::vector<std::size_t>& into(Stage stage, Direction direction) const {
    return (direction == Direction::Forward ? valuesIn_ : gradientsIn_)[stage.index()];
  }
  [[nodiscard]] const std::vector<std::size_t>& outOf(Stage stage, Direction direction) const {
    return (direction == Direction::Forward ? valuesOut_ : gradientsOut_)[stage.index()];
  }
  /// The rank at the other end of a transfer, and its process.
  [[nodiscard]] Rank peer(std::size_t transfer, Stage stage, Microbatch microbatch) const;
  [[nodiscard]] JobRank processOf(Rank rank) const { return replicas_.jobRank(replicas_.replica(communicator_.rank()), rank); }
  [[nodiscard]] std::uint32_t tag(std::size_t transfer, Microbatch microbatch, Direction direction) const;

  const Plan& plan_;
  const std::map<Stage, StageModule*>& stages_;
  Communicator& communicator_;
  FlightRecord& flights_;
  Replicas replicas_;
  Rank rank_;
  std::vector<std::vector<std::size_t>> valuesIn_, valuesOut_, gradientsIn_, gradientsOut_;  // transfers by stage
  std::map<Key, std::vector<Incoming>> incoming_;
  std::vector<Outgoing> outgoing_;
  std::vector<std::pair<std::size_t, Communicator::Request>> timed_;  // spans of the step's log whose times the transport will report
};

}  // namespace pw
