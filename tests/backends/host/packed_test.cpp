#include "backends/host/packed.h"

#include <limits>

#include <gtest/gtest.h>

namespace pw {
namespace {

std::string packed() {
  Packer packer;
  packer.add(true);
  packer.add(std::int32_t{-2});
  packer.add(std::uint64_t{1} << 63);
  packer.add(-0.5);
  packer.add(std::string("two words"));
  packer.add(std::optional<double>());
  packer.add(std::optional<double>(3));
  return packer.finish();
}

TEST(Packed, ValuesComeBackInTheirOrder) {
  const std::string bytes = packed();
  EXPECT_EQ(bytes.size(), 1U + 4 + 8 + 8 + (8 + 9) + 9 + 9);
  Unpacker unpacker(bytes);
  EXPECT_TRUE(unpacker.next<bool>());
  EXPECT_EQ(unpacker.next<std::int32_t>(), -2);
  EXPECT_EQ(unpacker.next<std::uint64_t>(), std::uint64_t{1} << 63);
  EXPECT_EQ(unpacker.next<double>(), -0.5);
  EXPECT_EQ(unpacker.next<std::string>(), "two words");
  EXPECT_EQ(unpacker.next<std::optional<double>>(), std::nullopt);
  EXPECT_FALSE(unpacker.isComplete());
  EXPECT_EQ(unpacker.next<std::optional<double>>(), std::optional<double>(3));
  EXPECT_TRUE(unpacker.isComplete());
}

TEST(Packed, IntegersAreLittleEndianOnEveryMachine) {
  Packer packer;
  packer.addRaw("x");
  packer.add(std::int32_t{0x01020304});
  packer.add(std::int64_t{-2});
  EXPECT_EQ(packer.finish(), std::string("x\x04\x03\x02\x01\xfe\xff\xff\xff\xff\xff\xff\xff", 13));
}

TEST(Packed, WhatIsCutOffIsNoticedAndReadsAsNothing) {
  const std::string bytes = packed();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    Unpacker unpacker(std::string_view(bytes).substr(0, size));
    (void)unpacker.next<bool>(), (void)unpacker.next<std::int32_t>(), (void)unpacker.next<std::uint64_t>();
    (void)unpacker.next<double>(), (void)unpacker.next<std::string>(), (void)unpacker.next<std::optional<double>>();
    EXPECT_EQ(unpacker.next<std::optional<double>>().value_or(0), 0) << size;
    EXPECT_FALSE(unpacker.isSound()) << size;
    EXPECT_EQ(unpacker.left(), 0U) << size;
  }
}

TEST(Packed, ATextLongerThanTheRestIsEmpty) {
  Packer packer;
  packer.add(std::numeric_limits<std::uint64_t>::max());
  packer.addRaw("abc");
  const std::string bytes = packer.finish();
  Unpacker unpacker(bytes);
  EXPECT_EQ(unpacker.text(), "");
  EXPECT_FALSE(unpacker.isSound());
}

TEST(Packed, AnIntegerOutsideItsRangeIsNoticed) {
  Packer packer;
  packer.add(std::int32_t{7});
  packer.add(std::int32_t{7});
  const std::string bytes = packer.finish();
  Unpacker unpacker(bytes);
  EXPECT_EQ(unpacker.within(-1, 7), 7);
  EXPECT_TRUE(unpacker.isSound());
  EXPECT_EQ(unpacker.within(-1, 6), -1);
  EXPECT_FALSE(unpacker.isSound());
}

}  // namespace
}  // namespace pw
