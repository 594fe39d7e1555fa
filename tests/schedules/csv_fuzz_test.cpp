#include <algorithm>
#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t bound) { return static_cast<std::size_t>(random() % bound); }

/// Valid files in both forms: compute-only with idle cells, slots, split backwards, two replicas, and lowered.
std::vector<std::string> validFiles() {
  std::vector<std::string> files{
      "0F0,0F1,,0B0,0B1\r\n,1F0,1B0,1F1,1B1\r\n",
      "0F0,0I0,0W0,3F0,3B0\r\n1F0,2F0,2I0,1B0,2W0\r\n",
      "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n",
      "0F0,1F1,1B1,0B0\r\n0F1,1F0,1B0,0B1\r\n",
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\r\n1RECV_F0,1F0,1B0,1SEND_B0\r\n",
  };
  for (const char* name : {"gpipe", "1f1b"}) {
    files.push_back(toCsv(generate(name, {3, 3, 4})));
    files.push_back(toCsv(lower(generate(name, {2, 2, 3}))));
  }
  return files;
}

/// Begin and end of a random cell.
std::pair<std::size_t, std::size_t> randomCell(Random& random, const std::string& text) {
  const std::size_t at = below(random, text.size());
  const std::size_t before = text.find_last_of(",\n", at);
  const std::size_t begin = before == std::string::npos || before == at ? at : before + 1;
  return {begin, std::min(text.find_first_of(",\r\n", begin), text.size())};
}

void swapCells(Random& random, std::string& text) {
  auto one = randomCell(random, text);
  auto other = randomCell(random, text);
  if (other < one) std::swap(one, other);
  if (one.second > other.first) return;
  const std::string first = text.substr(one.first, one.second - one.first);
  const std::string second = text.substr(other.first, other.second - other.first);
  text.replace(other.first, second.size(), first);  // the later one first, so that the earlier stays where it is
  text.replace(one.first, first.size(), second);
}

/// One to three damages: a bit, a span, a cell, a line end or a number.
std::string mutate(Random& random, std::string text) {
  constexpr std::string_view kSigns = "0123456789FBIW_SENDRECV,;()\"\r\n \t-+x\0";
  for (std::size_t damages = 1 + below(random, 3); damages > 0 && !text.empty(); --damages) {
    const std::size_t at = below(random, text.size());
    const std::size_t length = 1 + below(random, std::min<std::size_t>(text.size() - at, 12));
    switch (below(random, 9)) {
      case 0: text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << below(random, 8))); break;
      case 1: text[at] = kSigns[below(random, kSigns.size())]; break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(below(random, text.size()), text.substr(at, length)); break;
      case 4: text.insert(at, length, kSigns[below(random, kSigns.size())]); break;
      case 5:
      case 6: swapCells(random, text); break;
      case 7: {  // a number grows: 3 → 333333
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.insert(digit, below(random, 12), text[digit]);
        break;
      }
      default: {  // a line more, less, or joined
        const std::size_t end = text.find('\n', at);
        if (end == std::string::npos) break;
        if (below(random, 2) == 0)
          text.erase(end, 1);
        else
          text.insert(end, text.substr(0, below(random, end + 1)));
        break;
      }
    }
  }
  return text;
}

std::optional<Schedule> parsed(const std::string& text, Letters letters) {
  try {
    return parseCsv(text, "fuzz", "fuzz.csv", letters);
  } catch (const UsageError& error) {
    EXPECT_NE(std::string_view(error.what()).find("fuzz.csv: "), std::string_view::npos) << error.what();
    return std::nullopt;
  }
}

class CsvFuzz : public testing::TestWithParam<unsigned> {};

TEST_P(CsvFuzz, QuarterOfAMillionDamagedFilesAreReadAsWrittenOrRefused) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  Random random(GetParam());
  const std::vector<std::string> files = validFiles();
  for (const std::string& file : files) ASSERT_TRUE(parsed(file, Letters::Torch)) << file;
  int accepted = 0, sound = 0;
  for (int i = 0; i < 250'000; ++i) {
    const std::string text = mutate(random, files[below(random, files.size())]);
    const Letters letters = below(random, 8) == 0 ? Letters::ZeroBubble : Letters::Torch;
    const std::clock_t begin = std::clock();  // of this process, so that a busy machine does not count
    const auto schedule = parsed(text, letters);
    if (schedule) {
      ++accepted;
      const std::string again = toCsv(*schedule);
      ASSERT_EQ(parseCsv(again, "fuzz", "again.csv"), *schedule) << "case " << i << "\n" << text << "\n--- written\n" << again;
      sound += check(*schedule).empty() ? 1 : 0;
    }
    ASSERT_LT(std::clock() - begin, CLOCKS_PER_SEC) << "case " << i << ": some hundred bytes take no such time\n" << text;
  }
  EXPECT_GT(accepted, 25'000) << "damages must leave enough to be read";
  EXPECT_LT(accepted, 225'000);
  EXPECT_GT(sound, 2'500);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CsvFuzz, testing::Values(1U, 2U, 3U, 4U));

}  // namespace
}  // namespace pw
