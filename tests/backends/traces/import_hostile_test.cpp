// Import of damaged, foreign and enormous files: an answer or one sentence, never a crash.
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "backends/traces/import.h"
#include "backends/traces/readers/windows.h"
#include "schedules/error.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"
#include "tests/support/hostile.h"
#include "tests/support/mutate.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<std::string>& paths) {
  try {
    (void)importTrace(paths);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusalOf(const std::string& text) {
  const test::Folder folder;
  return refusal({folder.with("trace.json", text)});
}

const std::string kForward = R"({"ph":"X","cat":"user_annotation","name":"PP:0F0","pid":1,"tid":1,"ts":10,"dur":5})";

/// A file without a disk, for tests that write thousands.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("trace", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  /// Replaces the content; returns the path.
  [[nodiscard]] std::string with(const std::string& text) const {
    if (ftruncate(file_, 0) != 0 || pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("cannot write to memory");
    return "/proc/self/fd/" + std::to_string(file_);
  }

 private:
  int file_;
};

/// Brackets counted one character after another.
BracketScan::Found slowScan(std::string_view text, BracketScan& scan) {
  BracketScan::Found found;
  for (std::size_t i = 0; i < text.size() && found.end == std::string::npos; ++i) scan.one(text[i], i, found);
  return found;
}

TEST(BracketScan, AgreesWithCountingOneByOneOnAnyText) {
  std::mt19937_64 random(11);
  constexpr std::string_view kLetters = "{}[]\"\\ax{}[]  \"";
  for (int round = 0; round < 20'000; ++round) {
    std::string text(static_cast<std::size_t>(test::draw(random, 0, 300)), ' ');
    // Some texts of many escapes, some of none: blocks with a backslash take another way.
    const std::int64_t letters = round % 2 == 0 ? static_cast<std::int64_t>(kLetters.size()) - 1 : 4;
    for (char& c : text) c = kLetters[static_cast<std::size_t>(test::draw(random, 0, letters))];
    BracketScan quick, slow;
    quick.depth = slow.depth = test::draw(random, 0, 3);
    quick.inString = slow.inString = test::draw(random, 0, 1) == 1;
    const BracketScan::Found a = quick.scan(text), b = slowScan(text, slow);
    ASSERT_EQ(a.cut, b.cut) << text;
    ASSERT_EQ(a.end, b.end) << text;
    if (a.end != std::string::npos) continue;  // both stopped there
    ASSERT_EQ(quick.depth, slow.depth) << text;
    ASSERT_EQ(quick.inString, slow.inString) << text;
    ASSERT_EQ(quick.escaped, slow.escaped) << text;
  }
}

TEST(EventWindows, GivesEveryEventOnceWhateverItsTexts) {
  // Texts with brackets, quotes and escapes, of all lengths, over several windows; some larger than a window.
  std::mt19937_64 random(5);
  nlohmann::json events = nlohmann::json::array();
  std::size_t bytes = 0;
  while (bytes < 6'000'000) {
    std::string text(static_cast<std::size_t>(events.size() % 97 == 96 ? 1'500'000 : test::draw(random, 0, 400)), 'x');
    for (char& c : text) c = "}{][\"\\,:a\n"[test::draw(random, 0, 9)];
    bytes += text.size();
    events.push_back({{"number", events.size()}, {"text", text}, {"deep", {{{"a", {1, 2, 3}}}}}});
  }
  const test::Folder folder;
  for (const std::string& whole :
       {events.dump(), nlohmann::json{{"before", "[}"}, {"traceEvents", events}, {"zlast", {{"traceEvents", {1}}}}}.dump(1)}) {
    EventWindows windows(folder.with("events.json", whole));
    std::string_view window;
    std::size_t next = 0, count = 0;
    while (windows.next(window)) {
      if (window.empty()) continue;
      ++count;
      for (const nlohmann::json& event : nlohmann::json::parse(window)) EXPECT_EQ(event, events.at(next++));
    }
    EXPECT_EQ(next, events.size());
    EXPECT_GT(count, 3U);
    EXPECT_FALSE(windows.isTruncated());
  }
}

TEST(HostileImport, SaysInOneSentenceWhatIsNoTrace) {
  EXPECT_THAT(refusalOf(""), HasSubstr("is empty"));
  EXPECT_THAT(refusalOf("hello"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusalOf("\x1f\x8b\x07 zipped"), HasSubstr("damaged gzip file"));
  EXPECT_THAT(refusalOf(test::gzipped("hello")), HasSubstr("is not JSON"));
  EXPECT_THAT(refusalOf("{}"), HasSubstr("no list traceEvents"));
  EXPECT_THAT(refusalOf(R"({"format":"pipewright plan","version":1})"), HasSubstr("no list traceEvents"));
  EXPECT_THAT(refusalOf(R"({"traceEvents":7})"), HasSubstr("no list traceEvents"));
  EXPECT_THAT(refusalOf(R"({"schemaVersion":1,"deviceProperties":[{"id":0)"),
              HasSubstr("ends before its list traceEvents begins: it is truncated; copy or record it again"));
  EXPECT_THAT(refusalOf("[]"), HasSubstr("0 events but no pipeline labels"));
  EXPECT_THAT(refusalOf(R"([{"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":1,"tid":1,"ts":5,"dur":2}])"),
              HasSubstr("1 event but no pipeline labels"))
      << "as of every training";
  EXPECT_THAT(refusalOf(R"({"traceEvents":[{"ph":"X","name":"aten::mm","ts":1,"dur":1}]})"),
              HasSubstr("1 event but no pipeline labels: looked for torch's PP:2F0"));
  EXPECT_THAT(refusalOf(R"([{"ph":"X" "name":1}])"), HasSubstr("is damaged"));
  EXPECT_THAT(refusal({"/nonexistent/trace.json"}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal({"/dev/zero"}), HasSubstr("is not a file"));
  const test::Folder folder;
  EXPECT_THAT(refusal({folder.file("")}), HasSubstr("holds no trace (.json .json.gz .sqlite .et .et.gz)"));
  EXPECT_THAT(refusal({}), HasSubstr("no trace was named"));
}

TEST(HostileImport, LooksUpNoStageForAnOptimizerWithAMicrobatch) {
  const test::Folder folder;
  const std::string path =
      folder.with("own.json", R"({"traceEvents":[{"ph":"X","cat":"OPTIMIZER","name":"OPTIMIZER5","pid":0,"tid":0,"ts":0,"dur":1}]})");
  EXPECT_LE(importTrace({path}).value().steps.size(), 1U);
}

TEST(HostileImport, TakesWhatIsSoundAroundWhatIsNot) {
  const auto spansOf = [](const std::string& text) {
    const test::Folder folder;
    const ImportedTrace result = importTrace({folder.with("trace.json", text)}).value();
    for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
    EXPECT_EQ(result.steps.size(), 1U);
    return std::pair{result.steps.at(0).trace.spans.size(), result.notes};
  };
  const auto bad = [](const std::string& fields) { return R"(,{"ph":"X","name":"PP:0F1","pid":1,"tid":1,)" + fields + "}"; };
  // Times that are none, or that nobody can draw.
  for (const std::string fields :
       {R"("ts":NaN,"dur":1)", R"("ts":1,"dur":-1)", R"("ts":1e308,"dur":1)", R"("ts":1,"dur":1e300)", R"("ts":null,"dur":1)", R"("ts":1)",
        R"("ts":"x","dur":1)", R"("ts":[1],"dur":{})", R"("ts":99999999999999999999,"dur":1)", R"("ts":-,"dur":1)"}) {
    const auto [spans, notes] = spansOf("[" + kForward + bad(fields) + "]");
    EXPECT_EQ(spans, 1U) << fields;
    EXPECT_THAT(notes, testing::ElementsAre("1 event of trace.json left out, because it has no usable time.")) << fields;
  }
  // Labels beyond what there can be are none.
  for (const std::string name : {"PP:9999999F0", "PP:0F9999999", "PP:0F", "PP:F0", "PP:0X0", "PP:0F0x", "PP:", "PP:(0F1;0F2)OVERLAP_F_B",
                                 "PP:(", "Forward ", "Forward -1", "PP:-1F0"}) {
    EXPECT_EQ(spansOf("[" + kForward + R"(,{"ph":"X","name":")" + name + R"(","pid":1,"tid":1,"ts":30,"dur":1}])").first, 1U) << name;
  }
  // Elements that are no events, texts that are no UTF-8, a comma too many, an end that is missing.
  EXPECT_EQ(spansOf("[" + kForward + R"(,1,"x",null,[{"ph":"X"}]])").first, 1U);
  EXPECT_EQ(spansOf("[" + kForward + ",{\"name\":\"\xff\xfe kernel\"}]").first, 1U);
  EXPECT_EQ(spansOf("[" + kForward + ",\n]").first, 1U);
  EXPECT_EQ(spansOf("\xEF\xBB\xBF {\"traceEvents\": [" + kForward + "]}").first, 1U);
  for (const std::string end : {"", ",", ",{\"ph\":\"X\",\"na", ",{\"ph\":\"X\",\"name\":{\"a\":[1"}) {
    const auto [spans, notes] = spansOf("{\"traceEvents\":[" + kForward + end);
    EXPECT_EQ(spans, 1U) << end;
    EXPECT_THAT(notes, testing::ElementsAre("trace.json ends in the middle; the part up to there was used.")) << end;
  }
}

TEST(HostileImport, RefusesClocksThatCannotBeRight) {
  const std::string later = R"(,{"ph":"X","name":"PP:0F1","pid":1,"tid":1,"ts":2199999999999998,"dur":1})";
  EXPECT_EQ(refusalOf("[" + kForward + later + "]"), "") << "25,000 days on one rank still add up";
  const std::string ranks = R"(,{"ph":"X","name":"PP:1F1","pid":2,"tid":1,"ts":2199999999999998,"dur":1})";
  EXPECT_THAT(refusalOf("[" + kForward + later + ranks + "]"), HasSubstr("its clocks cannot be right"));
}

TEST(HostileImport, SurvivesDeepNestingAndLongTexts) {
  EXPECT_THAT(refusalOf(std::string(2'000'000, '[')), HasSubstr("no pipeline labels"));
  EXPECT_NE(refusalOf("[" + std::string(3'000'000, '{') + "]"), "");
  std::string deep = R"([{"args":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}," + kForward + "]";
  const test::Folder folder;
  EXPECT_EQ(importTrace({folder.with("a.json", deep)}).value().steps.size(), 1U);
  std::string opened = "[" + kForward;
  for (int i = 0; i < 100'001; ++i) opened += R"(,{"ph":"B","name":"x","pid":1,"tid":1,"ts":1})";
  EXPECT_THAT(refusalOf(opened + "]"), HasSubstr("without closing any"));
}

TEST(HostileImport, SurvivesDamagedFiles) {
  // Every way an event can be read, damaged at random.
  std::string text = R"({"baseTimeNanoseconds":1700000000000000000,"distributedInfo":{"rank":3},"traceEvents":[)" + kForward;
  text +=
      R"(,{"ph":"X","cat":"gpu_user_annotation","name":"PP:(0F5;3B2)OVERLAP_F_B","pid":0,"tid":7,"ts":20.5,"dur":5,"args":{"a":[{"b":1}]}})";
  text +=
      R"(,{"ph":"B","name":"PP:1SEND_F0","pid":1,"tid":1,"ts":30},{"ph":"E","pid":1,"tid":1,"ts":31},{"ph":"X","name":"ProfilerStep#1","pid":1,"tid":1,"ts":9,"dur":99})";
  text +=
      R"(,{"ph":"X","name":"0SEND_F0","cat":"SEND_F","pid":5,"tid":3,"ts":1.5,"dur":2,"args":{"stage":0,"microbatch":0,"from":0,"to":1,"bytes":64}})";
  text +=
      R"(,{"ph":"X","name":"0F0","cat":"F","pid":5,"tid":0,"ts":0,"dur":1},{"ph":"M","name":"thread_name","pid":5,"tid":0,"args":{"name":"rank 0"}})";
  text +=
      R"(,{"ph":"C","name":"memory of rank 1","pid":5,"ts":3,"args":{"bytes":12}},{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":4,"args":{"Total Allocated":5,"Device Type":1}}]})";
  std::mt19937_64 random(3);
  const MemoryFile file;
  int read = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string damaged =
        i % 10 == 0 ? text.substr(0, static_cast<std::size_t>(test::draw(random, 0, static_cast<std::int64_t>(text.size()))))
                    : test::mutate(text, random);
    const std::string path = file.with(damaged);
    try {
      const ImportedTrace result = importTrace({path}).value();
      ASSERT_FALSE(result.steps.empty());
      for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) FAIL() << damaged;
      ++read;
    } catch (const UsageError& error) {
      ASSERT_GT(std::string(error.what()).size(), 20U) << damaged;
      ++refused;
    }
  }
  EXPECT_GT(read, 5'000);
  EXPECT_GT(refused, 500);
}

