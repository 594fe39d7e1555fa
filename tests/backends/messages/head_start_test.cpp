#include "backends/messages/head_start.h"

#include <gmock/gmock.h>

#include <vector>

namespace pw {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

std::vector<Ns>& spins() {
  static std::vector<Ns> all;
  return all;
}

Device spinning() {
  Device device = hostDevice();
  device.spin = [](Ns duration) { spins().push_back(duration); };
  return device;
}

/// A sample of that many steps.
void sample(HeadStart& start, bool isSpun, Ns steps) {
  spins().clear();
  start.begin(isSpun);
  for (Ns i = 0; i < steps; ++i) start.step();
  start.end();
}

TEST(HeadStart, IsGivenAtTheBeginAndAfterAllLapsItWasFor) {
  const Device device = spinning();
  HeadStart start(device);
  sample(start, false, 5 * HeadStart::kSteps);
  EXPECT_THAT(spins(), IsEmpty()) << "the host is timed";
  sample(start, true, 5 * HeadStart::kSteps - 1);
  EXPECT_THAT(spins(), SizeIs(1 + 4));
}

/// It grew with each sample once: what the host waits for is not what it needs.
TEST(HeadStart, DoesNotGrowWithTheTimeThatSpunSamplesTake) {
  const Device device = spinning();
  HeadStart start(device);
  sample(start, false, HeadStart::kSteps);
  sample(start, true, HeadStart::kSteps);
  const Ns each = spins().front();
  EXPECT_THAT(each, AllOf(Ge(100'000), Le(2 * HeadStart::kSteps * 1'000'000 + 100'000)));
  for (int i = 0; i < 5; ++i) {
    sample(start, true, 3 * HeadStart::kSteps);
    EXPECT_THAT(spins(), Each(each));
  }
}

TEST(HeadStart, IsNothingOnAHost) {
  HeadStart start(hostDevice());
  sample(start, true, 2 * HeadStart::kSteps);
  EXPECT_THAT(spins(), IsEmpty());
}

}  // namespace
}  // namespace pw
