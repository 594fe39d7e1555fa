#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/messages/channel/message.h"

namespace pw {

/// What a message between workers is.
enum class MessageKind : std::uint8_t {
  Call,
  Result,
  GiveBack,  ///< a share of a reference
  Shutdown,
  Autograd,
  Lost,  ///< a third worker is lost to the sender
};

/// Letters of one job: each carries the job's token and its number on the way from one worker to the other. Strangers' messages are refused
/// and repeated ones dropped, so that everything above sees each message once.
class Post {
 public:
  using Send = std::function<void(JobRank, ChannelMessage)>;

  Post(JobRank self, std::size_t workers, std::uint64_t token, Send send);

  /// Any thread. Returns false, and sends nothing, where the worker is lost.
  bool send(JobRank to, MessageKind kind, std::string_view body, std::vector<HeldBuffer> parts = {});

  struct Letter {
    MessageKind kind{};
    std::string_view body;  ///< in the message's head
  };
  /// Nothing for a repeated message. Throws Error for a damaged one, or one of another job. One thread.
  [[nodiscard]] std::optional<Letter> open(JobRank from, const ChannelMessage& message);

  bool lose(JobRank worker);  ///< false where it was lost before
  [[nodiscard]] bool isLost(JobRank worker) const;
  [[nodiscard]] JobRank self() const { return self_; }
  [[nodiscard]] std::size_t workers() const { return lines_.size(); }

 private:
  struct Line {
    std::mutex mutex;
    std::uint64_t sent = 0;      ///< last number; under the mutex, so that numbers go out in their order
    std::uint64_t received = 0;  ///< last number
    std::atomic<bool> lost = false;
  };
  [[nodiscard]] Line& line(JobRank worker) const { return *lines_.at(worker.index()); }

  JobRank self_;
  std::uint64_t token_;
  Send send_;
  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace pw
