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
#include "backends/messages/tags.h"

namespace pw {

/// What the sender of a message tells its receiver over the host's transport.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0, unused = 0;
};

/// How a message travels: over the host's transport, or as an operation of the links.
enum class Way : std::uint8_t { Host, Send, Receive, Collective };

/// A message or collective that was posted and not yet waited for. It must not move in memory, because the host's transport holds the
/// address of `announcement`.
struct DeviceMessage {
  Way way = Way::Host;
  bool sending = false;
  JobRank peer;
  std::uint32_t tag = 0;
  Buffer buffer;
  std::vector<JobRank> group{};              ///< of Collective, which has no peer
  Communicator::Request host = 0;            ///< for Host: its own; for Send: that of its announcement
  Announcement announcement{};               ///< of Send
  std::optional<std::uint64_t> operation{};  ///< the links' operation; for Receive: once the message is announced
  HeldBuffer kept{};                         ///< the memory it was received into if it arrived before it was requested
  std::string failure{};                     ///< why it cannot be delivered although it arrived
  MessageState last{};                       ///< its state when this rank aborted
};

/// The announcements that this rank and others exchange over the host's transport, and the receives that they start: see communicatorOver.
/// Nothing blocks. Owns memory that messages are received into.
class DeviceInbox {
 public:
  /// A message with this tag from a rank to itself is not an announcement.
  static constexpr std::uint32_t kBellTag = kBellTags.first;

  /// Keeps references, which are used by later calls; the constructor itself uses `host` only.
  DeviceInbox(Communicator& host, const Device& device, const DeviceLinks& links)
      : host_(host), device_(device), links_(links), peers_(static_cast<std::size_t>(host.size())) {}

  /// Announces a message to its receiver.
  [[nodiscard]] Communicator::Request announce(DeviceMessage& message);
  /// Requests a message: its operation is set here or by `listen`. Returns the announcement that is now expected because of it, unless one
  /// was expected already.
  [[nodiscard]] std::optional<Communicator::Request> want(DeviceMessage& message);
  /// Withdraws a message that was not announced: nothing will be written into its buffer.
  void cancel(const DeviceMessage& message);
  /// Starts receiving what was announced; adds the operations to `inFlight`. Throws Error when the job or a link fails.
  void listen(std::deque<std::uint64_t>& inFlight);

  [[nodiscard]] bool isExpecting() const;
  /// Whether there are messages that arrived before they were requested.
  [[nodiscard]] bool holdsEarly() const;

 private:
  /// A message that arrived before it was requested.
  struct Early {
    std::uint64_t operation = 0;
    HeldBuffer memory;
  };

  /// The state for another rank. The host's transport holds the address of `announcement` while one is expected.
  struct Peer {
    std::uint32_t announcementsOut = 0, announcementsIn = 0;
    std::optional<Communicator::Request> expected;  ///< the next announcement; while a message is wanted
    Announcement announcement;
    std::map<std::uint32_t, std::deque<DeviceMessage*>> wanted;  ///< by tag: receives that were not announced yet; no empty queues
    std::map<std::uint32_t, std::deque<Early>> early;            ///< by tag, in the order of arrival; no empty queues
  };

  Communicator::Request expect(JobRank from);
  [[nodiscard]] std::uint64_t take(JobRank from, const Announcement& announcement);

  Communicator& host_;
  const Device& device_;
  const DeviceLinks& links_;
  std::vector<Peer> peers_;
};

}  // namespace pw
