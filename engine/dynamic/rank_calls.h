#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>

#include "backends/messages/channel/link.h"
#include "engine/autograd/autograd.h"
#include "engine/remote/remote.h"

namespace pw {

class MessageChannel;

/// Remote calls and distributed autograd between the ranks of a job that have met already; workers are called `rank 0`, `rank 1`, ….
class RankCalls {
 public:
  using Define = std::function<void(Remote&, DistributedAutograd&)>;

  /// Connects; blocks until all ranks have. `define` makes functions known before anybody can call them. Throws as `link`.
  RankCalls(const LinkMaker& link, const AutogradFunctions& functions, std::chrono::milliseconds deadline, const Define& define);
  ~RankCalls();  ///< as `leave`

  RankCalls(const RankCalls&) = delete;
  RankCalls& operator=(const RankCalls&) = delete;

  /// What was sent is handled first, then own calls and passes end with an error.
  void leave();
  [[nodiscard]] Remote& remote() { return *remote_; }
  [[nodiscard]] DistributedAutograd& autograd() { return *autograd_; }

 private:
  std::promise<MessageChannel*> connected_;
  std::unique_ptr<MessageChannel> channel_;  ///< goes last: threads of the others may send until they have gone
  std::unique_ptr<Remote> remote_;
  std::unique_ptr<DistributedAutograd> autograd_;
};

}  // namespace pw
