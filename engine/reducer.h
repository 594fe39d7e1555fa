#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "backends/communicator.h"
#include "backends/stage_module.h"
#include "engine/step_log.h"
#include "simulator/plan.h"

namespace pw {

/// Keeps the copies of parameters equal: of a stage among the replicas of its pipeline and, in a bidirectional placement, its two ranks; of a
/// shared parameter also among its stages. Gradients of a group are summed piece by piece, each piece by one of its holders (reduce-scatter, in
/// the order of holders, so every run gives the same bits); then either all holders get all sums (all-gather) and make the same update, or each
/// updates its piece alone and sends the new values to the others: with sharded optimizer state (ZeRO stage 1; Rajbhandari et al., SC'20), and
/// for `Sharing::Transmit`, where the pieces are the owner's alone.
class Reducer {
 public:
  /// Tags from `firstTag` on are the reducer's. `communicator` spans all replicas.
  Reducer(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, std::uint32_t firstTag, bool shardOptimizer);
  /// What a failure left under way goes on in memory that the communicator keeps.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// Starts to send the stage's gradients, which are complete, where they are summed. A second call in a step does nothing.
  void start(Stage stage);
  /// Starts what was not, waits for all and sums. Gradients of all groups are then complete where they are used, or at all their holders.
  /// Spans begin and end at marks of the stages' device, here and in `update`.
  void sum(StepLog& log, bool everywhere);
  /// Of the gradients of the whole model, parameters counted once; after `sum`. Collective.
  [[nodiscard]] double norm();
  /// The optimizer, then the exchange of values where holders update pieces.
  void update(double gradientScale, StepLog& log);

  /// Sum over all ranks, in their order. Collective.
  [[nodiscard]] double allSum(double number);

 private:
  struct Member {
    Rank rank;  ///< of the communicator
    Stage stage;

    bool operator==(const Member&) const = default;
  };
  struct Received {
    Communicator::Ticket ticket = 0;
    HeldBuffer buffer;
  };
  /// One group of parameters with all who hold it.
  struct Reduction {
    std::uint32_t id = 0;
    std::vector<Member> members;
    std::vector<std::size_t> updaters;              ///< of the members: those that sum a piece each
    bool pieces = false;                            ///< and update it alone
    std::vector<std::size_t> own;                   ///< members on this rank
    std::map<std::size_t, std::size_t> groupOf;     ///< of an own member, in its stage
    std::map<std::size_t, std::vector<Received>> received;  ///< by own updater: the others' gradients of its piece
    std::vector<Communicator::Ticket> sends;
    std::vector<Stage> started;
    Mark begin = 0;                                 ///< of the first of them
  };
  enum class Phase : std::uint8_t { Sum, Gather, Values };

  [[nodiscard]] std::vector<Member> holders(const std::vector<Stage>& stages) const;
  void addReduction(std::uint32_t id, Stage stage, std::size_t group, std::vector<Member> members, std::size_t owners, bool pieces);
  void startIn(Reduction& reduction, std::size_t member);
  void gather(Reduction& reduction, bool values);
  [[nodiscard]] ParameterGroup groupOf(const Reduction& reduction, std::size_t member) const;
  [[nodiscard]] std::uint32_t tag(const Reduction& reduction, std::size_t from, std::size_t to, Phase phase) const;
  /// Elements [first, last) of updater k of a group of `elements`.
  [[nodiscard]] static std::pair<std::int64_t, std::int64_t> piece(const Reduction& reduction, std::size_t k, std::int64_t elements);

  const Plan& plan_;
  const std::map<Stage, StageModule*>& stages_;
  Communicator& communicator_;
  const Device& device_;
  Rank rank_;  // in its pipeline, for the log
  std::uint32_t firstTag_;
  std::uint32_t mostMembers_ = 1;
  std::uint32_t numbers_ = 0;  // sums of numbers so far, the same on all ranks
  std::vector<Reduction> reductions_;
};

}  // namespace pw
