// What a run reports while it is in progress (engine/live_spans.h): stages of numbers, ranks as threads, and bytes of every kind.
#include "engine/live_spans.h"
#include "backends/messages/in_memory_communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/mutate.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

/// An empty file, removed at the end.
class LiveFile {
 public:
  LiveFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pipewright-live-XXXXXX").string();
    const int fd = ::mkstemp(pattern.data());
    if (fd >= 0) ::close(fd);
    path = pattern;
  }
  ~LiveFile() { std::filesystem::remove(path); }
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;

  [[nodiscard]] std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  std::string path;
};

std::vector<std::string> linesOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Two steps of a job whose ranks tell every action at once; the log of the last.
struct ToldJob {
  LiveFile file;
  std::size_t ranksOfPipeline = 0;
  test::NumberJob job;

  explicit ToldJob(const Plan& plan) : ranksOfPipeline(plan.schedule.rows.size()), job(test::prepareJob(plan)) {
    auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
    test::runJob(job, plan, communicators, {}, [&](Executor& executor, std::size_t rank) {
      LiveWriter live(file.path, JobRank(rank), 0);
      executor.tellTo(&live);
      static_cast<void>(executor.step(0, {}));
      return executor.step(1, {});
    });
  }
  [[nodiscard]] LiveReader reader() const { return {static_cast<int>(job.logs.size()), static_cast<int>(ranksOfPipeline)}; }
  [[nodiscard]] Trace joined() const { return joinTraces(job.logs, ranksOfPipeline); }
};

Plan replicatedPlan() { return test::chainPlan(lower(generate("interleaved-1f1b", {2, 4, 4})), {}, 2); }

TEST(LiveSpans, GiveTheTraceOfTheRunHoweverTheFileIsCutIntoPieces) {
  const ToldJob told(replicatedPlan());
  ASSERT_EQ(told.job.firstError(), "");
  const std::string bytes = told.file.content();
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    LiveReader reader = told.reader();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::uniform_int_distribution<std::size_t>(1, seed < 2 ? 3 : 4000)(random);
      reader.feed(std::string_view(bytes).substr(at, count));
      at += count;
    }
    EXPECT_EQ(reader.newest(), (LiveStep{1, told.joined(), true}));
  }
}

TEST(LiveSpans, ReachTheFileBeforeTheStepEndsAndGrowOnly) {
  const ToldJob told(replicatedPlan());
  LiveReader reader = told.reader();
  std::size_t spans = 0, partial = 0;
  for (const std::string& line : linesOf(told.file.content())) {
    ASSERT_TRUE(reader.feed(line + "\n")) << line;
    const LiveStep step = reader.newest().value();
    if (step.step == 0) continue;
    EXPECT_GE(step.trace.spans.size() + 1, spans);
    spans = step.trace.spans.size();
    partial += step.complete ? 0 : 1;
  }
  // Every rank has 16 compute actions, each of which writes what is new.
  EXPECT_GT(partial, 4U * 16U - 4U);
}

TEST(LiveSpans, AreWrittenOnceAnIntervalAndAtTheEndOfAStep) {
  const LiveFile file;
  StepLog log;
  constexpr Ns kHour = 3'600'000 * kMs;  // which no machine is slow enough to let pass
  LiveWriter writer(file.path, JobRank(0), kHour);
  writer.begin(0);
  const Ns start = monotonicNow();  // not before the writer's
  const auto add = [&](Ns end) {
    log.spans.push_back({Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, start, start + end});
    writer.add(log);
  };
  add(1 * kMs);
  EXPECT_EQ(file.content(), "");
  add(kHour);
  const auto first = linesOf(file.content());
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(std::count(first[0].begin(), first[0].end(), 'F'), 2);
  writer.write(log, true);
  const auto all = linesOf(file.content());
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1], R"({"rank":0,"step":0,"from":0,"spans":[],"memory":[],"done":true})");
}

