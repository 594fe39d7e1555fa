#pragma once

#include <chrono>
#include <map>
#include <memory>

#include "backends/messages/channel/link.h"
#include "backends/messages/communicator.h"
#include "backends/stages/stage_module.h"
#include "backends/torch/backend.h"
#include "engine/step_log.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Trains a plan's stages by remote calls and distributed autograd instead of its schedule: each value goes to the stage that uses it by a
/// call, gradients find their own way back, and a rank computes what came first. It shows what the schedule buys.
///
/// One rank's part. What the ranks do in between (sums of gradients, optimizer, logs) goes over their communicator, as in a scheduled step.
class DynamicPipeline {
 public:
  /// Connects with the other ranks (`link` throws Error where they do not meet); `deadline` bounds every wait. The plan must outlive it.
  DynamicPipeline(const Plan& plan, const LinkMaker& link, const TorchBackend& torch, std::chrono::milliseconds deadline);
  ~DynamicPipeline();
  DynamicPipeline(const DynamicPipeline&) = delete;
  DynamicPipeline& operator=(const DynamicPipeline&) = delete;

  /// Forwards and backwards of a step, between two barriers of all ranks; the stages, which are `StageOptions::distributed`, then have the
  /// rank's part of all gradients. Spans and memory go to the log. Throws Error naming a lost rank, and what a stage of any rank throws;
  /// then this can only be destroyed.
  void run(const std::map<Stage, StageModule*>& stages, Communicator& communicator, StepLog& log);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
