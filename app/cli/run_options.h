#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/optimizer_spec.h"
#include "engine/worker.h"
#include "simulator/plan.h"

namespace pw::cli {

/// What a call of `run` asks for.
struct RunOptions {
  std::string plan, store, transport = "ucx", data = "synthetic", loss, lossOver = "microbatch", optimizer = "sgd", order = "plan", outputs, save, resume, log, live,
      progressStyle = "auto", precision = "traced";
  int steps = 1, threads = 1, saveEvery = 0;
  std::vector<double> betas;
  OptimizerSpec update;
  double clipNorm = 0;
  std::uint64_t seed = 0;
  double timeoutSeconds = 120;
  bool verify = false, masked = false, evaluates = false, shardOptimizer = false, json = false, initRandom = false, synthetic = false, tf32 = false, noGraphs = false;
};

/// Puts together the numbers of the optimizer. Throws UsageError where they do not fit each other.
void completeOptimizer(RunOptions& options);
/// Throws UsageError for options that do not fit each other, the plan or this machine.
void refuseWhatCannotRun(const RunOptions& options, const Plan& plan);
/// What they mean to the engine. Reads the checkpoint to resume from.
[[nodiscard]] TrainOptions trainOptions(const RunOptions& options, const Plan& plan);
/// How the flight records begin that ranks write when they fail: beside the run store, or here.
[[nodiscard]] std::string flightFiles(const RunOptions& options);

}  // namespace pw::cli
