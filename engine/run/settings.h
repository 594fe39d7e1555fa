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
#include "simulator/model/export_record.h"
#include "simulator/plan/optimizer.h"
#include "simulator/plan/plan.h"

namespace pw {

/// How long a wait of a run may take where `--timeout` does not say otherwise.
inline constexpr std::chrono::milliseconds kRunTimeout{120'000};

/// What is requested of a run: the options of `pipewright run`, but for those about what it prints. What is not given (nothing, 0, empty)
/// is taken from the plan (`settle`).
struct RunRequest {
  std::string plan, store, data = "synthetic", loss, lossCount, outputs, save, resume, log, live;
  std::vector<std::string> models;  ///< archives to use instead of the plan's, if those have moved
  Order order = Order::Plan;
  Backward backward = Backward::Schedule;
  LossScope lossOver = LossScope::PerMicrobatch;
  std::optional<Transport> transport;
  std::optional<OptimizerSpec::Kind> optimizer;
  std::optional<double> momentum;  ///< not given: the plan's, with an optimizer 0
  std::optional<bool> zero1;
  std::optional<DType> precision;  ///< Unknown: as traced, BFloat16, Float16
  std::optional<bool> tf32, graphs;
  int steps = 1, threads = 0, saveEvery = 0, keep = 0;
  std::vector<double> betas;
  std::vector<std::string> libraries;  ///< in addition to the plan's
  OptimizerSpec update;                ///< what of it is not given above
  double clipNorm = 0;
  std::optional<std::uint64_t> seed;                ///< not given: of the training that is resumed, or 0
  std::chrono::milliseconds timeout = kRunTimeout;  ///< of every wait between ranks
  std::shared_ptr<const BatchFeed> feed;            ///< gives this process the batches, in place of `data`; null: none
  std::optional<RunId> recordedAs;                  ///< the run in the store, where our launcher began its record
  bool skipNonFinite = false, findNan = false, resetOptimizer = false;
  bool verify = false, masked = false, evaluates = false, initRandom = false, synthetic = false;
};

/// How a plan is run: nothing is left open.
struct RunSettings {
  RunRequest request;  ///< for all that it decides alone
  Transport transport = Transport::Ucx;
  Computing computing;
  int threads = 1;
  OptimizerSpec update;
  std::uint64_t seed = 0;
  bool zero1 = false;
};

/// What was not given as the plan was profiled, as it accounts for the optimizer, and as the checkpoint's training had it. Throws
/// UsageError if options contradict each other.
[[nodiscard]] RunSettings settle(const RunRequest& request, const Plan& plan);
/// A sentence if the predicted times do not apply to this run, because the costs were measured with other settings. Otherwise empty.
[[nodiscard]] std::string costsNote(const RunSettings& settings, const Plan& plan);
/// A sentence if the plan's memory does not apply to this run, because it accounts for a different optimizer. Otherwise empty.
[[nodiscard]] std::string optimizerNote(const RunSettings& settings, const Plan& plan);
/// Throws UsageError for options that contradict each other, the plan or this machine.
void refuseWhatCannotRun(const RunSettings& settings, const Plan& plan);
/// Throws UsageError where ZeRO would cut complex parameters into shares (one may end between real and imaginary part), and where a
/// training would change the buffers of two copies of a stage (`obstacleToCopies`), or a parameter that a later backward uses
/// (`parameterReadWhileChanged`, unless each backward comes before the next forward).
void refuseForModel(const RunSettings& settings, const Plan& plan, const ModelGraph& graph);
/// Throws UsageError for an evaluation of a model that does in eval() what its trace cannot, as its export found.
void refuseToEvaluate(const RunSettings& settings, const ExportRecord& exported);
/// Throws UsageError for a --loss-count that does not fit the model; otherwise a sentence on how training on the model's own loss differs
/// from training on the whole batch, if it does and the microbatches are not weighted.
[[nodiscard]] std::string lossNote(const RunSettings& settings, const Plan& plan, const ModelGraph& graph);
/// A sentence on parameters that weight decay changes although the loss gives them no gradient; empty if there are none.
[[nodiscard]] std::string decayNote(const RunSettings& settings, const Plan& plan, const ModelGraph& graph);
/// The same as options of the engine. Reads the checkpoint to resume from.
[[nodiscard]] TrainOptions trainOptions(const RunSettings& settings, const Plan& plan);
/// File-name prefix of the flight records that failing ranks write: next to the run store, or in the current folder.
[[nodiscard]] std::string flightFiles(const RunRequest& request);

}  // namespace pw
