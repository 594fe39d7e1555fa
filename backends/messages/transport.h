#pragma once

#include <chrono>
#include <string>

#include "backends/messages/communicator.h"

namespace pw {

// What the transports share: how they meet, and the words for what goes wrong between ranks.

/// A barrier of messages, by dissemination (Hensgen, Finkel & Manber, 1988): ⌈log2(ranks)⌉ rounds of one byte. Takes the tags from
/// 0x7FFF0200 on, far from those of the executor and the worker; barriers may follow each other, because messages of one tag keep their
/// order.
void meetByMessages(Communicator& communicator);

/// `60 s`, `1500 ms`.
[[nodiscard]] std::string inWords(std::chrono::milliseconds time);

/// A wait passed its deadline.
[[nodiscard]] std::string lateSentence(bool sending, Rank peer, std::chrono::milliseconds deadline);

/// The peer's process or the way to it is gone.
[[nodiscard]] std::string lostSentence(Rank peer);

/// A peer called `abort`.
[[nodiscard]] std::string gaveUpSentence(Rank peer);

/// A message has another size than its receiver asked for.
[[nodiscard]] std::string sizeSentence(Rank self, Rank from, std::uint32_t tag, std::size_t expected, std::size_t got);

/// A call after this rank's own `abort`.
[[nodiscard]] std::string leftSentence();

/// The ranks did not find each other at the rendezvous; `reason` empty: in time.
[[nodiscard]] std::string unmetSentence(int ranks, const std::string& address, int port, std::chrono::milliseconds deadline,
                                        const std::string& reason);

}  // namespace pw
