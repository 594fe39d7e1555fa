#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "schedules/error.h"

namespace pw {

/// A share of one whole, 2^-exponent of it.
struct Share {
  int exponent = 0;
  auto operator<=>(const Share&) const = default;
};

/// Halves a share in place and returns the other half.
[[nodiscard]] inline Share halveShare(Share& share) { return Share{++share.exponent}; }

/// An exact sum of shares, however small: whether a whole has come back. Counting references and finding the end of a backward pass are
/// this: nothing is confirmed, so nothing can be reordered against its confirmation. Shares can be halved indefinitely, because the sum is
/// kept in binary (weighted reference counting: Bevan, PARLE 1987; credit recovery: Mattern, Information Processing Letters 30, 1989).
/// Consecutive ones of the binary fraction are kept as one run, so what comes back from one holder share by share (a half, a quarter and so
/// on) takes no more room with each.
class Shares {
 public:
  /// Costs the logarithm of the number of runs. Throws Error where more than the whole came back, which only a broken peer can do; the sum
  /// stays as it was then.
  void add(Share share) {
    const auto run = find(share.exponent);
    const bool carries = run != runs_.end();
    const int set = carries ? run->first - 1 : share.exponent;  // the carry ends where the run begins
    const bool isAll = carries ? runs_.size() == 1 && run->second == share.exponent : runs_.empty();
    if (isWhole() || set < 0 || (set == 0 && !isAll))
      throw Error("More shares of a reference or pass came back than were given out; a worker is broken.");
    if (carries) cut(run, share.exponent);
    insert(set);
  }
  [[nodiscard]] bool isWhole() const { return runs_.size() == 1 && runs_.begin()->first == 0; }
  [[nodiscard]] bool isEmpty() const { return runs_.empty(); }
  [[nodiscard]] std::size_t runs() const { return runs_.size(); }
  /// Half of the largest share in it, which must be there.
  [[nodiscard]] Share take() {
    Share kept{runs_.begin()->first};
    cut(runs_.begin(), kept.exponent);
    const Share taken = halveShare(kept);
    add(kept);  // there may be one of its size
    return taken;
  }
  [[nodiscard]] std::vector<Share> takeAll() {
    std::vector<Share> all;
    for (const auto& [first, last] : std::exchange(runs_, {})) {
      for (int exponent = first; exponent <= last; ++exponent) all.push_back(Share{exponent});
    }
    return all;
  }

 private:
  using Runs = std::map<int, int>;  ///< first to last exponent; between two runs is one at least that is not in the sum
  /// The run that has it.
  [[nodiscard]] Runs::iterator find(int exponent) {
    const auto after = runs_.upper_bound(exponent);
    if (after == runs_.begin()) return runs_.end();
    const auto before = std::prev(after);
    return before->second >= exponent ? before : runs_.end();
  }
  /// Takes a run's first ones away, up to this.
  void cut(Runs::iterator run, int upTo) {
    const int last = run->second;
    runs_.erase(run);
    if (upTo < last) runs_.emplace(upTo + 1, last);
  }
  /// One that is not in it.
  void insert(int exponent) {
    int first = exponent, last = exponent;
    if (const auto before = find(exponent - 1); before != runs_.end()) first = before->first, runs_.erase(before);
    if (const auto after = runs_.find(exponent + 1); after != runs_.end()) last = after->second, runs_.erase(after);
    runs_.emplace(first, last);
  }

  Runs runs_;
};

}  // namespace pw
