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

/// Whether values go forward or their gradients back.
enum class Direction : std::uint8_t { Forward, Backward };

/// Moves boundary values, and gradients, between the stages of one rank and those of others: without a copy between two stages of a rank,
/// else by one message for each value. A rank of the plan is rank `firstRank` + it of the communicator. Notes every message in `flights`.
class Exchange {
 public:
  Exchange(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, Rank firstRank,
           FlightRecord& flights);
  /// What a failure left under way goes on in memory that the communicator keeps.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Posts receives for what this stage gets from other ranks for this microbatch. Nothing when they were posted before.
  void post(Stage stage, Microbatch microbatch, Direction direction);
  /// Whether all that the stage needs is there; only where the transport can tell (`Communicator::isDone`).
  [[nodiscard]] bool isReady(Stage stage, Microbatch microbatch, Direction direction);
  /// Posts what was not posted, waits for all, and gives it to the stage. Returns whether something came from another rank.
  bool await(Stage stage, Microbatch microbatch, Direction direction, StepLog& log);

  /// Gives the stage's outputs (or input gradients) to the stages of this rank that need them.
  void handOver(Stage stage, Microbatch microbatch, Direction direction);
  /// Starts sending the stage's outputs (or input gradients) to other ranks.
  void send(Stage stage, Microbatch microbatch, Direction direction, StepLog& log);
  [[nodiscard]] bool sendsAway(Stage stage, Microbatch microbatch, Direction direction) const;
  [[nodiscard]] bool receives(Stage stage, Microbatch microbatch, Direction direction) const;

  /// Frees what was sent: of this microbatch's forward, whose consumers have answered, and all else that is known to be done.
  void release(Stage stage, Microbatch microbatch);
  /// Waits until everything was sent.
  void finish();
  /// Gives message spans of this step the times that the transport knows by now (Communicator::timesOf): after every barrier, and once the
  /// device is done at the step's end. What is not known yet is asked for again at the next call.
  void settleTimes(StepLog& log);
  /// Before a step: nothing of the step before is asked for any more.
  void begin() { timed_.clear(); }
  /// Receives that are posted and not taken.
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

  /// Transfers that reach, or leave, the stage in a direction.
  [[nodiscard]] const std::vector<std::size_t>& into(Stage stage, Direction direction) const {
    return (direction == Direction::Forward ? valuesIn_ : gradientsIn_)[stage.index()];
  }
  [[nodiscard]] const std::vector<std::size_t>& outOf(Stage stage, Direction direction) const {
    return (direction == Direction::Forward ? valuesOut_ : gradientsOut_)[stage.index()];
  }
  /// The rank at the other end of a transfer.
  [[nodiscard]] Rank peer(std::size_t transfer, Stage stage, Microbatch microbatch) const;
  [[nodiscard]] std::uint32_t tag(std::size_t transfer, Microbatch microbatch, Direction direction) const;

  const Plan& plan_;
  const std::map<Stage, StageModule*>& stages_;
  Communicator& communicator_;
  FlightRecord& flights_;
  Rank firstRank_, rank_;
  std::vector<std::vector<std::size_t>> valuesIn_, valuesOut_, gradientsIn_, gradientsOut_;  // transfers by stage
  std::map<Key, std::vector<Incoming>> incoming_;
  std::vector<Outgoing> outgoing_;
  std::vector<std::pair<std::size_t, Communicator::Request>> timed_;  // spans of the step's log whose times the transport will know
};

}  // namespace pw
