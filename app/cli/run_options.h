#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/optimizer_spec.h"
#include "engine/worker.h"
#include "simulator/plan/plan.h"

namespace pw::cli {

/// What a call of `run` asks for.
struct RunOptions {
  std::string plan, store, data = "synthetic", loss, lossCount, lossOver = "microbatch", optimizer = "sgd", order = "plan", outputs, save,
                           resume, log, live, progressStyle = "auto";
  std::vector<std::string> models;                      ///< archives in place of the plan's, which have moved
  std::string transport, precision;                     ///< empty: as the plan was profiled, until `followPlan`
  std::optional<bool> tf32, graphs;                     ///< none: so, too
  Computing computing;                                  ///< what these come to, by `followPlan`
  int steps = 1, threads = 0, saveEvery = 0, keep = 0;  ///< threads 0: so, too
  std::vector<double> betas;
  std::vector<std::string> libraries;  ///< beside the plan's
  OptimizerSpec update;
  double clipNorm = 0;
  std::uint64_t seed = 0;
  double timeoutSeconds = 120;
  int recordedAs = 0;  ///< the run's number in the store, where our launcher began its record; 0: nobody did
  bool skipNonFinite = false, findNan = false, resetOptimizer = false;
  bool verify = false, masked = false, evaluates = false, shardOptimizer = false, json = false, initRandom = false, synthetic = false;
};

/// Puts together the numbers of the optimizer. Throws UsageError where they do not fit each other.
void completeOptimizer(RunOptions& options);
/// Lets the run compute as its plan was profiled, where its options do not say how.
void followPlan(RunOptions& options, const Plan& plan);
/// Why predicted times are not those of this run, a sentence: the costs were measured while computing in another way. Else empty.
[[nodiscard]] std::string costsNote(const RunOptions& options, const Plan& plan);
/// Why the plan's memory is not that of this run, a sentence: it accounts for another optimizer. Else empty.
[[nodiscard]] std::string optimizerNote(const RunOptions& options, const Plan& plan);
/// Throws UsageError for options that do not fit each other, the plan or this machine.
void refuseWhatCannotRun(const RunOptions& options, const Plan& plan);
/// Throws UsageError where ZeRO would cut complex parameters into shares: a share may end between real and imaginary part.
void refuseSharesOfComplexNumbers(const RunOptions& options, const Plan& plan, const ModelGraph& graph);
/// How long any wait between ranks may last.
[[nodiscard]] std::chrono::milliseconds deadlineOf(const RunOptions& options);
/// Throws UsageError for a --loss-count that does not fit the model; else says how training on the model's own loss differs from training
/// on the whole batch, a sentence, where it does and nothing weighs the microbatches.
[[nodiscard]] std::string lossNote(const RunOptions& options, const Plan& plan, const ModelGraph& graph);
/// What they mean to the engine. Reads the checkpoint to resume from.
[[nodiscard]] TrainOptions trainOptions(const RunOptions& options, const Plan& plan);
/// How the flight records begin that ranks write when they fail: beside the run store, or here.
[[nodiscard]] std::string flightFiles(const RunOptions& options);

}  // namespace pw::cli
