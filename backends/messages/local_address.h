#pragma once

#include <string>

#include "backends/messages/rendezvous.h"

namespace pw {

/// The local IPv4 or IPv6 address that traffic to `host` (a name or an address) is sent from: the one that the kernel assigns to a UDP
/// socket connected there. No packet is sent. Works without a resolvable name of this host, and chooses the right one of several
/// interfaces. Throws Error naming the host when it cannot be resolved or is unreachable.
[[nodiscard]] std::string localAddressTowards(const std::string& host);

/// Whether it is in 127.0.0.0/8 or ::1, where other hosts cannot reach us.
[[nodiscard]] bool isLoopback(const std::string& address);

/// The address that the other ranks of a job on several hosts can reach this one by: the one towards the master. On the master's host,
/// whose own name may lead to its loopback (as in Debian's /etc/hosts), the one towards the first rank on another host; its loopback where
/// all ranks are here. All ranks must call it: they tell each other through the store, under `address/RANK`. Throws Error as
/// localAddressTowards and the store do.
[[nodiscard]] std::string addressForPeers(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
