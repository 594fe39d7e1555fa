#pragma once

#include <chrono>
#include <string>

#include "backends/messages/communicator.h"

namespace pw {

// What the transports share: how ranks meet, and the sentences for failures between ranks.

/// A barrier of messages, by dissemination (Hensgen, Finkel & Manber, 1988): ⌈log2(ranks)⌉ rounds of one byte. Takes the tags from
/// 0x7FFF0200 on, far from those of the executor and the worker; barriers may follow each other, because messages of one tag keep their
/// order.
void meetByMessages(Communicator& communicator);

/// `60 s`, `1500 ms`.
[[nodiscard]] std::string inWords(std::chrono::milliseconds time);

/// The sentence for a wait that passed its deadline.
[[nodiscard]] std::string lateSentence(bool sending, Rank peer, std::chrono::milliseconds deadline);

/// The sentence for a peer whose process, or the connection to it, is gone.
[[nodiscard]] std::string lostSentence(Rank peer);

/// The sentence for a peer that called `abort`.
[[nodiscard]] std::string gaveUpSentence(Rank peer);

/// The sentence for a message whose size differs from what its receiver requested.
[[nodiscard]] std::string sizeSentence(Rank self, Rank from, std::uint32_t tag, std::size_t expected, std::size_t got);

/// The sentence for a call after this rank's own `abort`.
[[nodiscard]] std::string leftSentence();

/// The sentence for ranks that did not meet at the rendezvous; `reason` empty: not in time.
[[nodiscard]] std::string unmetSentence(int ranks, const std::string& address, int port, std::chrono::milliseconds deadline,
                                        const std::string& reason);

}  // namespace pw