TEST(HostileImport, SurvivesDamagedMessagesWithoutActions) {
  using Event = nlohmann::ordered_json;
  Event events = Event::array();
  const auto add = [&](const char* name, int rank, int start, int duration) {
    events.push_back(
        {{"ph", "X"}, {"cat", "user_annotation"}, {"name", name}, {"pid", rank}, {"tid", 1}, {"ts", start}, {"dur", duration}});
  };
  for (int step = 0; step < 2; ++step) {
    const int at = 200 * step;
    add("PP::fwd_send (stage 0)", 0, at + 10, 1);
    add("PP::fwd_send_bwd_recv (stage 0)", 0, at + 21, 20);
    add("PP::bwd_recv (stage 0)", 0, at + 61, 20);
    add("PP::fwd_recv (stage 1)", 1, at + 1, 10);
    add("PP::bwd_send_fwd_recv (stage 1)", 1, at + 41, 1);
    add("PP::bwd_send (stage 1)", 1, at + 72, 1);
    add("Optimizer.step#SGD.step", 0, at + 150, 5);
  }
  const std::string text = events.dump();
  const MemoryFile file;
  const test::Survived survived = test::survive(
      "messages", test::mutations(3000), [&](std::mt19937_64& random) { return test::damaged(text, random); },
      [&](const std::string& damaged) {
        const ImportedTrace result = importTrace({file.with(damaged)}).value();
        for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
      });
  EXPECT_GT(survived.accepted, 500U);
}

