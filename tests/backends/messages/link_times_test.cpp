#include "backends/messages/link_times.h"
#include "backends/messages/in_memory_communicator.h"

#include <gmock/gmock.h>

#include <thread>

namespace pw {
namespace {

TEST(LinkTimes, AreOfEachSizeAtTheTwoRanksAndNoneElsewhere) {
  const auto ranks = inMemoryCommunicators(3, std::chrono::seconds(20));
  std::vector<std::vector<std::pair<Bytes, Ns>>> times(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < 3; ++r)
      threads.emplace_back([&, r] { times[r] = linkTimes(*ranks[r], hostDevice(), std::chrono::seconds(20)); });
  }
  for (const std::size_t r : {0U, 1U}) {
    std::vector<std::int64_t> sizes;
    for (const auto& [size, time] : times[r]) {
      sizes.push_back(size.value);
      EXPECT_GT(time, 0);
    }
    EXPECT_THAT(sizes, testing::ElementsAre(1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22));
  }
  EXPECT_THAT(times[2], testing::IsEmpty());
}

}  // namespace
}  // namespace pw
