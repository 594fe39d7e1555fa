#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"
#include "backends/messages/device_messages.h"

namespace pw {

/// What is sent to the receiver of a message, over the host's transport.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0, unused = 0;
};

/// By the host's transport, or as one of the links' operations.
enum class Way : std::uint8_t { Host, Send, Receive, Collective };

/// A message, or a collective, that was asked for and not waited for: it stays where it is, as the host's transport holds the address of
/// `announcement`.
struct DeviceMessage {
  Way way = Way::Host;
  bool sending = false;
  Rank peer;
  std::uint32_t tag = 0;
  Buffer buffer;
  std::vector<Rank> group{};                 ///< of Collective, which has no peer
  Communicator::Request host = 0;            ///< of Host: its own; of Send: its announcement's
  Announcement announcement{};               ///< of Send
  std::optional<std::uint64_t> operation{};  ///< the links'; of Receive: once the message is announced
  HeldBuffer kept{};                         ///< where it was received before it was asked for
  std::string failure{};                     ///< why it cannot be had although it came
  MessageState last{};                       ///< when this rank left
};

/// The announcements between this rank and others over the host's transport, and the receives that they begin: see communicatorOver.
/// Nothing blocks. Owns memory that messages are received into.
class DeviceInbox {
 public:
  /// A message from a rank to itself by this tag is nobody's announcement.
  static constexpr std::uint32_t kBellTag = 0x7FFF0600;

  /// All are used only by calls; the constructor needs the first.
  DeviceInbox(Communicator& host, const Device& device, const DeviceLinks& links)
      : host_(host), device_(device), links_(links), peers_(static_cast<std::size_t>(host.size())) {}

  /// Tells the receiver of a message about it.
  [[nodiscard]] Communicator::Request announce(DeviceMessage& message);
  /// The message is to be received: its operation is set here or by `listen`. Returns the announcement that is expected because of it, if
  /// another is not.
  [[nodiscard]] std::optional<Communicator::Request> want(DeviceMessage& message);
  /// Nothing will be written into the buffer of a message that was not announced.
  void cancel(const DeviceMessage& message);
  /// Begins to receive what was announced; adds the operations to `underWay`. Throws Error when the job or a link fails.
  void listen(std::deque<std::uint64_t>& underWay);

  [[nodiscard]] bool isExpecting() const;
  /// Whether there are messages that came before they were asked for.
  [[nodiscard]] bool holdsEarly() const;

 private:
  /// A message that came before it was asked for.
  struct Early {
    std::uint64_t operation = 0;
    HeldBuffer memory;
  };

  /// Another rank. The host's transport holds the address of `announcement` while one is expected.
  struct Peer {
    std::uint32_t announcementsOut = 0, announcementsIn = 0;
    std::optional<Communicator::Request> expected;  ///< the next announcement; while a message is wanted
    Announcement announcement;
    std::map<std::uint32_t, std::deque<DeviceMessage*>> wanted;  ///< by tag: receives that were not announced; no empty ones
    std::map<std::uint32_t, std::deque<Early>> early;            ///< by tag, in the order they came; no empty ones
  };

  Communicator::Request expect(Rank from);
  [[nodiscard]] std::uint64_t take(Rank from, const Announcement& announcement);

  Communicator& host_;
  const Device& device_;
  const DeviceLinks& links_;
  std::vector<Peer> peers_;
};

}  // namespace pw
