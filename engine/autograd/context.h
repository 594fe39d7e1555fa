#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/torch/autograd/functions.h"

namespace pw {

class PassPart;

/// One end of a message between workers.
struct MessageEnd {
  NodeHandle function;
  JobRank peer;
};

/// What a worker knows of a forward and its backward passes. Members are guarded by the mutex.
struct AutogradContext {
  explicit AutogradContext(ContextId name) : id(name) {}

  const ContextId id;
  mutable std::mutex mutex;
  std::map<AutogradMessageId, MessageEnd> sends, receives;
  std::map<const void*, std::pair<TensorHandle, TensorHandle>> gradients;  ///< by tensor: it and its gradient
  std::set<JobRank> workers;                                               ///< that are known to have it, this one not included
  std::map<PassId, std::shared_ptr<PassPart>> passes;
  std::set<PassId> failed;  ///< passes whose late messages are ignored
  bool released = false;
};

/// The contexts of one worker.
///
/// Who makes a context ends it. A worker makes it when it first hears of it, which its maker learns at once: by having called that worker
/// itself, or by a message. At the end the maker releases it on all of these. A worker that hears of it again (a call that was on its way)
/// makes it anew, tells the maker, and is told to release it: so whatever the order, nothing stays. If the maker is lost, all release it.
class Contexts {
 public:
  struct Messages {
    std::function<void(JobRank to, ContextId)> joined, release;
    std::function<bool(JobRank)> isLost;
    std::function<void(std::shared_ptr<void>)> letGo;  ///< lets what a context held go, on another thread
  };
  Contexts(JobRank self, Messages messages) : self_(self), ids_(self), messages_(std::move(messages)) {}

  [[nodiscard]] ContextId open();
  /// Of its maker: releases it everywhere. Throws UsageError on other workers and where it is not open.
  void release(ContextId id);
  [[nodiscard]] std::shared_ptr<AutogradContext> find(ContextId id) const;     ///< null: not open here
  [[nodiscard]] std::shared_ptr<AutogradContext> require(ContextId id) const;  ///< throws UsageError where it is not open
  void called(ContextId id, JobRank from);                                     ///< a call of it came; not made where its maker is lost
  void calling(ContextId id, JobRank to);                                      ///< one goes out
  void late(ContextId id, JobRank to);                                         ///< one went out of a context that has ended here since
  void joined(ContextId id, JobRank from);                                     ///< a worker has it now
  void released(ContextId id);                                                 ///< its maker ends it
  /// Releases those that the worker made.
  void lost(JobRank worker);
  [[nodiscard]] std::vector<std::shared_ptr<AutogradContext>> all() const;

 private:
  [[nodiscard]] std::shared_ptr<AutogradContext> take(ContextId id);

  JobRank self_;
  IdSource<ContextId> ids_;
  Messages messages_;
  mutable std::mutex mutex_;
  std::map<ContextId, std::shared_ptr<AutogradContext>> contexts_;
};

}  // namespace pw
