#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/waits.h"
#include "backends/stages/stage_module.h"
#include "engine/exchange.h"
#include "engine/flight_record.h"
#include "engine/live_spans.h"
#include "engine/loss_scale.h"
#include "engine/non_finite.h"
#include "engine/ops.h"
#include "engine/ready_order.h"
#include "engine/reducer.h"
#include "engine/step_times.h"
#include "simulator/plan/plan.h"

namespace pw {

/// In which order a rank does the actions of its row.
enum class Order : std::uint8_t {
  Plan,   ///< exactly in the order of the row
  Ready,  ///< whichever is ready first (ready_order.h)
};
constexpr std::string_view nameOf(Order order) {
  switch (order) {
    case Order::Plan: return "plan";
    case Order::Ready: return "ready";
  }
  return {};
}

struct ExecutorOptions {
  Order order = Order::Plan;
  bool shardOptimizer = false;  ///< ZeRO stage 1 over the holders of each stage
  double clipNorm = 0;          ///< largest norm of the gradient of the whole model; 0: none
  bool scaleLoss = false;       ///< gradients are float16: scale them (see loss_scale.h), and skip the update if they overflow
  LossScale lossScale{};        ///< of the first step, with `scaleLoss`
  bool checkFinite = true;      ///< check whether each step's loss and gradients are finite; otherwise the log's `notFinite` is not set
  bool skipNonFinite = false;   ///< if they are not, leave all parameters and buffers unchanged; otherwise they may be changed, and the
                                ///< training cannot continue
  bool sumLoss = false;         ///< every rank gets the total loss, not its part
  /// Runs the forwards and backwards of a step instead of the row, if it is not empty; see DynamicPipeline.
  std::function<void(const std::map<Stage, StageModule*>& stages, Communicator&, StepLog&)> instead{};
  std::string flightFiles{};  ///< file-name prefix of flight records (flight_record.h), which failing ranks write to `<prefix><rank>.json`;
                              ///< empty: none
  std::string flightJob{};    ///< of the records: what tells this start of the job from others
  std::chrono::milliseconds deadline = kUsualWait;  ///< for work that is pending on a device at a step's end
};

/// Runs one rank's row of a plan: one loop over ops. Sends do not block the loop. On a GPU the loop runs ahead of the work that it
/// enqueues: within a step only the buffers of sends wait for the device, and times are those of the device's clock.
class Executor {
 public:
  /// `stages`: the modules of this rank's stages, by stage. All must outlive the executor. `communicator`: all ranks of all replicas. In
  /// ready order a step throws UsageError if the transport cannot tell what has arrived.
  Executor(const Plan& plan, std::map<Stage, StageModule*> stages, Communicator& communicator, const ExecutorOptions& options);

  /// From the next step on, reports progress while a step runs; null: no reports.
  void tellTo(LiveWriter* live) { live_ = live; }

  /// One training step: barrier, all actions, sum of gradients, then `beforeUpdate` (may be empty; sees all sums, multiplied by the loss
  /// scale) and the optimizer. Throws Error naming rank, step and action, and what the rank waited for, when a stage or a message fails.
  [[nodiscard]] StepLog step(int number, const std::function<void()>& beforeUpdate);

  /// Runs all forwards of a step without gradients. The stages keep the model's outputs; the loss is in the log.
  [[nodiscard]] StepLog evaluate(int number);

  /// What this rank did in its last step; the messages after it are noted there, too.
  [[nodiscard]] FlightRecord& flights() { return flights_; }
  /// The sentence of a failure between a step and the next, `phase` being as in `when its times were collected`. Writes the flight record.
  [[nodiscard]] std::string reportAfter(int number, const char* phase, const std::exception& failure) noexcept;

  /// The loss scale of the next step, the same on all ranks; nothing without `scaleLoss`.
  [[nodiscard]] std::optional<LossScale> lossScale() const { return options_.scaleLoss ? std::optional(lossScale_) : std::nullopt; }

 private:
  void runTraining();
  void runInOrder(const std::vector<Op>& ops);
  void runReady();
  void runOpen(ReadyOrder& row);
  void run(const Op& op);
  void compute(const Action& action);
  void barrier();
  void finish();
  void finishDevice();
  void update(const std::function<void()>& beforeUpdate);
  [[nodiscard]] bool wantsNorm() const { return options_.scaleLoss || options_.clipNorm > 0; }
  [[nodiscard]] bool checksLate() const { return !isHost() && !wantsNorm() && !options_.skipNonFinite; }
  double exchangeNumbers();
  void noteNonFinite(const std::vector<StepNumbers>& all, double loss);
  void locateGradient(int number, StepLog& log);
  [[nodiscard]] Span spanOf(SpanKind kind, const Action& action) const;
  [[nodiscard]] bool isHost() const { return device_.index < 0; }
  void settleTimes();
  [[nodiscard]] std::string reportOf(int number, const std::exception& failure) noexcept;
  [[nodiscard]] StepLog guarded(int number, StepMode mode, const std::function<void()>& work);

  const Plan& plan_;
  std::map<Stage, StageModule*> stages_;
  Communicator& communicator_;
  ExecutorOptions options_;
  const Device& device_;
  Rank rank_;  // in its pipeline
  FlightRecord flights_;
  StepTimes times_;
  Exchange exchange_;
  Reducer reducer_;
  LossScale lossScale_;
  std::vector<Op> ops_, evaluation_;
  LiveWriter* live_ = nullptr;
  StepLog log_;
  CheckedStages checked_;
  bool unlocated_ = false;              // a parameter's gradient is not finite, and it is unknown in which microbatch
  std::optional<GradientWatch> watch_;  // while the step is repeated to find it
  std::optional<Action> current_;       // for the sentence of a failure
  std::string phase_;
};

}  // namespace pw
