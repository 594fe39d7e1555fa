#include "backends/torch/gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_map>

#include "backends/messages/transport.h"
#include "backends/torch/gloo_group.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// One message to a peer. Everything but `work` belongs to the watch's mutex.
struct Sent {
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> tensors;  // keeps the view alive
  bool isDone = false;
  std::exception_ptr failure = {};
};

/// Waits for the sends to one peer on a thread of its own, the oldest first, because Gloo's work objects cannot be polled: so that a buffer
/// is free when its message has left, and not only when the step ends.
class SendWatch {
 public:
  SendWatch() : thread_([this] { run(); }) {}
  SendWatch(const SendWatch&) = delete;
  SendWatch& operator=(const SendWatch&) = delete;
  /// Gives up what has not left.
  ~SendWatch() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
      open_.clear();
      if (current_) current_->work->abort();
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::shared_ptr<Sent> sent) {
    {
      const std::scoped_lock lock(mutex_);
      open_.push_back(std::move(sent));
    }
    changed_.notify_all();
  }
  bool isDone(const Sent& sent) {
    const std::scoped_lock lock(mutex_);
    return sent.isDone;
  }
  /// Throws what Gloo does. One that older ones hold up is waited for here: a peer may take them later than this one.
  void wait(const std::shared_ptr<Sent>& sent, std::chrono::milliseconds deadline) {
    std::unique_lock lock(mutex_);
    if (std::erase(open_, sent) > 0) {
      lock.unlock();
      sent->work->wait(deadline);
      return;
    }
    if (!changed_.wait_for(lock, deadline, [&] { return sent->isDone; })) throw std::runtime_error("Timed out");
    if (sent->failure) std::rethrow_exception(sent->failure);
  }

 private:
  void run() {
    constexpr std::chrono::hours kForGood{24 * 365};  // deadlines are those of `wait`
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !open_.empty(); });
      if (stop_) return;
      current_ = std::move(open_.front());
      open_.pop_front();
      lock.unlock();
      std::exception_ptr failure;
      try {
        current_->work->wait(kForGood);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      current_->failure = failure;
      current_->isDone = true;
      current_.reset();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Sent>> open_;
  std::shared_ptr<Sent> current_;
  bool stop_ = false;
  std::thread thread_;  ///< last member: starts when everything else exists
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const Rendezvous& rendezvous)
      : group_(std::move(group)), rank_(rendezvous.rank), size_(rendezvous.size), deadline_(rendezvous.deadline) {}

  JobRank rank() const override { return rank_; }
  int size() const override { return size_; }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override {
    const Request request = next_++;
    if (buffer.bytes == 0) return request;
    auto sent = std::make_shared<Sent>();
    sent->tensors = viewOf(buffer);
    sent->work = saying(true, to, [&] { return group().send(sent->tensors, to.value, static_cast<int>(tag)); });
    watches_[to].add(sent);
    sends_.emplace(request, std::pair(to, std::move(sent)));
    return request;
  }
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override {
    const Request request = next_++;
    if (buffer.bytes == 0) return request;
    std::vector<at::Tensor> tensors = viewOf(buffer);
    auto work = saying(false, from, [&] { return group().recv(tensors, from.value, static_cast<int>(tag)); });
    receives_.emplace(request, Receive{std::move(work), from, std::move(tensors)});
    return request;
  }

  void wait(Request request) override {
    (void)group();
    if (const auto sent = sends_.extract(request)) {
      const auto& [to, message] = sent.mapped();
      saying(true, to, [&] { watches_.at(to).wait(message, deadline_); });
    }
    if (const auto receive = receives_.extract(request))
      saying(false, receive.mapped().peer, [&] { receive.mapped().work->wait(deadline_); });
  }

  /// Of a receive Gloo's work object says that it is done only after a wait.
  std::optional<bool> isDone(Request request) override {
    if (receives_.contains(request)) return std::nullopt;
    const auto sent = sends_.find(request);
    return sent == sends_.end() || watches_.at(sent->second.first).isDone(*sent->second.second);
  }
  std::size_t waitAny(std::span<const Request>) override {
    throw UsageError("the transport gloo cannot tell which of several messages came first; use the transport ucx");
  }
  void progress() override {}  // Gloo has a thread of its own

  /// Not Gloo's own, which does not say whom it waited for.
  void barrier() override { meetByMessages(*this); }

  void abort() noexcept override {
    receives_.clear();
    watches_.clear();
    sends_.clear();
    group_.reset();  // closes the connections: peers notice
  }

 private:
  struct Receive {
    c10::intrusive_ptr<c10d::Work> work;
    JobRank peer;
    std::vector<at::Tensor> tensors;  // keeps the view alive
  };

  [[nodiscard]] c10d::ProcessGroupGloo& group() const {
    if (!group_) throw Error(leftSentence());
    return *group_;
  }

  static std::vector<at::Tensor> viewOf(Buffer buffer) {
    return {at::from_blob(buffer.data, {static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions().dtype(at::kByte))};
  }

  auto saying(bool sending, JobRank peer, const auto& act) const -> decltype(act()) {
    try {
      return act();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw Error(failure(sending, peer, e));
    }
  }

  /// Gloo's message, as `[/pytorch/…/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete`, in our words.
  [[nodiscard]] std::string failure(bool sending, JobRank peer, const std::exception& e) const {
    const std::string text = shortened(e.what()), name = "rank " + std::to_string(peer.value);
    const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
    if (says("imed out")) return lateSentence(sending, peer, deadline_);
    if (saysLost(text)) return lostSentence(peer);
    return (sending ? "sending to " : "receiving from ") + name + " failed (" + text + "); start the job again";
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  JobRank rank_;
  int size_;
  std::chrono::milliseconds deadline_;
  std::unordered_map<Request, Receive> receives_;
  std::unordered_map<Request, std::pair<JobRank, std::shared_ptr<Sent>>> sends_;  ///< that were not waited for
  std::map<JobRank, SendWatch> watches_;
  Request next_ = 1;
};

/// A part of the store of its own for each time that the job's ranks connect: a job that torchrun starts again, and one that meets again in
/// the same processes, must not find what was left.
c10::intrusive_ptr<c10d::Store> openStore(const Rendezvous& rendezvous) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.masterPort);
  options.numWorkers = static_cast<std::size_t>(rendezvous.size);
  options.waitWorkers = false;
  options.timeout = rendezvous.deadline;
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const std::string prefix = attempt == nullptr ? "pipewright" : std::string("pipewright/") + attempt;
  const auto attempts =
      c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(rendezvous.masterAddress, options));
  const std::int64_t number = attempts->add("connections/" + std::to_string(rendezvous.rank.value), 1);
  return c10::make_intrusive<c10d::PrefixStore>(std::to_string(number), attempts);
}

KeyValueStore closuresOf(const c10::intrusive_ptr<c10d::Store>& store, const Rendezvous& rendezvous) {
  KeyValueStore closures;
  closures.set = [store, rendezvous](const std::string& key, const std::string& value) {
    inOurWords(rendezvous, [&] { store->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  };
  closures.get = [store, rendezvous](const std::string& key) {
    const auto value = inOurWords(rendezvous, [&] { return store->get(key); });
    return std::string(value.begin(), value.end());
  };
  return closures;
}

}  // namespace

KeyValueStore connectStore(const Rendezvous& rendezvous) {
  return closuresOf(inOurWords(rendezvous, [&] { return openStore(rendezvous); }), rendezvous);
}

std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous, const KeyValueStore& store) {
  return std::make_unique<GlooCommunicator>(newGlooGroup("gloo", rendezvous, store), rendezvous);
}

}  // namespace pw
