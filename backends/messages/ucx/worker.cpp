#include "backends/messages/ucx/worker.h"

#include <cstdlib>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

/// Through shared memory a copy in and out (eager) is faster than a rendezvous: 1 MB in 135 us instead of 178 between two processes on two
/// cores. Larger messages use a rendezvous, in which the receiver copies from the sender's memory, so that what comes early does not fill
/// its own.
///
/// An eager message that does not fit into the receiver's queue is sent on only when the sender makes progress, which may be after a long
/// operator: with the default of 64 elements of 8 KB, of which half may wait for being released, one in five messages of 384 KB came
/// 50 to 90 ms late. So the queue holds more than the largest eager message, and is released early. Not where
/// UCX_TLS names the transports: UCX warns of settings of one that it does not open.
ucs_status_t setSharedMemory(ucp_config_t* config) {
  if (std::getenv("UCX_RNDV_THRESH") == nullptr) {
    if (const ucs_status_t status = ucp_config_modify(config, "RNDV_THRESH", "1536k"); status != UCS_OK) return status;
  }
  for (const auto& [name, value] : {std::pair{"MM_FIFO_SIZE", "256"}, std::pair{"MM_FIFO_RELEASE_FACTOR", "0.1"}}) {
    const std::string own = std::string("UCX_") + name;
    if (std::getenv(own.c_str()) != nullptr || std::getenv("UCX_TLS") != nullptr) continue;
    if (const ucs_status_t status = ucp_config_modify(config, name, value); status != UCS_OK) return status;
  }
  return UCS_OK;
}

ucp_context_h newContext(const Rendezvous& rendezvous, std::uint64_t features) {
  ucp_config_t* config = nullptr;
  requireUcx(ucp_config_read(nullptr, nullptr, &config), "read its settings");
  const std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> held(config, &ucp_config_release);
  const bool isFree = std::getenv("UCX_NET_DEVICES") == nullptr && std::getenv("UCX_TLS") == nullptr;
  if (rendezvous.oneHost && isFree) requireUcx(ucp_config_modify(config, "NET_DEVICES", "lo"), "take the loopback device");
  if (rendezvous.oneHost) requireUcx(setSharedMemory(config), "set up shared memory");
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = features | UCP_FEATURE_WAKEUP;
  params.estimated_num_eps = static_cast<std::size_t>(rendezvous.size);
  ucp_context_h context = nullptr;
  requireUcx(ucp_init(&params, config, &context), "start");
  return context;
}

ucp_worker_h newWorker(ucp_context_h context, ucs_thread_mode_t threads) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = threads;
  ucp_worker_h worker = nullptr;
  requireUcx(ucp_worker_create(context, &params, &worker), "open a transport");
  return worker;
}

std::string sealed(const Rendezvous& rendezvous, const std::string& key, const std::string& address) {
  return hmacSha256(rendezvous.token, key + ' ' + address) + address;
}

std::string opened(const Rendezvous& rendezvous, const std::string& key, const std::string& value, int rank) {
  constexpr std::size_t kProof = 32;
  const std::string address = value.size() > kProof ? value.substr(kProof) : "";
  if (address.empty() || !equalInConstantTime(value, sealed(rendezvous, key, address))) {
    throw Error(
        fmt::format("the address that the job's store has of rank {} was not written by a rank of this job; start the job again", rank));
  }
  return address;
}

}  // namespace

void requireUcx(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return;
  throw Error(fmt::format("UCX could not {} ({}); see UCX_LOG_LEVEL=info, or use the transport gloo", what, ucs_status_string(status)));
}

UcxWorker::UcxWorker(const Rendezvous& rendezvous, std::uint64_t features, ucs_thread_mode_t threads)
    : context(newContext(rendezvous, features), &ucp_cleanup), worker(newWorker(context.get(), threads), &ucp_worker_destroy) {
  requireUcx(ucp_worker_get_efd(worker.get(), &fd), "wait without polling");
}

std::vector<std::string> exchangedAddresses(const UcxWorker& worker, const std::string& name, const Rendezvous& rendezvous,
                                            const KeyValueStore& store) {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  requireUcx(ucp_worker_get_address(worker.worker.get(), &address, &length), "name its address");
  const std::string own(reinterpret_cast<const char*>(address), length);
  ucp_worker_release_address(worker.worker.get(), address);
  const auto key = [&](int rank) { return name + '/' + std::to_string(rank); };
  const int self = rendezvous.rank.value;
  if (rendezvous.size > 1) store.set(key(self), sealed(rendezvous, key(self), own));
  std::vector<std::string> addresses;
  for (int r = 0; r < rendezvous.size; ++r) addresses.push_back(r == self ? own : opened(rendezvous, key(r), store.get(key(r)), r));
  return addresses;
}

ucp_ep_h connectTo(const UcxWorker& worker, JobRank rank, const std::string& address, ucp_err_handler_cb_t lost, void* peer) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = lost;
  params.err_handler.arg = peer;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker.worker.get(), &params, &endpoint);
  if (status != UCS_OK) {
    throw Error(fmt::format(
        "UCX finds no way to rank {} ({}); see what UCX_TLS and UCX_NET_DEVICES allow there and here, or use the transport gloo",
        rank.value, ucs_status_string(status)));
  }
  return endpoint;
}

}  // namespace pw
