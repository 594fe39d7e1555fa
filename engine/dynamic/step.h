#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backends/torch/autograd/stages.h"
#include "engine/autograd/autograd.h"
#include "engine/dynamic/lane.h"
#include "engine/remote/call_threads.h"
#include "engine/step_log.h"
#include "engine/step_times.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What the steps of a rank share.
struct DynamicRank {
  const Plan& plan;
  Replicas replicas;
  JobRank self;
  const StageFunctions& functions;
  Remote& remote;
  DistributedAutograd& autograd;
  Lane& lane;
  CallThreads& passes;  ///< each waits for a backward pass
  std::chrono::milliseconds deadline;
};

/// One step of a rank whose stages are called: what came for which microbatch, and what is done. All on the lane's thread.
///
/// The rank of the last stage opens an autograd context for each microbatch and has its first stages run; each stage calls those that use
/// its values; from the loss the backward pass of the context finds its way back; then every rank adds the context's gradients to its
/// stages', microbatch after microbatch, and the context ends. A stage runs its forwards in the order of microbatches, so that buffers
/// change as in a scheduled step; all else runs in the order in which it came.
class DynamicStep {
 public:
  DynamicStep(const DynamicRank& rank, const std::map<Stage, StageModule*>& stages, StepLog& log);
  DynamicStep(const DynamicStep&) = delete;
  DynamicStep& operator=(const DynamicStep&) = delete;

  /// Calls the first stages for all microbatches, on the rank of the last stage; nothing on others.
  void begin();
  [[nodiscard]] bool isDone() const;

  /// A microbatch begins at a stage that needs no values.
  void start(ContextId context, Stage stage, Microbatch microbatch, Ns came);
  /// The values that one stage makes for one of this rank came, by transfer. `message`: none if they need no gradient.
  void take(ContextId context, Microbatch microbatch, const std::map<std::size_t, TensorHandle>& values, AutogradMessageId message,
            Ns came);
  /// A message with the values that are being sent goes out.
  void noteSent(AutogradMessageId message) { messages_[message] = sending_; }
  /// Runs a piece of a backward pass, whose gradients came for a message.
  void runPiece(ContextId context, AutogradMessageId message, const std::function<void()>& piece, Ns came);
  /// Gradients of a message go out; null where a value gets none.
  void noteGradient(AutogradMessageId message, const std::vector<TensorHandle>& gradients);
  /// The microbatch's pass is over everywhere: its gradients can be added.
  void collect(ContextId context, Microbatch microbatch);
  /// A rank has added them.
  void collected(Microbatch microbatch);

 private:
  /// A message of values, and the one back with their gradients.
  struct Link {
    Stage from, to;
    Microbatch microbatch;
  };
  struct Waiting {
    std::map<std::size_t, TensorHandle> received;
    Ns came = 0;  ///< the last of them
    bool isStarted = false;
  };

  [[nodiscard]] bool leads() const { return rankOf(lastStage_) == self_; }
  [[nodiscard]] Rank rankOf(Stage stage) const { return rank_.plan.schedule.placement.rankOfStage[stage.index()]; }
  [[nodiscard]] const std::string& nameOf(Rank rank) const;
  [[nodiscard]] const Transfer& transferOf(std::size_t transfer) const { return rank_.plan.partition.transfers.at(transfer); }
  [[nodiscard]] bool isReady(Stage stage, const Waiting& waiting) const;
  [[nodiscard]] std::chrono::milliseconds longest() const;
  void call(Rank rank, const std::string& function, const RemoteValue& arguments);
  void noteMessage(SpanKind kind, Stage stage, Microbatch microbatch, Rank from, Rank to, Bytes bytes, Ns now);
  void runForwards(Stage stage);
  void forward(Stage stage, Microbatch microbatch, Waiting waiting);
  void send(const Link& link, const std::vector<StageOutput>& values);
  void backward(Microbatch microbatch, const TensorHandle& loss);
  void passed(Microbatch microbatch);
  /// Does it as a span, with its memory and the wait for what came. The rank has stages.
  void timed(const Span& span, Ns came, const std::function<void()>& work);

  const DynamicRank& rank_;
  const std::map<Stage, StageModule*>& stages_;
  StepLog& log_;
  StepTimes times_;
  const Rank self_;
  const Stage lastStage_;
  Ns idleSince_;
  std::vector<ContextId> contexts_;  ///< by microbatch; none: not heard of
  std::map<ContextId, Microbatch> microbatchOf_;
  std::vector<std::size_t> incoming_;  ///< how many values each stage needs
  std::map<Stage, std::map<Microbatch, Waiting>> waiting_;
  std::map<Stage, Microbatch> next_;  ///< forward of each stage
  std::map<AutogradMessageId, Link> messages_;
  Link sending_;
  std::set<Microbatch> passed_, toCollect_;
  std::map<Microbatch, int> collectedBy_;      ///< ranks
  int requested_ = 0, added_ = 0, ended_ = 0;  ///< microbatches
};

}  // namespace pw
