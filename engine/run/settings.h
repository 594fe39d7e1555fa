#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/transport.h"
#include "engine/run/backward.h"
#include "engine/worker.h"
#include "simulator/plan/optimizer.h"
#include "simulator/plan/plan.h"

namespace pw {

/// How a plan is to be run: the options of `pipewright run`, but for those about what it prints.
struct RunSettings {
  std::string plan, store, data = "synthetic", loss, lossCount, outputs, save, resume, log, live;
  std::vector<std::string> models;  ///< archives to use instead of the plan's, if those have moved
  Order order = Order::Plan;
  Backward backward = Backward::Schedule;
  LossScope lossOver = LossScope::PerMicrobatch;
  std::optional<Transport> transport;                   ///< nothing: not given; `followPlan` then sets it as the plan was profiled
  std::optional<OptimizerSpec::Kind> optimizer;         ///< nothing: not given; `completeOptimizer` then takes the plan's
  std::optional<double> momentum;                       ///< likewise; with an optimizer: 0
  std::optional<bool> zero1;                            ///< likewise
  std::optional<DType> precision;                       ///< likewise; Unknown: as traced, BFloat16, Float16
  std::optional<bool> tf32, graphs;                     ///< nothing: not given; `followPlan` then sets them as the plan was profiled
  Computing computing;                                  ///< the resulting settings; set by `followPlan`
  int steps = 1, threads = 0, saveEvery = 0, keep = 0;  ///< threads 0: not given; set by `followPlan` as well
  std::vector<double> betas;
  std::vector<std::string> libraries;  ///< in addition to the plan's
  OptimizerSpec update;                ///< its kind is set by `completeOptimizer`
  double clipNorm = 0;
  std::uint64_t seed = 0;
  double timeoutSeconds = 120;
  std::shared_ptr<const BatchFeed> feed;  ///< gives this process the batches, in place of `data`; null: none
  int recordedAs = 0;                     ///< the run's number in the store, where our launcher began its record; 0: nobody did
  bool skipNonFinite = false, findNan = false, resetOptimizer = false;
  bool verify = false, masked = false, evaluates = false, initRandom = false, synthetic = false;
};

/// Combines the options of the optimizer, and takes what was not given from what the plan accounts for: `options.update` and
/// `options.zero1` are then as they run. Throws UsageError if options contradict each other.
void completeOptimizer(RunSettings& options, const Plan& plan);
/// Sets options that were not given to how the plan was profiled.
void followPlan(RunSettings& options, const Plan& plan);
/// A sentence if the predicted times do not apply to this run, because the costs were measured with other settings. Otherwise empty.
[[nodiscard]] std::string costsNote(const RunSettings& options, const Plan& plan);
/// A sentence if the plan's memory does not apply to this run, because it accounts for a different optimizer. Otherwise empty.
[[nodiscard]] std::string optimizerNote(const RunSettings& options, const Plan& plan);
/// Throws UsageError for options that contradict each other, the plan or this machine.
void refuseWhatCannotRun(const RunSettings& options, const Plan& plan);
/// Throws UsageError where ZeRO would cut complex parameters into shares: a share may end between real and imaginary part.
void refuseSharesOfComplexNumbers(const RunSettings& options, const Plan& plan, const ModelGraph& graph);
/// How long any wait between ranks may last.
[[nodiscard]] std::chrono::milliseconds deadlineOf(const RunSettings& options);
/// Throws UsageError for a --loss-count that does not fit the model; otherwise a sentence on how training on the model's own loss differs
/// from training on the whole batch, if it does and the microbatches are not weighted.
[[nodiscard]] std::string lossNote(const RunSettings& options, const Plan& plan, const ModelGraph& graph);
/// A sentence on parameters that weight decay changes although the loss gives them no gradient; empty if there are none.
[[nodiscard]] std::string decayNote(const RunSettings& options, const Plan& plan, const ModelGraph& graph);
/// The same as options of the engine. Reads the checkpoint to resume from.
[[nodiscard]] TrainOptions trainOptions(const RunSettings& options, const Plan& plan);
/// File-name prefix of the flight records that failing ranks write: next to the run store, or in the current folder.
[[nodiscard]] std::string flightFiles(const RunSettings& options);

}  // namespace pw
