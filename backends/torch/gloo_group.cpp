#include "backends/torch/gloo_group.h"

#include <csignal>
#include <cstdlib>
#include <utility>
#include <vector>

#include "backends/messages/local_address.h"

namespace pw {
namespace {

/// Our dictionary as c10d's Gloo takes it, which sets keys and waits for them.
class DictionaryStore final : public c10d::Store {
 public:
  DictionaryStore(std::string name, KeyValueStore dictionary) : name_(std::move(name)), dictionary_(std::move(dictionary)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<DictionaryStore>(name_, dictionary_); }
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
    throw Error("Gloo requested a counter of the ranks' store, which is not supported; use the transport ucx");
  }
  bool check(const std::vector<std::string>&) override {
    throw Error("Gloo requested a check of the ranks' store, which is not supported; use the transport ucx");
  }
  bool deleteKey(const std::string&) override { return false; }
  std::int64_t getNumKeys() override { return 0; }

 private:
  /// Gloo's end with the rank they are of, as ours do.
  [[nodiscard]] std::string keyOf(const std::string& key) const { return name_ + '/' + key; }

  std::string name_;
  KeyValueStore dictionary_;
};

/// The device by which the other ranks reach this one. Not Gloo's default, which resolves this host's own name: that may not resolve, or to
/// the loopback.
std::shared_ptr<gloo::transport::Device> deviceFor(const Rendezvous& rendezvous, const KeyValueStore& store) {
  using Group = c10d::ProcessGroupGloo;
  if (rendezvous.oneHost) return Group::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");  // as PyTorch's own ranks
  if (interface != nullptr && *interface != '\0') return Group::createDeviceForInterface(interface);
  return Group::createDeviceForHostname(addressForPeers(rendezvous, store));
}

/// Gloo writes to connections whose other end may be gone: unless somebody handles it, the signal would end this process before it can say
/// which rank is lost.
void ignoreBrokenPipes() {
  struct sigaction now {};
  if (::sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::string shortened(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t end = line.find("] ");
  return line.rfind('[', 0) == 0 && end != std::string::npos ? line.substr(end + 2) : line;
}

bool saysLost(const std::string& text) {
  const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
  return says("losed by peer") || says("reset by peer") || says("Broken pipe") || says("osing connection") || says("onnection refused");
}

c10::intrusive_ptr<c10d::ProcessGroupGloo> newGlooGroup(const std::string& name, const Rendezvous& rendezvous, const KeyValueStore& store) {
  ignoreBrokenPipes();
  return inOurWords(rendezvous, [&] {
    const auto options = c10d::ProcessGroupGloo::Options::create();
    options->timeout = rendezvous.deadline;
    options->threads = 1;
    options->devices.push_back(deviceFor(rendezvous, store));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<DictionaryStore>(name, store), rendezvous.rank.value,
                                                       rendezvous.size, options);
  });
}

}  // namespace pw