TEST(HostileImport, SurvivesDamagedCompressedFiles) {
  std::string text = "[" + kForward;
  for (int m = 1; m < 300; ++m) {
    text += R"(,{"ph":"X","name":"PP:0F)" + std::to_string(m) + R"(","pid":1,"tid":1,"ts":)" + std::to_string(10 * m + 10) + R"(,"dur":5})";
  }
  const std::string zipped = test::gzipped(text + "]");
  std::mt19937_64 random(17);
  const MemoryFile file;
  int read = 0, refused = 0, cut = 0;
  for (int i = 0; i < 4'000; ++i) {
    std::string damaged = zipped;
    if (i % 4 == 0) {
      damaged.resize(static_cast<std::size_t>(test::draw(random, 2, static_cast<std::int64_t>(zipped.size()) - 1)));
    } else {
      damaged[static_cast<std::size_t>(test::draw(random, 2, static_cast<std::int64_t>(zipped.size()) - 1))] ^=
          static_cast<char>(1 << test::draw(random, 0, 7));
    }
    try {
      const ImportedTrace result = importTrace({file.with(damaged)}).value();
      for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
      ++read;
      cut += result.notes.empty() ? 0 : 1;
    } catch (const UsageError& error) {
      ASSERT_GT(std::string(error.what()).size(), 20U);
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(cut, 50) << "what was there of a file that is cut off is used";
  EXPECT_GT(refused, 500);
}

TEST(HostileImport, SurvivesDamagedFilesOfSeveralRanks) {
  const auto of = [](int rank, double at) {
    std::string text =
        R"({"baseTimeNanoseconds":1700000000000000000,"distributedInfo":{"rank":)" + std::to_string(rank) + R"(},"traceEvents":[)";
    for (int m = 0; m < 2; ++m)
      text += (m > 0 ? "," : "") + std::string(R"({"ph":"X","name":"PP:)") + std::to_string(rank) + "F" + std::to_string(m) +
              R"(","pid":1,"tid":1,"ts":)" + std::to_string(at + 10 * m) + R"(,"dur":5})";
    return text + "]}";
  };
  std::mt19937_64 random(21);
  const MemoryFile zero, one, two;
  int read = 0, refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    try {
      // Rank 2's clock disagrees anyway.
      const ImportedTrace result =
          importTrace({zero.with(of(0, 1)), one.with(test::mutate(of(1, 6), random)), two.with(test::mutate(of(2, 1e15), random))}).value();
      for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) FAIL() << i;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 2'000);
  EXPECT_GT(refused, 200);
}

TEST(HostileImport, SurvivesDamagedDumpsOfPrimus) {
  const std::string source = PW_SOURCE_DIR "/tests/data/primus/pp8/";
  const test::Folder folder;
  const nlohmann::json rank = {{"7", nlohmann::json::parse(test::contentOf(source + "pp_rank_0.json")).at("7")}};
  const std::string config = R"({"pp_size": 2, "vp_size": 1, "num_mbs": 16})";
  (void)folder.with("pp_rank_1.json", rank.dump());
  std::mt19937_64 random(9);
  int read = 0, refused = 0;
  for (int i = 0; i < 1'000; ++i) {
    (void)folder.with("config.json", i % 4 == 0 ? test::mutate(config, random) : config);
    (void)folder.with("pp_rank_0.json", i % 4 != 0 ? test::mutate(rank.dump(), random) : rank.dump());
    try {
      const ImportedTrace result = importTrace({folder.file("config.json")}).value();
      for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) FAIL() << i;
      ++read;
    } catch (const UsageError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace pw
