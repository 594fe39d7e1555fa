#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/channel/message.h"
#include "backends/messages/waits.h"
#include "engine/remote/future.h"
#include "engine/remote/value.h"

namespace pw {

class Deadlines;

struct RemoteSettings {
  JobRank self;
  std::vector<std::string> names;  ///< of all workers, in the order of their ranks; each once
  std::uint64_t token = 0;         ///< of the job: messages with another are refused
  std::chrono::milliseconds deadline =
      kUsualWait;                                ///< of a call that gives none; one made by a function ends before that function's own call
  int runningCalls = 16;                         ///< calls that compute at a time; those that wait for other calls do not count
  int mostThreads = 1024;                        ///< for calls, waiting ones included
  const AutogradFunctions* functions = nullptr;  ///< `torchBackend().autograd()`; null: no tensors
};

/// What is left; all are 0 when nothing is in flight and nobody holds a reference.
struct RemoteCounts {
  std::size_t calls = 0;      ///< own, without a result yet
  std::size_t executing = 0;  ///< others', queued or running here
  std::size_t owned = 0;      ///< values that references point to
  std::size_t held = 0;       ///< references in this process
  std::size_t deadlines = 0;
  bool operator==(const RemoteCounts&) const = default;
};

/// What distributed autograd does with the messages of calls. All are called on the thread that sends or delivers.
struct CallHooks {
  /// Whether this worker has that context (still) open.
  std::function<bool(ContextId)> isOpen;
  /// A message with these tensors, which need gradients, goes out: attaches a send function, and says which message it is.
  std::function<AutogradMessageId(ContextId, JobRank to, const std::vector<TensorHandle>&)> sent;
  /// A message with these tensors came: attaches a receive function.
  std::function<void(ContextId, JobRank from, AutogradMessageId, const std::vector<TensorHandle>&)> received;
  std::function<void(ContextId, JobRank from)> called;  ///< a call came that is part of this context
  std::function<void(ContextId, JobRank to)> calling;   ///< one goes out
  std::function<void(ContextId, JobRank to)> late;      ///< one went out, and the context ended in the meantime
  std::function<void(JobRank from, std::string_view body, std::vector<HeldBuffer> parts)> message;  ///< one of autograd's own
  std::function<void(JobRank worker, const std::string& why)> lost;
  std::function<void()> closed;  ///< this worker ends; may come again
};

/// One worker of a job whose workers call functions on each other (torch.distributed.rpc). Any thread may call it. It does not move
/// messages: `send` does, in order for each pair of workers and without waiting, and whoever receives calls `deliver`.
class Remote {
 public:
  /// Takes and returns values; runs on a thread of its own, within the caller's autograd context. What it throws reaches the caller.
  using Function = std::function<RemoteValue(Remote& here, const RemoteValue& arguments)>;
  using Send = std::function<void(JobRank, ChannelMessage)>;
  using Deadline = std::optional<std::chrono::milliseconds>;

  Remote(RemoteSettings settings, Send send);
  ~Remote();  ///< as `close`
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  /// Makes a function known under a name; later ones replace earlier ones.
  void define(const std::string& name, Function function);

  /// Calls a function of that name on a worker. The arguments are encoded before it returns; their tensors' memory must stay as it is until
  /// the result is there. Throws UsageError for an unknown worker or values that cannot be sent.
  [[nodiscard]] RemoteFuture rpcAsync(const std::string& worker, const std::string& function, const RemoteValue& arguments = {},
                                      Deadline deadline = {});
  RemoteValue rpcSync(const std::string& worker, const std::string& function, const RemoteValue& arguments = {}, Deadline deadline = {});
  /// Likewise, but the result stays there. Returns at once; what goes wrong is thrown by `toHere`.
  [[nodiscard]] Reference remote(const std::string& worker, const std::string& function, const RemoteValue& arguments = {},
                                 Deadline deadline = {});

  /// A reference to a value of this worker.
  [[nodiscard]] Reference share(RemoteValue value);
  /// A copy of the value, fetched from its owner (with a send and a receive function in an open context); on the owner the value itself.
  [[nodiscard]] RemoteValue toHere(const Reference& reference, Deadline deadline = {});
  [[nodiscard]] RemoteFuture toHereAsync(const Reference& reference, Deadline deadline = {});
  /// The value of an own reference. Waits for it as `toHere` does; throws UsageError on another worker.
  [[nodiscard]] RemoteValue localValue(const Reference& reference, Deadline deadline = {});

  /// Ends the job in good order: blocks until all workers have called it and no call is in flight anywhere, then drops all values. Throws
  /// Error naming the worker that did not come in time, or was lost.
  void shutdown(Deadline deadline = {});

  /// Ends all own calls with an error, waits for the functions that run here, and drops all values. What is delivered later is dropped.
  void close();

  /// A message came. On one thread; returns quickly.
  void deliver(JobRank from, ChannelMessage message);
  /// A worker is gone: ends every call that waits for it.
  void lost(JobRank worker, const std::string& why);

  [[nodiscard]] JobRank rankOf(const std::string& worker) const;  ///< throws UsageError with the known names
  [[nodiscard]] const std::string& nameOf(JobRank worker) const;
  [[nodiscard]] const RemoteSettings& settings() const;
  [[nodiscard]] RemoteCounts counts() const;

  /// For distributed autograd, once, before the first message.
  void attach(CallHooks hooks);
  void sendAutograd(JobRank to, std::string_view body, std::vector<HeldBuffer> parts = {});
  [[nodiscard]] Deadlines& deadlines();
  [[nodiscard]] bool isLost(JobRank worker) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace pw
