#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "engine/autograd/watch.h"
#include "engine/remote/remote.h"
#include "simulator/trace/trace.h"

namespace pw {

/// What one worker saw of its calls and passes. Times are on the monotonic clock of its host.
struct CallLog {
  /// Something that ran here.
  struct Work {
    SpanKind kind = SpanKind::Forward;
    ContextId context;
    Ns start = 0, end = 0;
  };
  /// One end of a message with tensors that need gradients, or of the one back.
  struct End {
    AutogradMessageId message;
    ContextId context;
    JobRank from, to;
    SpanKind kind = SpanKind::SendForward;
    bool isSent = false;
    Bytes bytes = 0;  ///< known where values came and gradients went
    Ns at = 0;
  };
  std::vector<Work> work;
  std::vector<End> ends;
  std::size_t leftOut = 0;  ///< of both, because the log was full
};

/// Records a worker of a program without a plan. Any thread; outlives the worker's calls.
class CallRecorder {
 public:
  /// Entries of each kind in a log: 84 MB in all.
  static constexpr std::size_t kMost = 1 << 20;

  /// `functions`: the worker's. From `most` entries of a kind on, later ones are only counted until the log is taken.
  CallRecorder(JobRank self, const AutogradFunctions& functions, std::size_t most = kMost)
      : self_(self), functions_(functions), most_(most) {}

  /// For DistributedAutograd::watch: messages of tensors, pieces of passes and gradients.
  [[nodiscard]] AutogradWatch watch();
  /// The function, whose runs are recorded as forwards.
  [[nodiscard]] Remote::Function recorded(Remote::Function function);
  /// Does it and records it in the context that is open in this thread: as a forward what the worker computes itself, or as the optimizer.
  void record(SpanKind kind, const std::function<void()>& work);
  /// What was recorded since the last call.
  [[nodiscard]] CallLog take();

 private:
  void add(SpanKind kind, ContextId context, Ns start);
  void addEnd(const CallLog::End& end);
  [[nodiscard]] Bytes bytesOf(const std::vector<TensorHandle>& tensors) const;

  const JobRank self_;
  const AutogradFunctions& functions_;
  const std::size_t most_;
  std::mutex mutex_;
  CallLog log_;
};

/// One trace of what all workers saw (index = rank), with clocks that agree. A worker is a rank and one stage of the same number; an
/// autograd context is a microbatch, in the order in which they were first seen, and what ran in none has −1. Where several works of a
/// worker ran at a time, as where one calls itself and waits, its lane shows the one that began last. Cost: n log n.
[[nodiscard]] Trace joinCalls(const std::vector<CallLog>& workers);

}  // namespace pw
