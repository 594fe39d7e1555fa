#include "schedules/printable.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(Printable, LeavesWordsOfAllLanguagesLineEndsAndTabsAsTheyAre) {
  const std::string text = "größe\t幅 🙂 é\n";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(printable(text)), text);
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\u001b[2Jb");
  EXPECT_EQ(printable("\r\b\a\x7f"), "\\u000d\\u0008\\u0007\\u007f");
  EXPECT_EQ(printable("\xC2\x9B[31m"), "\\u009b[31m");  // CSI as one character
  EXPECT_EQ(printable("\xC2\x80\xC2\x9F\xC2\xA0"), "\\u0080\\u009f\xC2\xA0");
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "txt.exe"),
            "\\u202etxt.exe");  // right-to-left override
  EXPECT_EQ(printable("\xE2\x81\xA6\xE2\x81\xA9\xE2\x80\xA8"), "\\u2066\\u2069\\u2028");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\u0000b");
}

TEST(Printable, ReplacesBytesThatAreNotUtf8) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(printable("\xFFz"), r + "z");
  EXPECT_EQ(printable("\x9B[31m"), r + "[31m");             // a C1 control of Latin 1
  EXPECT_EQ(printable("\xE2\x80"), r + r);                  // truncated
  EXPECT_EQ(printable("\xC0\x9B"), r + r);                  // overlong
  EXPECT_EQ(printable("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
}

TEST(PrintableLine, ShowsLineEndsAndTabsToo) { EXPECT_EQ(printableLine("a\nb\tc"), "a\\u000ab\\u0009c"); }

}  // namespace
}  // namespace pw
