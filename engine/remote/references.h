#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/remote/future.h"
#include "engine/remote/reference.h"
#include "engine/remote/shares.h"

namespace pw {

/// A reference as part of a message: half of the sender's share.
struct SentReference {
  ReferenceId id;
  JobRank owner;
  Share share;
};

class References;

/// The shares that a message is to take along: those that it did not go out with are given back to their owners.
class SentShares {
 public:
  SentShares() = default;
  ~SentShares();
  SentShares(const SentShares&) = delete;
  SentShares& operator=(const SentShares&) = delete;

  void add(References& of, const SentReference& sent);
  void commit() { sent_.clear(); }  ///< the message went out

 private:
  std::vector<std::pair<References*, SentReference>> sent_;
};

/// The references of one worker: the values it owns, and what it holds of others'.
///
/// The protocol. A value's references hold shares of one whole (`Shares`). Who sends a reference on sends half of its share with it; who
/// drops one sends its share back to the owner; the owner drops the value when the whole is back. There are no confirmations: a share that
/// is on its way counts as held, whatever overtakes it, so a value never goes too early. A message that is lost leaves a value that goes
/// with its owner; one that is repeated is dropped by `Post`. Because ids are made by whoever requests the value, a third worker's message
/// may reach the owner before the call that makes the value: the owner then waits for it.
class References : public std::enable_shared_from_this<References> {
 public:
  using GiveBack = std::function<void(JobRank owner, ReferenceId id, Share share)>;
  /// Lets a value go that nobody refers to any more, on another thread: what then runs may be slow.
  using LetGo = std::function<void(std::shared_ptr<void> value)>;
  References(JobRank self, std::size_t workers, GiveBack giveBack, LetGo letGo)
      : self_(self), workers_(workers), ids_(self), giveBack_(std::move(giveBack)), letGo_(std::move(letGo)) {}

  /// A new reference, holding the whole, to a value that this owner will have.
  [[nodiscard]] Reference make(JobRank owner);
  [[nodiscard]] Reference receive(const SentReference& sent);  ///< throws Error for an owner that the job does not have
  [[nodiscard]] SentReference send(const Reference& reference);
  void giveBack(const SentReference& sent);  ///< one that nobody has

  /// Sets the value of a reference that this worker owns; a problem is thrown to whoever fetches the value.
  void settle(ReferenceId id, RemoteFuture value);
  /// The value of a reference that this worker owns, when it is there.
  [[nodiscard]] RemoteFuture value(ReferenceId id);
  void takeBack(ReferenceId id, Share share);

  /// Drops all values; afterwards nothing is given back.
  void clear();
  [[nodiscard]] std::size_t owned() const;
  [[nodiscard]] std::size_t held() const;

 private:
  friend struct Reference::Held;
  struct Owned {
    RemoteFuture value;
    bool settled = false;
    Shares back;
  };
  void drop(JobRank owner, ReferenceId id, Share share);
  void dropIfUnused(std::unique_lock<std::mutex>& lock, ReferenceId id);

  JobRank self_;
  std::size_t workers_;
  IdSource<ReferenceId> ids_;
  GiveBack giveBack_;
  LetGo letGo_;
  mutable std::mutex mutex_;
  std::unordered_map<ReferenceId, Owned> owned_;
  std::size_t held_ = 0;
  bool closed_ = false;
};

}  // namespace pw