TEST(LiveSpans, HaveTheFormThatTheHeaderShows) {
  const LiveFile file;
  LiveWriter writer(file.path, JobRank(2));
  writer.begin(7);
  writer.write({{{Rank(0), SpanKind::Forward, Stage(0), Microbatch(3), Rank(1), 0, Ns(812345678901), Ns(812345688901)}},
                {{Rank(0), Ns(812345688901), 1048576}},
                {},
                {},
                {},
                false,
                {},
                {}},
               false);
  EXPECT_EQ(file.content(),
            R"({"rank":2,"step":7,"from":812345678901,"spans":[["F",0,0,3,1,0,0,10000]],"memory":[[10000,1048576]],"done":false})"
            "\n");
}

TEST(LiveSpans, KeepTheLastWholeStepInSightWhileTheNextIsYoung) {
  LiveReader reader(2, 2);
  const auto line = [](int rank, int step, Ns start, Ns end, bool done) {
    return "{\"rank\":" + std::to_string(rank) + ",\"step\":" + std::to_string(step) + ",\"from\":0,\"spans\":[[\"F\"," +
           std::to_string(rank) + ",0,0," + std::to_string(rank) + ",0," + std::to_string(start.value) + "," + std::to_string(end.value) +
           "]],\"memory\":[],\"done\":" + (done ? "true" : "false") + "}\n";
  };
  EXPECT_FALSE(reader.worthShowing().has_value());
  reader.feed(line(0, 0, 100, 200, true));
  EXPECT_EQ(reader.worthShowing()->step, 0) << "nothing else is there";
  EXPECT_FALSE(reader.worthShowing()->complete);
  reader.feed(line(1, 0, 100, 300, true));
  EXPECT_TRUE(reader.worthShowing()->complete);
  reader.feed(line(0, 1, 400, 450, false));
  EXPECT_EQ(reader.newest()->step, 1);
  EXPECT_EQ(reader.worthShowing(51)->step, 0);
  EXPECT_EQ(reader.worthShowing(50)->step, 1);
  EXPECT_FALSE(reader.feed(line(1, 0, 100, 300, true))) << "of a step that is over";
}

TEST(LiveSpans, PassOverWhatIsNoLineOfARun) {
  const std::string good = R"({"rank":0,"step":1,"from":100,"spans":[["F",0,0,0,0,0,5,9]],"memory":[[5,1]],"done":false})";
  const auto with = [&](const std::string& what, const std::string& by) {
    std::string text = good;
    return text.replace(text.find(what), what.size(), by);
  };
  const std::vector<std::string> refused{"",
                                         "{}",
                                         "null",
                                         good + "x",
                                         " " + good,
                                         good.substr(0, good.size() - 1),
                                         with("\"rank\":0", "\"rank\":2"),
                                         with("\"rank\":0", "\"rank\":-1"),
                                         with("\"rank\":0", "\"rank\":99999999999"),
                                         with("\"step\":1", "\"step\":-1"),
                                         with("100", "-100"),
                                         with("100", "9223372036854775807"),
                                         with("\"F\"", "\"X\""),
                                         with("\"F\"", "\"F"),
                                         with("[\"F\",0", "[\"F\",1"),
                                         with("0,0,0,0,0,5", "0,-2,0,0,0,5"),
                                         with("5,9]", "9,5]"),
                                         with("5,9]", "5,99999999999999999]"),
                                         with("5,9]", "5,9223372036854775807]"),
                                         with("[5,1]", "[5]"),
                                         with("[5,1]", "[5,1],"),
                                         with("false", "maybe"),
                                         with("[5,1]", "[5,9223372036854775807]")};
  for (const std::string& line : refused) {
    LiveReader reader(2, 1);
    EXPECT_FALSE(reader.feed(line + "\n")) << line;
    EXPECT_FALSE(reader.newest().has_value()) << line;
    EXPECT_TRUE(reader.feed(good + "\n")) << "after " << line;
  }
}

TEST(LiveSpans, TakeTimesOfOneHostOnly) {
  LiveReader reader(1, 1);
  const auto at = [](const std::string& start, const std::string& end) {
    return R"({"rank":0,"step":1,"from":)" + start + R"(,"spans":[["F",0,0,0,0,0,0,)" + end +
           R"(]],"memory":[],"done":false})"
           "\n";
  };
  EXPECT_TRUE(reader.feed(at("1000", "1000")));
  EXPECT_FALSE(reader.feed(at("1152921504606846975", "1")));
  EXPECT_TRUE(reader.feed(at("2000", "1000")));
}

