#include "backends/torch_gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unordered_map>

#include "schedules/error.h"

namespace pw {
namespace {

/// Far from the tags of the executor and the worker.
constexpr std::uint32_t kBarrierTag = 0x7FFF0200;

/// The first line without the place in a library's source before it.
std::string shortened(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t end = line.find("] ");
  return line.rfind('[', 0) == 0 && end != std::string::npos ? line.substr(end + 2) : line;
}

std::string seconds(std::chrono::milliseconds time) {
  const auto count = time.count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const Rendezvous& rendezvous)
      : group_(std::move(group)), rank_(rendezvous.rank), size_(rendezvous.size), deadline_(rendezvous.deadline) {}

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket send(Rank to, std::uint32_t tag, Buffer buffer) override { return start(to, true, tag, buffer); }
  Ticket receive(Rank from, std::uint32_t tag, Buffer buffer) override { return start(from, false, tag, buffer); }

  void wait(Ticket ticket) override {
    const auto found = pending_.find(ticket);
    if (found == pending_.end()) return;  // empty message
    const Operation operation = std::move(found->second);
    pending_.erase(found);
    try {
      operation.work->wait(deadline_);
    } catch (const std::exception& e) {
      throw Error(failure(operation.sending, operation.peer, e));
    }
  }

  /// Dissemination (Hensgen, Finkel & Manber, 1988): log2(ranks) rounds. Not Gloo's own, which does not say whom it waited for.
  void barrier() override {
    std::uint32_t tag = kBarrierTag;
    for (int distance = 1; distance < size_; distance *= 2, ++tag) {
      std::byte out{}, in{};
      const Ticket sent = send(Rank((rank_.value + distance) % size_), tag, {&out, 1});
      wait(receive(Rank((rank_.value + size_ - distance) % size_), tag, {&in, 1}));
      wait(sent);
    }
  }

  void abort() noexcept override {
    pending_.clear();
    group_.reset();  // closes the connections: peers notice
  }

 private:
  struct Operation {
    c10::intrusive_ptr<c10d::Work> work;
    bool sending = false;
    Rank peer;
    std::vector<at::Tensor> tensors;  // keeps the view alive
  };

  Ticket start(Rank peer, bool sending, std::uint32_t tag, Buffer buffer) {
    const Ticket ticket = next_++;
    if (buffer.bytes == 0) return ticket;
    if (!group_) throw Error("this rank already left the job; start the job again");
    std::vector<at::Tensor> tensors{at::from_blob(buffer.data, {static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions().dtype(at::kByte))};
    try {
      auto work = sending ? group_->send(tensors, peer.value, static_cast<int>(tag)) : group_->recv(tensors, peer.value, static_cast<int>(tag));
      pending_.emplace(ticket, Operation{std::move(work), sending, peer, std::move(tensors)});
    } catch (const std::exception& e) {
      throw Error(failure(sending, peer, e));
    }
    return ticket;
  }

  /// Gloo's message, as `[/pytorch/…/unbound_buffer.cc:78] Timed out waiting 2000ms for recv operation to complete`, in our words.
  [[nodiscard]] std::string failure(bool sending, Rank peer, const std::exception& e) const {
    const std::string text = shortened(e.what()), name = "rank " + std::to_string(peer.value);
    const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
    if (says("imed out")) {
      return (sending ? name + " took no message" : "no message came from " + name) + " within " + seconds(deadline_) +
             "; see whether it hangs, or allow more with --timeout";
    }
    const bool lost = says("losed by peer") || says("reset by peer") || says("Broken pipe") || says("osing connection") || says("onnection refused");
    if (lost) return "the connection to " + name + " was lost; see why that rank or its machine ended";
    return (sending ? "sending to " : "receiving from ") + name + " failed (" + text + "); start the job again";
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  Rank rank_;
  int size_;
  std::chrono::milliseconds deadline_;
  std::unordered_map<Ticket, Operation> pending_;
  Ticket next_ = 1;
};

}  // namespace

std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous) {
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(rendezvous.masterPort);
    options.isServer = rendezvous.rank.value == 0 && !rendezvous.storeIsElsewhere;
    options.numWorkers = static_cast<std::size_t>(rendezvous.size);
    options.waitWorkers = false;
    options.timeout = rendezvous.deadline;
    options.multiTenant = true;
    if (options.isServer && rendezvous.listenFd >= 0) {
      options.masterListenFd = rendezvous.listenFd;
    }
    const auto tcp = c10::make_intrusive<c10d::TCPStore>(rendezvous.masterAddress, options);
    const auto store = c10::make_intrusive<c10d::PrefixStore>("pipewright", tcp);
    const auto glooOptions = c10d::ProcessGroupGloo::Options::create();
    glooOptions->timeout = rendezvous.deadline;
    glooOptions->threads = 1;
    glooOptions->devices.push_back(rendezvous.oneHost ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                                      : c10d::ProcessGroupGloo::createDefaultDevice());
    return std::make_unique<GlooCommunicator>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, rendezvous.rank.value, rendezvous.size, glooOptions), rendezvous);
  } catch (const std::exception& e) {
    const std::string text = shortened(e.what());
    const bool late = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    throw Error("it could not meet the other ranks (" + std::to_string(rendezvous.size) + " in all) at " + rendezvous.masterAddress + ":" +
                std::to_string(rendezvous.masterPort) + (late ? " within " + seconds(rendezvous.deadline) : " (" + text + ")") +
                "; see that all are started and can reach that address");
  }
}

}  // namespace pw
