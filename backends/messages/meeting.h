#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "backends/messages/rendezvous.h"

namespace pw {

/// A rank's connection to the dictionary that rank 0 of the job serves over TCP. Only ranks that know the job's token are admitted: both
/// sides prove it before anything else is exchanged (challenge and response, HMAC-SHA-256). Other connections are dropped without effect.
/// Copies share the connection; it may be used by several threads, one call at a time. Rank 0's copies keep the server running.
class Meeting {
 public:
  struct Connection;
  explicit Meeting(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

  /// Sets a key of at most 4 KiB to a value of at most 16 MiB. Throws Error when rank 0 is gone or does not answer within the deadline.
  void set(const std::string& key, const std::string& value) const;
  /// Waits until the key is set; nothing when that takes longer than `patience`. Throws Error when rank 0 is gone or does not answer by
  /// then.
  [[nodiscard]] std::optional<std::string> find(const std::string& key, std::chrono::milliseconds patience) const;
  /// The dictionary in the form that transports need: `get` waits for the rendezvous' deadline and then names the rank in the key
  /// (`ucx/1`).
  [[nodiscard]] KeyValueStore dictionary() const;
  /// A part of the dictionary of its own, for one of several things that the ranks do one after the other: its keys begin with the name.
  [[nodiscard]] Meeting part(const std::string& name) const;
  /// The server's port; also known on rank 0 when the rendezvous left it open.
  [[nodiscard]] int port() const;

 private:
  std::shared_ptr<Connection> connection_;
  std::string prefix_;
};

/// Meets the other ranks of the job. Rank 0 serves on `listenFd`, or binds `masterPort` (0: any) and retries nothing; the others connect
/// there until the deadline. `storeIsElsewhere` is not looked at. Throws Error naming the place when the port is taken, nobody serves
/// within the deadline, or who does has another token; UsageError when another process is this rank already.
[[nodiscard]] Meeting meet(const Rendezvous& rendezvous);

/// `rank 1 did not come to 127.0.0.1:29500 within 3 s; …`
[[nodiscard]] std::string missingSentence(const std::string& ranks, const Rendezvous& rendezvous);

}  // namespace pw
