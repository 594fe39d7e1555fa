#pragma once

#include <set>
#include <utility>
#include <vector>

#include "schedules/error.h"

namespace pw {

/// A share of one whole, 2^-exponent of it.
struct Share {
  int exponent = 0;
  auto operator<=>(const Share&) const = default;
};

/// Cuts a share in two equal ones: what the argument becomes, and the other.
[[nodiscard]] inline Share halve(Share& share) { return Share{++share.exponent}; }

/// An exact sum of shares, however small: whether a whole has come back. Counting references and finding the end of a backward pass are
/// this: nothing is confirmed, so nothing can be reordered against its confirmation. Shares can be halved for ever, because the sum is kept
/// in binary (weighted reference counting: Bevan, PARLE 1987; credit recovery: Mattern, Information Processing Letters 30, 1989).
class Shares {
 public:
  /// Costs a step for each carry. Throws Error where more than the whole came back, which only a broken peer can do.
  void add(Share share) {
    while (!bits_.insert(share.exponent).second) {
      bits_.erase(share.exponent);
      if (share.exponent-- == 0) throw Error("More shares of a reference or pass came back than were given out; a worker is broken.");
    }
    if (bits_.size() > 1 && *bits_.begin() == 0)
      throw Error("More shares of a reference or pass came back than were given out; a worker is broken.");
  }
  [[nodiscard]] bool isWhole() const { return bits_.size() == 1 && *bits_.begin() == 0; }
  [[nodiscard]] bool isEmpty() const { return bits_.empty(); }
  /// Half of the largest share in it, which must be there.
  [[nodiscard]] Share take() {
    Share kept{*bits_.begin()};
    bits_.erase(bits_.begin());
    const Share taken = halve(kept);
    add(kept);  // there may be one of its size
    return taken;
  }
  [[nodiscard]] std::vector<Share> takeAll() {
    std::vector<Share> all;
    for (const int exponent : std::exchange(bits_, {})) all.push_back(Share{exponent});
    return all;
  }

 private:
  std::set<int> bits_;  ///< of the binary fraction
};

}  // namespace pw
