#pragma once

#include <string>

#include "backends/messages/rendezvous.h"

namespace pw {

/// The IPv4 or IPv6 address of this host that traffic to `host` (a name or an address) leaves by: what the kernel gives a UDP socket that
/// is connected there. No packet is sent. This needs no resolvable name of this host, and takes the right one of several interfaces. Throws
/// Error naming the host when it cannot be found or there is no way to it.
[[nodiscard]] std::string localAddressTowards(const std::string& host);

/// 127.0.0.0/8 and ::1: addresses that other hosts cannot reach us by.
[[nodiscard]] bool isLoopback(const std::string& address);

/// The address that the other ranks of a job on several hosts can reach this one by: the one towards the master. On the master's host,
/// whose own name may lead to its loopback (as in Debian's /etc/hosts), the one towards the first rank on another host; its loopback where
/// all ranks are here. All ranks must call it: they tell each other through the store, under `address/RANK`. Throws Error as
/// localAddressTowards and the store do.
[[nodiscard]] std::string addressForPeers(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
