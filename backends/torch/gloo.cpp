#include "backends/torch/gloo.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <unordered_map>

#include "backends/messages/local_address.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// The first line without the place in a library's source before it.
std::string shortened(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t end = line.find("] ");
  return line.rfind('[', 0) == 0 && end != std::string::npos ? line.substr(end + 2) : line;
}

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
    const bool lost =
        says("losed by peer") || says("reset by peer") || says("Broken pipe") || says("osing connection") || says("onnection refused");
    if (lost) return lostSentence(peer);
    return (sending ? "sending to " : "receiving from ") + name + " failed (" + text + "); start the job again";
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  JobRank rank_;
  int size_;
  std::chrono::milliseconds deadline_;
  std::unordered_map<Request, Operation> pending_;
  Request next_ = 1;
};

/// The job's own part of the store. A job that torchrun starts again must not find what the last attempt left.
c10::intrusive_ptr<c10d::Store> openStore(const Rendezvous& rendezvous) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(rendezvous.masterPort);
  options.numWorkers = static_cast<std::size_t>(rendezvous.size);
  options.waitWorkers = false;
  options.timeout = rendezvous.deadline;
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const std::string prefix = attempt == nullptr ? "pipewright" : std::string("pipewright/") + attempt;
  return c10::make_intrusive<c10d::PrefixStore>(prefix, c10::make_intrusive<c10d::TCPStore>(rendezvous.masterAddress, options));
}

/// Our dictionary as c10d's Gloo takes it, which sets keys and waits for them.
class DictionaryStore final : public c10d::Store {
 public:
  explicit DictionaryStore(KeyValueStore dictionary) : dictionary_(std::move(dictionary)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<DictionaryStore>(dictionary_); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    dictionary_.set(keyOf(key), {value.begin(), value.end()});
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::string value = dictionary_.get(keyOf(key));
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) static_cast<void>(dictionary_.get(keyOf(key)));
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }
  std::int64_t add(const std::string&, std::int64_t) override {
    throw Error("Gloo wants to count in the ranks' store, which this version cannot; use the transport ucx");
  }
  bool check(const std::vector<std::string>&) override {
    throw Error("Gloo wants to look into the ranks' store, which this version cannot; use the transport ucx");
  }
  bool deleteKey(const std::string&) override { return false; }
  std::int64_t getNumKeys() override { return 0; }

 private:
  /// Gloo's end with the rank they are of, as ours do.
  static std::string keyOf(const std::string& key) { return "gloo/" + key; }

  KeyValueStore dictionary_;
};

/// Does it, with c10d's exceptions in our words.
template <class Work>
auto meeting(const Rendezvous& rendezvous, Work work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    const std::string text = shortened(e.what());
    const bool late = text.find("imed out") != std::string::npos || text.find("imeout") != std::string::npos;
    throw Error(unmetSentence(rendezvous.size, rendezvous.masterAddress, rendezvous.masterPort, rendezvous.deadline, late ? "" : text));
  }
}

KeyValueStore closuresOf(const c10::intrusive_ptr<c10d::Store>& store, const Rendezvous& rendezvous) {
  KeyValueStore closures;
  closures.set = [store, rendezvous](const std::string& key, const std::string& value) {
    meeting(rendezvous, [&] { store->set(key, std::vector<std::uint8_t>(value.begin(), value.end())); });
  };
  closures.get = [store, rendezvous](const std::string& key) {
    const auto value = meeting(rendezvous, [&] { return store->get(key); });
    return std::string(value.begin(), value.end());
  };
  return closures;
}

/// The device by which the other ranks reach this one. Not Gloo's default, which asks for this host's own name: that may not resolve, or to
/// the loopback.
std::shared_ptr<gloo::transport::Device> deviceFor(const Rendezvous& rendezvous, const KeyValueStore& store) {
  using Group = c10d::ProcessGroupGloo;
  if (rendezvous.oneHost) return Group::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");  // as PyTorch's own ranks
  if (interface != nullptr && *interface != '\0') return Group::createDeviceForInterface(interface);
  return Group::createDeviceForHostname(addressForPeers(rendezvous, store));
}

}  // namespace

KeyValueStore connectStore(const Rendezvous& rendezvous) {
  return closuresOf(meeting(rendezvous, [&] { return openStore(rendezvous); }), rendezvous);
}

std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous, const KeyValueStore& store) {
  return meeting(rendezvous, [&]() -> std::unique_ptr<Communicator> {
    const auto options = c10d::ProcessGroupGloo::Options::create();
    options->timeout = rendezvous.deadline;
    options->threads = 1;
    options->devices.push_back(deviceFor(rendezvous, store));
    return std::make_unique<GlooCommunicator>(c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<DictionaryStore>(store),
                                                                                          rendezvous.rank.value, rendezvous.size, options),
                                              rendezvous);
  });
}

}  // namespace pw
