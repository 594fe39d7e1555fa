#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/order/proof/end_tree.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;

struct Leaf {
  Ns earliest = 0, time = 0;
  enum class State { Out, In, Optional } state = State::Out;
};

/// One after the other in the order of their earliest starts.
Ns endOf(const std::vector<Leaf>& leaves, std::size_t optional) {
  Ns end = -1;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].state == Leaf::State::In || i == optional) end = std::max(end, leaves[i].earliest) + leaves[i].time;
  }
  return end;
}

std::vector<Leaf> randomLeaves(std::mt19937_64& random, Leaf::State state) {
  std::vector<Leaf> leaves(static_cast<std::size_t>(draw(random, 1, 13)));
  for (Leaf& leaf : leaves) leaf = {draw<Ns>(random, 0, 60), draw<Ns>(random, 0, 12), state};
  std::ranges::sort(leaves, {}, &Leaf::earliest);
  return leaves;
}

TEST(EndTree, EndsWhenItsLeavesDoOneAfterTheOther) {
  std::mt19937_64 random(1);
  EndTree tree;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Leaf> leaves = randomLeaves(random, Leaf::State::Out);
    tree.reset(leaves.size());
    for (int change = 0; change < 40; ++change) {
      const auto i = static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(leaves.size()) - 1));
      Leaf& leaf = leaves[i];
      if (leaf.state == Leaf::State::Out) {
        leaf.state = Leaf::State::In;
        tree.insert(i, leaf.earliest, leaf.time);
      } else {
        leaf.state = Leaf::State::Out;
        tree.remove(i);
      }
      const Ns end = endOf(leaves, leaves.size());
      if (end >= 0) {
        ASSERT_EQ(tree.end(), end);
      } else {
        ASSERT_LT(tree.end(), 0);
      }
    }
  }
}

TEST(OptionalEndTree, EndsWithTheOptionalLeafThatEndsLatest) {
  std::mt19937_64 random(2);
  OptionalEndTree tree;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Leaf> leaves = randomLeaves(random, Leaf::State::In);
    std::vector<OptionalEndTree::Leaf> all;
    for (const Leaf& leaf : leaves) all.push_back({leaf.earliest, leaf.time});
    tree.fill(all);
    for (int change = 0; change < 20; ++change) {
      const auto i = static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(leaves.size()) - 1));
      Leaf& leaf = leaves[i];
      if (leaf.state == Leaf::State::In && !oneIn(random, 4)) {
        leaf.state = Leaf::State::Optional;
        tree.makeOptional(i);
      } else {
        leaf.state = Leaf::State::Out;
        tree.remove(i);
      }
      const Ns end = endOf(leaves, leaves.size());
      Ns most = end;
      for (std::size_t o = 0; o < leaves.size(); ++o) {
        if (leaves[o].state == Leaf::State::Optional) most = std::max(most, endOf(leaves, o));
      }
      if (end >= 0) {
        ASSERT_EQ(tree.end(), end);
      } else {
        ASSERT_LT(tree.end(), 0);
      }
      if (most < 0) continue;
      ASSERT_EQ(tree.endWithOptional(), most);
      if (most > end) {
        ASSERT_GE(tree.optional(), 0);
        ASSERT_EQ(endOf(leaves, static_cast<std::size_t>(tree.optional())), most);
      }
    }
  }
}

}  // namespace
}  // namespace pw
