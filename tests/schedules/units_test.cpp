#include "schedules/units.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Units, DurationsAreReadAsWholeNanoseconds) {
  EXPECT_EQ(parseDuration("30ns"), 30);
  EXPECT_EQ(parseDuration("200us"), 200'000);
  EXPECT_EQ(parseDuration("1.5ms"), 1'500'000);
  EXPECT_EQ(parseDuration("2s"), 2'000'000'000);
  EXPECT_EQ(parseDuration("1.123456789s"), 1'123'456'789);
  EXPECT_EQ(parseDuration("0"), 0);
  EXPECT_EQ(parseDuration("0ms"), 0);
}

TEST(Units, SizesKnowDecimalAndBinaryUnits) {
  EXPECT_EQ(parseSize("12B"), 12);
  EXPECT_EQ(parseSize("80GB"), 80'000'000'000);
  EXPECT_EQ(parseSize("512MB"), 512'000'000);
  EXPECT_EQ(parseSize("3KB"), 3'000);
  EXPECT_EQ(parseSize("100KiB"), 102'400);
  EXPECT_EQ(parseSize("1MiB"), 1'048'576);
  EXPECT_EQ(parseSize("24GiB"), 25'769'803'776);
  EXPECT_EQ(parseSize("1.5KiB"), 1'536);
}

TEST(Units, FractionsRoundToTheNearestWithHalvesUp) {
  EXPECT_EQ(parseDuration("0.4ns"), 0);
  EXPECT_EQ(parseDuration("0.5ns"), 1);
  EXPECT_EQ(parseDuration("1.0004us"), 1'000);
  EXPECT_EQ(parseSize("0.3KiB"), 307);                      // 307.2
  EXPECT_EQ(parseSize("0.999999999GiB"), (1LL << 30) - 1);  // 1.07 bytes less
}

TEST(Units, AnythingElseIsRefused) {
  for (const char* text :
       {"",     "1",     "00",    "0.0",    "ms",      "1.5", "1.ms", ".5ms", "1.5 ms", " 1ms",          "1ms ", "-1ms",
        "+1ms", "1e3ms", "1,5ms", "1..5ms", "1.2.3ms", "1MS", "1m",   "1min", "0x1ms",  "1.0123456789s", "1msx", "1\xc2\xb5s"}) {
    EXPECT_THROW((void)parseDuration(text), UsageError) << text;
  }
  for (const char* text : {"", "0", "1", "GiB", "1gib", "1kB", "1K", "1G", "1 GB", "-1B", "1.B", "1e3B", "1TBx"}) {
    EXPECT_THROW((void)parseSize(text), UsageError) << text;
  }
}

TEST(Units, NumbersThatLeaveSixtyFourBitsAreRefused) {
  EXPECT_EQ(parseDuration("9223372036854775807ns"), kMost);
  EXPECT_THROW((void)parseDuration("9223372036854775808ns"), UsageError);
  EXPECT_THROW((void)parseDuration("9223372036854775807.5ns"), UsageError);
  EXPECT_EQ(parseDuration("9223372036s"), 9'223'372'036'000'000'000);
  EXPECT_THROW((void)parseDuration("9223372037s"), UsageError);
  EXPECT_THROW((void)parseDuration("9223372036.9s"), UsageError);
  EXPECT_THROW((void)parseSize("99999999999999999999999999999GiB"), UsageError);
  EXPECT_EQ(parseSize("8589934591GiB"), kMost - ((1LL << 30) - 1));  // (2^33 − 1)·2^30
  EXPECT_THROW((void)parseSize("8589934592GiB"), UsageError);
}

TEST(Units, TheRefusalQuotesTheTextAndShowsTheForm) {
  try {
    (void)parseDuration("5");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "\"5\" is not a duration; write a number and ns, us, ms or s, like 1.5ms");
  }
}

TEST(Units, DurationsAreShownWithThreeDigits) {
  EXPECT_EQ(formatDuration(0), "0 ns");
  EXPECT_EQ(formatDuration(850), "850 ns");
  EXPECT_EQ(formatDuration(999), "999 ns");
  EXPECT_EQ(formatDuration(1'000), "1.00 µs");
  EXPECT_EQ(formatDuration(1'234'567), "1.23 ms");
  EXPECT_EQ(formatDuration(Ns(12'345'678'901)), "12.3 s");
  EXPECT_EQ(formatDuration(123'456'789), "123 ms");
  EXPECT_EQ(formatDuration(Ns(59'960'000'000)), "60.0 s");
  EXPECT_EQ(formatDuration(Ns(60'000'000'000)), "1.00 min");
  EXPECT_EQ(formatDuration(Ns(868'000'000'000)), "14.5 min");
  EXPECT_EQ(formatDuration(Ns(48'119'000'000'000)), "13.4 h");
  EXPECT_EQ(formatDuration(Ns(3'599'999'000'000)), "60.0 min");
  EXPECT_EQ(formatDuration(Ns(12'345'678'000'000'000)), "3429 h");
  EXPECT_EQ(formatDuration(-1'500), "-1.50 µs");
}

TEST(Units, RoundingUpMovesToTheNextFormOrUnit) {
  EXPECT_EQ(formatDuration(9'994), "9.99 µs");
  EXPECT_EQ(formatDuration(9'995), "10.0 µs");
  EXPECT_EQ(formatDuration(99'949), "99.9 µs");
  EXPECT_EQ(formatDuration(99'950), "100 µs");
  EXPECT_EQ(formatDuration(999'499), "999 µs");
  EXPECT_EQ(formatDuration(999'500), "1.00 ms");
}

TEST(Units, SizesAreShownInBinaryUnits) {
  EXPECT_EQ(formatSizes(1'572'864, 1'572'863), std::pair(std::string("1572864 B"), std::string("1572863 B")));
  EXPECT_EQ(formatSizes(1'572'864, 1'024), std::pair(std::string("1.50 MiB"), std::string("1.00 KiB")));
  EXPECT_EQ(formatSizes(1'024, 1'024), std::pair(std::string("1.00 KiB"), std::string("1.00 KiB")));
  EXPECT_EQ(formatSize(0), "0 B");
  EXPECT_EQ(formatSize(512), "512 B");
  EXPECT_EQ(formatSize(1'023), "1023 B");
  EXPECT_EQ(formatSize(1'024), "1.00 KiB");
  EXPECT_EQ(formatSize(1'572'864), "1.50 MiB");
  EXPECT_EQ(formatSize(Bytes{1'000} * 1'024), "1000 KiB");
  EXPECT_EQ(formatSize(1'048'575), "1.00 MiB");  // 1024 KiB less one byte
  EXPECT_EQ(formatSize(Bytes(25'769'803'776)), "24.0 GiB");
  EXPECT_EQ(formatSize(Bytes{1} << 40), "1.00 TiB");
}

TEST(Units, TheExtremesAreShownToo) {
  EXPECT_EQ(formatDuration(Ns(kMost)), "2562048 h");
  EXPECT_EQ(formatDuration(std::numeric_limits<Ns>::min()), "-2562048 h");
  EXPECT_EQ(formatSize(Bytes(kMost)), "8388608 TiB");  // 2^63 / 2^40 = 2^23
}

TEST(Units, AnotherTextIsAnAnswerToThoseWhoTry) {
  EXPECT_EQ(*tryDuration("1.5ms"), Ns(1'500'000));
  EXPECT_EQ(*trySize("2KiB"), Bytes(2'048));
  EXPECT_EQ(tryDuration("soon").refusal().why, "\"soon\" is not a duration; write a number and ns, us, ms or s, like 1.5ms");
  EXPECT_EQ(trySize("large").refusal().why, "\"large\" is not a size; write a number and B, KB, MB, GB, KiB, MiB or GiB, like 1.5GiB");
}

}  // namespace
}  // namespace pw
