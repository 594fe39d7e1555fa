#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/messages/channel/message_channel.h"

namespace pw {

// What tests of message channels need.

/// Far above what any test needs.
constexpr std::chrono::milliseconds kPatience{30'000};

/// What a channel reported, for other threads to wait for.
class Reports {
 public:
  struct Message {
    int from = 0;
    ChannelMessage message;
  };
  MessageChannel::OnMessage onMessage() {
    return [this](JobRank from, ChannelMessage message) {
      const std::lock_guard lock(mutex_);
      messages_.push_back({from.value, std::move(message)});
      threads_.push_back(std::this_thread::get_id());
      changed_.notify_all();
    };
  }
  MessageChannel::OnLost onLost() {
    return [this](JobRank rank, const std::string& why) {
      const std::lock_guard lock(mutex_);
      losses_.emplace_back(rank.value, why);
      changed_.notify_all();
    };
  }
  /// The messages so far, once there are so many; fewer when that took too long.
  std::vector<Message> waitForMessages(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return messages_.size() >= count; });
    return messages_;
  }
  std::vector<std::pair<int, std::string>> waitForLosses(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return losses_.size() >= count; });
    return losses_;
  }
  std::vector<std::thread::id> threads() {
    const std::lock_guard lock(mutex_);
    return threads_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> messages_;
  std::vector<std::thread::id> threads_;
  std::vector<std::pair<int, std::string>> losses_;
};

/// The channels of a job whose ranks are in this process.
class ChannelJob {
 public:
  explicit ChannelJob(const std::vector<LinkMaker>& links, const ChannelOptions& options = {}) {
    std::vector<std::future<std::unique_ptr<MessageChannel>>> connecting;
    while (reports_.size() < links.size()) reports_.push_back(std::make_unique<Reports>());
    for (std::size_t r = 0; r < links.size(); ++r) {
      connecting.push_back(std::async(std::launch::async, [&, r] {
        return std::make_unique<MessageChannel>(links[r], reports_[r]->onMessage(), reports_[r]->onLost(), options);
      }));
    }
    for (auto& channel : connecting) channels_.push_back(channel.get());
  }
  MessageChannel& operator[](int rank) { return *channels_[static_cast<std::size_t>(rank)]; }
  Reports& reports(int rank) { return *reports_[static_cast<std::size_t>(rank)]; }
  void end(int rank) { channels_[static_cast<std::size_t>(rank)].reset(); }
  /// Closes all at once; whether all was handled.
  bool close(std::chrono::milliseconds deadline = kPatience) {
    std::vector<std::future<bool>> closing;
    for (auto& channel : channels_) {
      if (channel) closing.push_back(std::async(std::launch::async, [&channel, deadline] { return channel->close(deadline); }));
    }
    bool all = true;
    for (auto& closed : closing) all &= closed.get();
    return all;
  }

 private:
  std::vector<std::unique_ptr<Reports>> reports_;  // outlive the channels
  std::vector<std::unique_ptr<MessageChannel>> channels_;
};

/// Memory whose bytes tell its size and salt, so that bytes in a wrong place or of another message show.
inline HeldBuffer partOf(std::size_t size, std::size_t salt) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(size);
  for (std::size_t i = 0; i < size; ++i) (*bytes)[i] = static_cast<std::byte>((i * 31 + i / 251 + salt) % 256);
  return {{bytes->data(), size}, bytes};
}

/// Two messages of the same contents.
inline bool areEqual(const ChannelMessage& a, const ChannelMessage& b) {
  return a.head == b.head && std::ranges::equal(a.parts, b.parts, [](const HeldBuffer& x, const HeldBuffer& y) {
           return x.buffer.bytes == y.buffer.bytes &&
                  (x.buffer.bytes == 0 || std::memcmp(x.buffer.data, y.buffer.data, x.buffer.bytes) == 0);
         });
}

}  // namespace pw
