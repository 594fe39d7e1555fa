#pragma once

#include <memory>

#include "backends/messages/global_id.h"
#include "engine/remote/shares.h"

namespace pw {

class References;

/// A reference to a value that stays on its owner (torch's RRef). Copies share it; the last one that goes gives its share of the value back
/// to the owner, which drops the value when all shares are back. Sending it to a worker gives that worker half of the share.
class Reference {
 public:
  Reference() = default;
  [[nodiscard]] explicit operator bool() const { return held_ != nullptr; }
  [[nodiscard]] JobRank owner() const;
  [[nodiscard]] ReferenceId id() const;

 private:
  friend class References;
  struct Held;
  std::shared_ptr<Held> held_;
};

}  // namespace pw
