#include "simulator/partition/recompute.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace pw {
namespace {

using Words = std::vector<std::string>;

TEST(Recompute, IsOneWordOrTheNamesOfModules) {
  EXPECT_EQ(parseRecompute({"none"}), Recompute(RecomputeNone()));
  EXPECT_EQ(parseRecompute({"full"}), Recompute(RecomputeFull()));
  EXPECT_EQ(parseRecompute({"auto"}), Recompute(RecomputeAuto()));
  EXPECT_EQ(parseRecompute({"blocks", "head"}), Recompute(RecomputeModules{{"blocks", "head"}}));
  EXPECT_EQ(parseRecompute({}), Recompute(RecomputeNone()));
  EXPECT_EQ(parseRecompute({"full", "head"}), Recompute(RecomputeModules{{"full", "head"}})) << "there may be a module of that name";
}

TEST(Recompute, IsWrittenAsItIsRead) {
  for (const Words& words : {Words{"none"}, Words{"full"}, Words{"auto"}, Words{"blocks.1"}, Words{"none", "head"}})
    EXPECT_EQ(wordsOf(parseRecompute(words)), words);
}

TEST(Recompute, IsOrderedByItsWords) {
  const std::vector<Words> words{{"auto"}, {"full"}, {"none"}};
  std::vector<Recompute> all;
  for (const Words& one : words) all.push_back(parseRecompute(one));
  EXPECT_TRUE(std::ranges::is_sorted(words) && std::ranges::is_sorted(all));
}

}  // namespace
}  // namespace pw
