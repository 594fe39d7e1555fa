#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "backends/messages/channel/link.h"
#include "engine/autograd/autograd.h"
#include "engine/remote/remote.h"

namespace pw {

class MessageChannel;

/// Remote calls and distributed autograd of one worker over a channel to the others, whom the link reaches. Any thread may use it; one
/// thread makes and destroys it.
class LinkedWorker {
 public:
  /// Makes functions known before anybody can call them.
  using Define = std::function<void(Remote&, DistributedAutograd&)>;
  using Sends = std::function<bool(JobRank to, const ChannelMessage&)>;

  /// Connects; blocks until all have. The settings have the link's rank and the table of functions; their token is made here. A worker that
  /// sends nothing for `lostAfter`, not even that it lives, is lost. `sends`: false where a message gets lost, for tests. Throws UsageError
  /// where `define` calls others, who are not connected then, and as `define` and `link` do.
  LinkedWorker(RemoteSettings settings, const LinkMaker& link, std::chrono::milliseconds lostAfter, const Define& define, Sends sends = {});
  ~LinkedWorker();  ///< as `leave`
  LinkedWorker(const LinkedWorker&) = delete;
  LinkedWorker& operator=(const LinkedWorker&) = delete;

  [[nodiscard]] Remote& remote() { return *remote_; }
  [[nodiscard]] DistributedAutograd& autograd() { return *autograd_; }

  /// Ends this worker's part at once: what was sent is handled first, own calls and passes end with an error, functions that run here are
  /// waited for, and the others hear that it left. A second call only waits for the first. Any thread that is no call's may call it.
  void leave();

 private:
  [[nodiscard]] Remote::Send sender(Sends sends);

  std::promise<MessageChannel*> connected_;  ///< null: it left before
  std::shared_future<MessageChannel*> channelOnceConnected_{connected_.get_future()};
  std::unique_ptr<MessageChannel> channel_;  ///< goes last: threads of the others may send until they have gone
  std::unique_ptr<Remote> remote_;
  std::unique_ptr<DistributedAutograd> autograd_;
  std::mutex leaving_;  ///< held until all has ended, so that who comes second may destroy it
  bool hasLeft_ = false;
};

}  // namespace pw
