#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// How early a set of actions of one rank can end, which start no earlier than each may and one after the other (Vilím, Barták, Čepek:
/// Extension of O(n log n) filtering algorithms for the unary resource constraint, Constraints 10, 2005: Θ-trees). Leaves are numbered in
/// the order of their earliest starts. Cost of a change: logarithmic.
class EndTree {
 public:
  /// Empties it, for so many leaves.
  void reset(std::size_t leaves);
  void insert(std::size_t leaf, Ns earliest, Ns time) { set(leaf, {time, earliest + time}); }
  void remove(std::size_t leaf) { set(leaf, {}); }

  /// Of the set; far below 0 where it is empty.
  [[nodiscard]] Ns end() const { return nodes_[1].end; }

 private:
  static constexpr Ns kNever{-(std::int64_t{1} << 60)};
  struct Node {
    Ns sum = 0, end = kNever;
  };

  void set(std::size_t leaf, const Node& node);

  std::size_t first_ = 1;  ///< of the leaves: a power of two
  std::vector<Node> nodes_{2};
};

/// The same with one more action out of an optional set, whichever ends latest (Θ-Λ-trees).
class OptionalEndTree {
 public:
  struct Leaf {
    Ns earliest = 0, time = 0;
  };

  /// All of these are in the set. Cost: linear.
  void fill(std::span<const Leaf> leaves);
  /// Takes a leaf of the set into the optional one.
  void makeOptional(std::size_t leaf);
  void remove(std::size_t leaf) { set(leaf, {}); }

  /// Of the set; far below 0 where it is empty.
  [[nodiscard]] Ns end() const { return nodes_[1].end; }
  [[nodiscard]] Ns endWithOptional() const { return nodes_[1].optionalEnd; }
  /// The optional leaf that `endWithOptional` has; −1: none.
  [[nodiscard]] int optional() const { return nodes_[1].ofEnd; }

 private:
  static constexpr Ns kNever{-(std::int64_t{1} << 60)};
  struct Node {
    Ns sum = 0, end = kNever;                  ///< of the set
    Ns optionalSum = 0, optionalEnd = kNever;  ///< with at most one optional leaf
    int ofSum = -1, ofEnd = -1;                ///< which
  };

  void set(std::size_t leaf, const Node& node);
  void join(std::size_t i);

  std::size_t first_ = 1;  ///< of the leaves: a power of two
  std::vector<Node> nodes_{2};
};

}  // namespace pw
