#include "simulator/order/proof/end_tree.h"

#include <algorithm>
#include <bit>

namespace pw {

void EndTree::reset(std::size_t leaves) {
  first_ = std::bit_ceil(std::max<std::size_t>(1, leaves));
  nodes_.assign(2 * first_, {});
}

void EndTree::set(std::size_t leaf, const Node& node) {
  Node* const nodes = nodes_.data();
  std::size_t i = first_ + leaf;
  nodes[i] = node;
  for (i /= 2; i > 0; i /= 2) {
    const Node &left = nodes[2 * i], &right = nodes[2 * i + 1];
    nodes[i] = {left.sum + right.sum, std::max(right.end, left.end + right.sum)};
  }
}

void OptionalEndTree::fill(std::span<const Leaf> leaves) {
  first_ = std::bit_ceil(std::max<std::size_t>(1, leaves.size()));
  nodes_.assign(2 * first_, {});
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto [earliest, time] = leaves[i];
    nodes_[first_ + i] = {time, earliest + time, time, earliest + time, -1, -1};
  }
  for (std::size_t i = first_ - 1; i > 0; --i) join(i);
}

void OptionalEndTree::makeOptional(std::size_t leaf) {
  const Node node = nodes_[first_ + leaf];
  set(leaf, {0, kNever, node.sum, node.end, static_cast<int>(leaf), static_cast<int>(leaf)});
}

void OptionalEndTree::set(std::size_t leaf, const Node& node) {
  std::size_t i = first_ + leaf;
  nodes_[i] = node;
  for (i /= 2; i > 0; i /= 2) join(i);
}

void OptionalEndTree::join(std::size_t i) {
  const Node &left = nodes_[2 * i], &right = nodes_[2 * i + 1];
  Node& both = nodes_[i];
  both.sum = left.sum + right.sum;
  both.end = std::max(right.end, left.end + right.sum);
  const Ns fromLeft = left.optionalSum + right.sum, fromRight = left.sum + right.optionalSum;
  both.optionalSum = std::max(fromLeft, fromRight);
  both.ofSum = fromLeft > fromRight ? left.ofSum : right.ofSum;
  both.optionalEnd = right.optionalEnd;
  both.ofEnd = right.ofEnd;
  if (left.end + right.optionalSum > both.optionalEnd) {
    both.optionalEnd = left.end + right.optionalSum;
    both.ofEnd = right.ofSum;
  }
  if (left.optionalEnd + right.sum > both.optionalEnd) {
    both.optionalEnd = left.optionalEnd + right.sum;
    both.ofEnd = left.ofEnd;
  }
}

}  // namespace pw