TEST(LiveSpans, NeverHarmTheReaderWhateverTheFileHolds) {
  const ToldJob told(replicatedPlan());
  const std::string bytes = told.file.content();
  std::mt19937 random(7);
  int stepsFound = 0;
  for (int i = 0; i < 300; ++i) {
    std::string broken = bytes;
    for (int k = 0; k < 1 + i; ++k) broken[random() % broken.size()] = static_cast<char>(random());
    LiveReader reader = told.reader();
    reader.feed(broken);
    const auto step = reader.newest();
    if (!step) continue;
    ++stepsFound;
    EXPECT_EQ(step->trace.ranks, 4);
    for (const Span& span : step->trace.spans) {
      EXPECT_TRUE(span.rank.value >= 0 && span.rank.value < 4 && span.peer.value >= 0 && span.peer.value < 4);
      EXPECT_TRUE(span.start >= 0 && span.start <= span.end);
    }
  }
  EXPECT_GT(stepsFound, 0) << "a few broken bytes leave steps to be found";
}

TEST(LiveSpans, PassOverALineLongerThanAnyRunWrites) {
  LiveReader reader(1, 1);
  const std::string piece(1 << 20, '[');
  for (int i = 0; i < 70; ++i) EXPECT_FALSE(reader.feed(piece));
  EXPECT_TRUE(
      reader.feed("\n"
                  R"({"rank":0,"step":0,"from":0,"spans":[],"memory":[],"done":true})"
                  "\n"));
  EXPECT_EQ(reader.newest(), (LiveStep{0, {1, {}, {}}, true}));
}

TEST(LiveSpans, RefuseAFileThatCannotBeWritten) {
  try {
    const LiveWriter writer("/nowhere/at/all/live", JobRank(0));
    FAIL() << "was opened";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/at/all/live"), std::string::npos) << e.what();
  }
}

TEST(LiveSpans, ADiskThatIsFullEndsTheTellingNotTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const auto openOnes = [] {  // descriptors of the file
    std::ptrdiff_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the one that lists
      count += std::filesystem::read_symlink(entry.path(), gone) == "/dev/full" ? 1 : 0;
    }
    return count;
  };
  LiveWriter writer("/dev/full", JobRank(0));
  writer.begin(0);
  const StepLog log{{{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 1, 2}}, {}, {}, {}, {}, false, {}, {}};
  EXPECT_EQ(openOnes(), 1);
  EXPECT_NO_THROW(writer.write(log, false));
  EXPECT_EQ(openOnes(), 0) << "nothing more is written";
  EXPECT_NO_THROW(writer.write(log, true));
}

TEST(LiveSpans, TellWhatWasDoneBeforeAStepFailed) {
  const LiveFile file;
  const Plan plan = test::chainPlan(lower(generate("1f1b", {2, 2, 4})), {});
  test::NumberJob job = test::prepareJob(plan);
  auto communicators = inMemoryCommunicators(2, std::chrono::seconds(20));
  test::runJob(job, plan, communicators, {}, [&](Executor& executor, std::size_t rank) {
    LiveWriter live(file.path, JobRank(rank), 1000 * kMs);
    executor.tellTo(&live);
    return executor.step(3, [&] {
      if (rank == 0) throw Error("the gradient is not a number");
    });
  });
  ASSERT_NE(job.firstError(), "");
  LiveReader reader(2, 2);
  reader.feed(file.content());
  const LiveStep step = reader.newest().value();
  EXPECT_EQ(step.step, 3);
  EXPECT_FALSE(step.complete);
  // Rank 0 ends 1F1B's row last: before it fails both have done 4 F and 4 B.
  EXPECT_EQ(std::ranges::count_if(step.trace.spans, [](const Span& s) { return isCompute(s.kind); }), 2 * 2 * 4);
}

}  // namespace
}  // namespace pw
