#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/messages/communicator.h"
#include "schedules/named_values.h"

namespace pw {

/// How the ranks of a job exchange messages; the first is the default on CPUs.
enum class Transport : std::uint8_t { Ucx, Gloo, Nccl };

/// What is fixed for each transport. Options, help, the list of devices and the app's choice follow from it.
struct TransportFacts {
  std::string_view name{};      ///< of `--backend` and in run stores
  std::string_view title{};     ///< in sentences
  std::string_view links{};     ///< between hosts and processes: `shared memory, RDMA, TCP`
  std::string_view module{};    ///< file of ours that it needs besides the LibTorch module; empty: none
  bool onGpu = false;           ///< the ranks compute on GPUs
  bool tellsArrivals = true;    ///< `Communicator::isDone` and `waitAny` work, which `--order ready` needs
  bool waitsCanBeEnded = true;  ///< by `Rendezvous::jobFailed`
};

constexpr TransportFacts factsOf(Transport transport) {
  switch (transport) {
    case Transport::Ucx: return {.name = "ucx", .title = "UCX", .links = "shared memory, RDMA, TCP", .module = "libpw_ucx.so"};
    case Transport::Gloo: return {.name = "gloo", .title = "Gloo", .links = "TCP", .tellsArrivals = false, .waitsCanBeEnded = false};
    case Transport::Nccl: return {.name = "nccl", .title = "NCCL", .module = "libpw_cuda.so", .onGpu = true};
  }
  return {};
}
constexpr std::string_view nameOf(Transport transport) { return factsOf(transport).name; }

/// The transport to use where nobody chose one: the first that computes there.
[[nodiscard]] Transport defaultTransport(bool onGpu);
/// The names of those that compute on CPUs, with that separator: `ucx or gloo`.
[[nodiscard]] std::string hostTransports(std::string_view separator);

// What the transports share: how ranks meet, and the sentences for failures between ranks.

/// A barrier of messages, by dissemination (Hensgen, Finkel & Manber, 1988): ⌈log2(ranks)⌉ rounds of one byte, with
/// `kMeetingTags` (`backends/messages/tags.h`); barriers may follow each other, because messages of one tag keep their order.
void meetByMessages(Communicator& communicator);

/// `60 s`, `1500 ms`.
[[nodiscard]] std::string inWords(std::chrono::milliseconds time);

/// The sentence for a wait that passed its deadline.
[[nodiscard]] std::string lateSentence(bool sending, JobRank peer, std::chrono::milliseconds deadline);

/// The sentence for a peer whose process, or the connection to it, is gone.
[[nodiscard]] std::string lostSentence(JobRank peer);

/// The sentence for a peer that called `abort`.
[[nodiscard]] std::string gaveUpSentence(JobRank peer);

/// The sentence for a peer that closed its message channel.
[[nodiscard]] std::string closedSentence(JobRank peer);

/// The sentence for a peer of a message channel from which nothing came, not even that it lives.
[[nodiscard]] std::string silentSentence(JobRank peer, std::chrono::milliseconds time);

/// The sentence for a message whose size differs from what its receiver requested.
[[nodiscard]] std::string sizeSentence(JobRank self, JobRank from, std::uint32_t tag, std::size_t expected, std::size_t got);

/// The sentence for a rank that ends because of another.
[[nodiscard]] std::string failedSentence();

/// The sentence for a call after this rank's own `abort`.
[[nodiscard]] std::string leftSentence();

/// The sentence for ranks that did not meet at the rendezvous; `reason` empty: not in time.
[[nodiscard]] std::string unmetSentence(int ranks, const std::string& address, int port, std::chrono::milliseconds deadline,
                                        const std::string& reason);

}  // namespace pw
