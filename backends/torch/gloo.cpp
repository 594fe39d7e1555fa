#include "backends/torch/gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <unordered_map>

#include "backends/messages/transport.h"
#include "backends/torch/gloo_group.h"
#include "schedules/error.h"

namespace pw {
namespace {

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const Rendezvous& rendezvous)
      : group_(std::move(group)), rank_(rendezvous.rank), size_(rendezvous.size), deadline_(rendezvous.deadline) {}

  JobRank rank() const override { return rank_; }
  int size() const override { return size_; }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override { return start(to, true, tag, buffer); }
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override { return start(from, false, tag, buffer); }

  void wait(Request request) override {
    if (!group_) throw Error(leftSentence());
    const auto found = pending_.find(request);
    if (found == pending_.end()) return;  // empty message
    const Operation operation = std::move(found->second);
    pending_.erase(found);
    try {
      operation.work->wait(deadline_);
    } catch (const std::exception& e) {
      throw Error(failure(operation.sending, operation.peer, e));
    }
  }

  /// Gloo's work objects cannot be polled: those of a receive say that they are done only after a wait.
  std::optional<bool> isDone(Request request) override { return pending_.contains(request) ? std::nullopt : std::optional(true); }
  std::size_t waitAny(std::span<const Request>) override {
    throw UsageError("the transport gloo cannot tell which of several messages came first; use the transport ucx");
  }
  void progress() override {}  // Gloo has a thread of its own

  /// Not Gloo's own, which does not say whom it waited for.
  void barrier() override { meetByMessages(*this); }

  void abort() noexcept override {
    pending_.clear();
    group_.reset();  // closes the connections: peers notice
  }

 private:
  struct Operation {
    c10::intrusive_ptr<c10d::Work> work;
    bool sending = false;
    JobRank peer;
    std::vector<at::Tensor> tensors;  // keeps the view alive
  };

  Request start(JobRank peer, bool sending, std::uint32_t tag, Buffer buffer) {
    const Request request = next_++;
    if (buffer.bytes == 0) return request;
    if (!group_) throw Error(leftSentence());
    std::vector<at::Tensor> tensors{
        at::from_blob(buffer.data, {static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions().dtype(at::kByte))};
    try {
      auto work =
          sending ? group_->send(tensors, peer.value, static_cast<int>(tag)) : group_->recv(tensors, peer.value, static_cast<int>(tag));
      pending_.emplace(request, Operation{std::move(work), sending, peer, std::move(tensors)});
    } catch (const std::exception& e) {
      throw Error(failure(sending, peer, e));
    }
    return request;
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
  std::unordered_map<Request, Operation> pending_;
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
