#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/waits.h"
#include "backends/stages/stage_module.h"
#include "engine/flight_record.h"
#include "engine/non_finite.h"
#include "engine/step_times.h"
#include "simulator/plan/plan.h"

namespace pw {

struct ReducerOptions {
  bool shardOptimizer = false;                      ///< ZeRO stage 1: each holder updates a piece
  bool inRowOrder = true;                           ///< `start` is called where the rows have REDUCE_GRAD, in their order
  std::chrono::milliseconds deadline = kUsualWait;  ///< for what a device has to do before a number is known
};

/// The numbers of a step that ranks exchange.
struct StepNumbers {
  double loss = 0;                    ///< the rank's part
  double squares = 0;                 ///< of its pieces of the gradients
  bool finite = true;                 ///< so are both
  NumberPosition first = kAllFinite;  ///< of the first non-finite number
};

/// Keeps the copies of parameters equal: those of a stage on the replicas of its pipeline and, in a bidirectional placement, on its two
/// ranks; those of a shared parameter also in its stages; where replicas are cut differently, those that are in one stage of each
/// (`ReplicaCuts::summed`). Gradients of a group are summed piece by piece, each piece by one of its holders
/// (reduce-scatter, in the order of holders, so every run gives the same bits); then either all holders get all sums (all-gather) and make
/// the same update, or each updates its piece alone and sends the new values to the others: with sharded optimizer state (ZeRO stage 1;
/// Rajbhandari et al., SC'20), and for `Sharing::Transmit`, where the pieces are the owner's alone.
///
/// If all holders update and each is on a separate rank, this uses the transport's collectives (`Communicator::startCollective`:
/// AllReduce, or ReduceScatter and AllGather), if it has any; otherwise messages. All ranks must start collectives in one order: that of
/// the rows' REDUCE_GRADs if no two rows contradict each other (none where replicas are cut differently, as a stage then sums with several
/// others), and for the rest that of their ids, after everything else has been enqueued.
class Reducer {
 public:
  /// Uses the tags from `firstTag` on. `communicator` spans all replicas. Records all its operations in `flights`.
  Reducer(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, std::uint32_t firstTag,
          const ReducerOptions& options, FlightRecord& flights, StepTimes& times);
  /// Operations that are still pending after a failure keep their buffers alive through the communicator.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Starts summing the stage's gradients, which must be complete, if that does not violate the order of collectives. A second call in a
  /// step does nothing.
  void start(Stage stage);
  /// Starts what was not started, waits for everything and sums. The gradients of all groups are then complete where they are used or, with
  /// `everywhere`, at all their holders. Spans here and in `update` get their times from `times`.
  void sum(StepLog& log, bool everywhere);
  /// The optimizer, then the exchange of values where holders update pieces.
  void update(double gradientScale, StepLog& log);

  /// This rank's part of the squared norm of the whole model's gradients, each parameter counted once; after `sum`.
  [[nodiscard]] double squares();
  /// The first of this rank's stages whose gradients are not all finite, in the pieces that this rank sums. After `sum`.
  [[nodiscard]] std::optional<Stage> firstNotFinite();

  /// The numbers of all ranks, in their order. Collective.
  [[nodiscard]] std::vector<StepNumbers> exchange(const StepNumbers& own);
  /// Sum over all ranks, in their order. Collective.
  [[nodiscard]] double allSum(double number);

 private:
  struct Member {
    JobRank rank;
    Stage stage;

    bool operator==(const Member&) const = default;
  };
  /// A pending operation.
  struct Posted {
    Communicator::Request request = 0;
    FlightRecord::Id flight = 0;
  };
  struct Received {
    Posted posted;
    HeldBuffer buffer;
  };
  /// One group of parameters with all who hold it.
  struct Reduction {
    std::uint32_t id = 0;
    std::vector<Member> members;                            ///< by rank where collectives may sum
    std::vector<std::size_t> updaters;                      ///< the members that sum a piece each
    bool pieces = false;                                    ///< and update it alone
    std::vector<std::size_t> own;                           ///< members on this rank
    std::map<std::size_t, std::size_t> groupOf;             ///< of an own member, in its stage
    std::map<std::size_t, std::vector<Received>> received;  ///< by own updater: the others' gradients of its piece
    std::vector<Posted> sends;
    std::vector<JobRank> group;        ///< ranks of the members, ascending; where collectives may sum, as far as known
    std::optional<Posted> collective;  ///< the pending sum
    std::vector<Stage> started;
    Timestamp begin;  ///< of the first of them
  };
  enum class Phase : std::uint8_t { Sum, Gather, Values };

  [[nodiscard]] std::vector<Member> holders(const std::vector<Stage>& stages) const;
  /// Of parameters that replicas, cut differently, sum together.
  [[nodiscard]] std::vector<Member> holders(const SummedParameters& together) const;
  void addReduction(std::uint32_t id, Stage stage, std::size_t group, std::vector<Member> members, std::size_t owners, bool pieces);
  void begin(Reduction& reduction, std::size_t member);
  void startMessages(Reduction& reduction, std::size_t member);
  void addUp(Reduction& reduction);
  void gather(Reduction& reduction, bool values);
  void gatherByMessages(const Reduction& reduction, bool values);
  [[nodiscard]] std::optional<Posted> startCollective(const Reduction& reduction, Collective what, bool values);
  [[nodiscard]] Posted message(const Reduction& reduction, std::size_t from, std::size_t to, Phase phase, Buffer buffer);
  void await(const Posted& posted) { flights_.await(communicator_, posted.request, posted.flight); }
  [[nodiscard]] FlightEntry entryOf(const Reduction& reduction, std::size_t member, bool values) const;
  [[nodiscard]] ParameterGroup groupOf(const Reduction& reduction, std::size_t member) const;
  [[nodiscard]] std::uint32_t tag(const Reduction& reduction, std::size_t from, std::size_t to, Phase phase) const;
  /// Elements [first, last) of updater k of a group of `elements`.
  [[nodiscard]] static std::pair<std::int64_t, std::int64_t> piece(const Reduction& reduction, std::size_t k, std::int64_t elements);

  const Plan& plan_;
  const std::map<Stage, StageModule*>& stages_;
  Communicator& communicator_;
  const Device& device_;
  FlightRecord& flights_;
  StepTimes& times_;
  std::chrono::milliseconds deadline_;
  Rank rank_;              // in its pipeline, for the log
  std::set<Stage> early_;  // whose collectives begin at `start`
  std::uint32_t firstTag_;
  std::uint32_t mostMembers_ = 1;
  std::uint32_t numbers_ = 0;  // number of sums so far, the same on all ranks
  std::vector<Reduction> reductions_;
};

}  // namespace pw
