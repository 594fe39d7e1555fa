#include "backends/torch_gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unordered_map>

#include "schedules/error.h"

namespace pw {
namespace {

std::string firstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, const Rendezvous& rendezvous)
      : group_(std::move(group)), rank_(rendezvous.rank), size_(rendezvous.size), deadline_(rendezvous.deadline) {}

  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket send(Rank to, std::uint32_t tag, Buffer buffer) override { return start(to, "send to", tag, buffer, true); }
  Ticket receive(Rank from, std::uint32_t tag, Buffer buffer) override { return start(from, "receive from", tag, buffer, false); }

  void wait(Ticket ticket) override {
    const auto found = pending_.find(ticket);
    if (found == pending_.end()) return;  // empty message
    const Operation operation = std::move(found->second);
    pending_.erase(found);
    try {
      operation.work->wait(deadline_);
    } catch (const std::exception& e) {
      throw Error(failure(operation.what, operation.peer, e));
    }
  }

  void barrier() override {
    if (size_ == 1) return;
    try {
      c10d::BarrierOptions options;
      options.timeout = deadline_;
      group_->barrier(options)->wait(deadline_);
    } catch (const std::exception& e) {
      throw Error("Rank " + std::to_string(rank_.value) + " waited for all ranks in vain: " + firstLine(e.what()));
    }
  }

  void abort() noexcept override {
    pending_.clear();
    group_.reset();  // closes the connections: peers notice
  }

 private:
  struct Operation {
    c10::intrusive_ptr<c10d::Work> work;
    const char* what = "";
    Rank peer;
    std::vector<at::Tensor> tensors;  // keeps the view alive
  };

  Ticket start(Rank peer, const char* what, std::uint32_t tag, Buffer buffer, bool sending) {
    const Ticket ticket = next_++;
    if (buffer.bytes == 0) return ticket;
    if (!group_) throw Error("Rank " + std::to_string(rank_.value) + " already left the job.");
    std::vector<at::Tensor> tensors{at::from_blob(buffer.data, {static_cast<std::int64_t>(buffer.bytes)}, at::TensorOptions().dtype(at::kByte))};
    try {
      auto work = sending ? group_->send(tensors, peer.value, static_cast<int>(tag)) : group_->recv(tensors, peer.value, static_cast<int>(tag));
      pending_.emplace(ticket, Operation{std::move(work), what, peer, std::move(tensors)});
    } catch (const std::exception& e) {
      throw Error(failure(what, peer, e));
    }
    return ticket;
  }

  [[nodiscard]] std::string failure(const char* what, Rank peer, const std::exception& e) const {
    return "Rank " + std::to_string(rank_.value) + " could not " + what + " rank " + std::to_string(peer.value) + ": " + firstLine(e.what());
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
    throw Error("Rank " + std::to_string(rendezvous.rank.value) + " could not meet the other " + std::to_string(rendezvous.size - 1) + " ranks at " +
                rendezvous.masterAddress + ":" + std::to_string(rendezvous.masterPort) + ": " + firstLine(e.what()));
  }
}

}  // namespace pw
