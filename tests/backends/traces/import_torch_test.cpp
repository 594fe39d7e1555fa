// Import of real traces of torch.distributed.pipelining (tests/data/torch_traces), and of what other versions and trainers label.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "backends/traces/import.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "simulator/trace/executed.h"
#include "tests/support/folder.h"
#include "tests/support/gzip.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kTraces = PW_SOURCE_DIR "/tests/data/torch_traces/";

ImportedTrace imported(const std::string& path) {
  ImportedTrace result = importTrace({path}).value();
  for (const ImportedStep& step : result.steps) test::expectKeepsRules(step.trace);
  return result;
}

/// `0F3`, `1I2`, … of each rank.
std::vector<std::vector<std::string>> wordsOf(const Schedule& schedule) {
  std::vector<std::vector<std::string>> words;
  for (const auto& row : schedule.rows) {
    words.emplace_back();
    for (const Action& action : row) {
      if (isCompute(action.kind))
        words.back().push_back(std::to_string(action.stage.value) + std::string(letters(action.kind)) +
                               std::to_string(action.microbatch.value));
    }
  }
  return words;
}

/// One event of microseconds.
std::string event(const std::string& name, int rank, double start, double duration, const std::string& category = "user_annotation") {
  return nlohmann::json{{"ph", "X"}, {"cat", category}, {"name", name}, {"pid", rank}, {"tid", 1}, {"ts", start}, {"dur", duration}}.dump();
}

ImportedTrace importedEvents(const std::vector<std::string>& events) {
  const test::Folder folder;
  std::string text;
  for (const std::string& e : events) text += (text.empty() ? "[" : ",") + e;
  return imported(folder.with("trace.json", text + "]"));
}

using Cell = std::tuple<int, std::string, int, int, std::int64_t, std::int64_t>;  ///< rank, kind, stage, microbatch, start, end
std::vector<Cell> cellsOf(const Trace& trace) {
  std::vector<Cell> cells;
  for (const Span& s : trace.spans)
    cells.emplace_back(s.rank.value, std::string(nameOf(s.kind)), s.stage.value, s.microbatch.value, s.start.value, s.end.value);
  return cells;
}

TEST(TorchTraces, ShowTheOrderThatTorchWasGiven) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zbv", "dualpipev"}) {
    SCOPED_TRACE(name);
    const std::string folder = kTraces + name;
    const ImportedTrace result = imported(folder);
    ASSERT_EQ(result.steps.size(), 2U);
    EXPECT_THAT(result.notes, Not(testing::Contains(HasSubstr("clock"))));
    const Schedule meant = parseCsv(test::contentOf(folder + "/schedule.csv"), name, "schedule.csv");
    for (const ImportedStep& step : result.steps) {
      const auto executed = executedSchedule(step.trace);
      ASSERT_TRUE(executed.has_value());
      EXPECT_EQ(wordsOf(*executed), wordsOf(meant));
      EXPECT_EQ(executed->placement, meant.placement);
    }
  }
}

/// Whether one needs what the other makes.
bool feeds(const Span& made, const Span& needs) {
  const bool forward = made.kind == SpanKind::Forward && needs.kind == SpanKind::Forward && needs.stage.value == made.stage.value + 1;
  const auto isBackward = [](SpanKind kind) { return kind == SpanKind::Backward || kind == SpanKind::BackwardInput; };
  const bool backward = isBackward(made.kind) && isBackward(needs.kind) && needs.stage.value == made.stage.value - 1;
  return (forward || backward) && made.microbatch == needs.microbatch && made.rank != needs.rank;
}

TEST(TorchTraces, BeginActionsWhenTheirInputIsThere) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zero_bubble", "zbv"}) {
    SCOPED_TRACE(name);
    std::size_t pairs = 0;
    for (const ImportedStep& step : imported(kTraces + name).steps) {
      for (const Span& made : step.trace.spans) {
        for (const Span& needs : step.trace.spans) {
          if (!feeds(made, needs)) continue;
          ++pairs;
          EXPECT_LE(made.end, needs.start) << needs.rank.value << " " << needs.stage.value << " " << needs.microbatch.value;
        }
      }
    }
    EXPECT_GE(pairs, 2U * 2U * 4U) << "two steps, two directions, four microbatches";
  }
}

TEST(TorchTraces, AreMergedOnOneClockByTheirMessages) {
  for (const char* name : {"gpipe", "interleaved", "zero_bubble", "zbv"}) {
    SCOPED_TRACE(name);
    const ImportedTrace sound = imported(kTraces + name);
    // How far the clock of rank 1 could be wrong without an action before its input: from below by what it receives, from above by what it
    // sends.
    Ns least = std::numeric_limits<Ns>::min(), most = std::numeric_limits<Ns>::max();
    for (const ImportedStep& step : sound.steps) {
      for (const Span& made : step.trace.spans) {
        for (const Span& needs : step.trace.spans) {
          if (!feeds(made, needs)) continue;
          if (needs.rank == Rank(1)) least = std::max(least, made.end - needs.start);
          if (needs.rank == Rank(0)) most = std::min(most, needs.start - made.end);
        }
      }
    }
    ASSERT_LE(least, 0);
    ASSERT_GE(most, 0);
    constexpr std::int64_t kLost = 0;  // no `baseTimeNanoseconds`, as in a torn file
    for (const std::int64_t wrong : {std::int64_t{3'600'000'000'007}, std::int64_t{-42'000'000'013}, kLost}) {
      const test::Folder folder;
      (void)folder.with("rank0.json.gz", test::contentOf(kTraces + name + "/rank0.json.gz"));
      nlohmann::json other = nlohmann::json::parse(test::unzipped(test::contentOf(kTraces + name + "/rank1.json.gz")));
      if (wrong == kLost) {
        other.erase("baseTimeNanoseconds");
      } else {
        other["baseTimeNanoseconds"] = other["baseTimeNanoseconds"].get<std::int64_t>() + wrong;
      }
      (void)folder.with("rank1.json", other.dump());
      const ImportedTrace result = imported(folder.file(""));
      const char* said = wrong == kLost ? "rank1.json counts its times from another point" : "The clock of rank1.json disagrees";
      EXPECT_THAT(result.notes, testing::Contains(HasSubstr(said)));
      ASSERT_EQ(result.steps.size(), sound.steps.size());
      for (std::size_t s = 0; s < sound.steps.size(); ++s) {
        const auto firstOf = [](const Trace& trace, int rank) { return std::ranges::find(trace.spans, Rank(rank), &Span::rank)->start; };
        const auto apart = [&](const Trace& trace) { return firstOf(trace, 1) - firstOf(trace, 0); };
        EXPECT_LE(abs(apart(result.steps[s].trace) - apart(sound.steps[s].trace)), (most - least + 1) / 2 + 1);
      }
    }
  }
}

TEST(TorchTraces, ShowReplicasBesideEachOther) {
  const ImportedTrace result = imported(kTraces + "replicas");
  EXPECT_THAT(
      result.notes,
      testing::Contains("2 pipelines run beside each other; ranks are numbered one pipeline after another, the first has the job's 0, 2."));
  EXPECT_THAT(result.ranks, ElementsAre(ImportedRank{JobRank(0), 0, 0}, ImportedRank{JobRank(2), 0, 0}, ImportedRank{JobRank(1), 1, 0},
                                        ImportedRank{JobRank(3), 1, 0}));
  ASSERT_EQ(result.steps.size(), 2U);
  std::size_t messages = 0;
  for (const Span& span : result.steps[1].trace.spans) {
    if (span.kind != SpanKind::SendForward && span.kind != SpanKind::SendBackward) continue;
    ++messages;
    EXPECT_EQ(span.peer.value / 2, span.rank.value / 2) << "within a replica";
  }
  EXPECT_EQ(messages, 2U * 2U * 3U * 4U) << "replicas, directions, boundaries, microbatches";
}

TEST(TorchTraces, NameTheRanksOfTheJobThatAreNotThere) {
  const auto notesOf = [](const std::vector<std::string>& files) { return importTrace(files).value().notes; };
  const std::string folder = kTraces + "1f1b/";
  EXPECT_THAT(
      notesOf({folder + "rank0.json.gz", folder + "rank1.json.gz", folder + "rank3.json.gz"}),
      testing::Contains("The job has 4 ranks, and the trace of rank 2 is not here: what it did is not in this import; add its file."));
  EXPECT_THAT(notesOf({folder + "rank0.json.gz"}),
              testing::Contains(testing::HasSubstr("the traces of ranks 1, 2, 3 are not here: what they did")));
  EXPECT_THAT(imported(folder).notes, testing::Not(testing::Contains(testing::HasSubstr("not here"))));
}

TEST(TorchTraces, OfOneRankAtOneTimeAreRefusedByName) {
  const test::Folder copies;
  const std::string folder = kTraces + "1f1b/";
  const std::string again = copies.with("again.json.gz", test::contentOf(folder + "rank1.json.gz"));
  try {
    (void)importTrace({folder + "rank0.json.gz", folder + "rank1.json.gz", again});
    FAIL() << "rank 1 came twice";
  } catch (const UsageError& refused) {
    EXPECT_EQ(std::string(refused.what()),
              folder + "rank1.json.gz and " + again + " are both of rank 1, at the same time; give one file for each rank of one job");
  }
}

TEST(TorchTraces, NumberTheTransfersOfNewerVersionsByTheirOrder) {
  // One forward each of two microbatches, on stages that the actions do not name.
  const ImportedTrace result = importedEvents(
      {event("Forward 0", 1, 0, 10), event("PP::fwd_send (stage 0)", 1, 10, 1), event("Forward 1", 1, 11, 10),
       event("PP::fwd_send (stage 0)", 1, 21, 1), event("PP::fwd_recv (stage 1)", 2, 5, 6), event("Forward 0", 2, 11, 10),
       event("PP::fwd_recv (stage 1)", 2, 21, 1), event("Forward 1", 2, 22, 10), event("PP::bwd_send_fwd_recv (stage 0)", 1, 40, 1)});
  ASSERT_EQ(result.steps.size(), 1U);
  EXPECT_THAT(cellsOf(result.steps[0].trace),
              ElementsAre(Cell{0, "F", 0, 0, 0, 10'000}, Cell{1, "WAIT_F", 1, 0, 5'000, 11'000}, Cell{0, "SEND_F", 0, 0, 10'000, 11'000},
                          Cell{0, "F", 0, 1, 11'000, 21'000}, Cell{1, "F", 1, 0, 11'000, 21'000}, Cell{0, "SEND_F", 0, 1, 21'000, 22'000},
                          Cell{1, "WAIT_F", 1, 1, 21'000, 22'000}, Cell{1, "F", 1, 1, 22'000, 32'000}))
      << "the first stage has nobody to send gradients to";
}

/// The messages of 1F1B on ranks with F of 10 and B of 20, as newer versions label those of Schedule1F1B, which labels no action. A receive
/// is waited for at once, a message is in flight for 2, and posting it takes 1. Adds the actions to `actions`.
std::vector<std::string> messagesOf1f1b(int ranks, int microbatches, double begin, std::vector<Cell>& actions) {
  const Schedule schedule = generate("1f1b", {ranks, ranks, microbatches});
  std::map<std::tuple<ActionKind, int, int>, double> ends;
  std::vector<double> now(static_cast<std::size_t>(ranks), begin);
  std::vector<std::size_t> at(static_cast<std::size_t>(ranks));
  std::vector<std::string> events;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < ranks; ++r) {
      const auto& row = schedule.rows[static_cast<std::size_t>(r)];
      double& t = now[static_cast<std::size_t>(r)];
      for (std::size_t& i = at[static_cast<std::size_t>(r)]; i < row.size(); ++i, moved = true) {
        const Action& a = row[i];
        if (!isCompute(a.kind)) continue;
        const bool forward = a.kind == ActionKind::Forward;
        const int from = forward ? r - 1 : r + 1, to = forward ? r + 1 : r - 1;
        const std::string way = forward ? "PP::fwd_" : "PP::bwd_", of = " (stage " + std::to_string(r) + ")";
        if (from >= 0 && from < ranks) {
          const auto sent = ends.find({a.kind, from, a.microbatch.value});
          if (sent == ends.end()) break;
          const double start = std::max(t + 1, sent->second + 2);
          events.push_back(event(way + "recv" + of, r, t, start - t));
          t = start;
        }
        const double end = t + (forward ? 10 : 20);
        actions.push_back(
            {r, forward ? "F" : "B", r, a.microbatch.value, static_cast<std::int64_t>(t * 1000), static_cast<std::int64_t>(end * 1000)});
        t = ends[{a.kind, r, a.microbatch.value}] = end;
        if (to >= 0 && to < ranks) events.push_back(event(way + "send" + of, r, t, 1)), t += 1;
      }
    }
  }
  return events;
}

TEST(TorchTraces, FillTheTimeBetweenMessagesWhereNoActionIsLabelled) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<Cell> actions;
    std::vector<std::string> events = messagesOf1f1b(ranks, 6, 0, actions);
    const double next = 1000;
    std::vector<Cell> ignored;
    std::ranges::copy(messagesOf1f1b(ranks, 6, next, ignored), std::back_inserter(events));
    const ImportedTrace result = importedEvents(events);
    EXPECT_THAT(result.notes, testing::Contains(HasSubstr("No forward or backward is labelled: they are taken to fill")));
    ASSERT_EQ(result.steps.size(), 2U) << ranks;
    for (const ImportedStep& step : result.steps) {
      std::vector<Cell> found;
      for (const Cell& cell : cellsOf(step.trace)) {
        if (std::get<1>(cell) == "F" || std::get<1>(cell) == "B") found.push_back(cell);
      }
      EXPECT_THAT(found, testing::UnorderedElementsAreArray(actions)) << ranks;
      EXPECT_EQ(executedSchedule(step.trace)->name, "1f1b");
    }
  }
}

// Clocks are compared by the actions that fill the time between messages.
TEST(TorchTraces, OfMessagesAloneAreMergedOnOneClock) {
  const std::vector<double> later{0, 77'700, -33'300};
  std::vector<Cell> actions;
  const std::vector<std::string> events = messagesOf1f1b(3, 6, 100'000, actions);
  const test::Folder folder;
  for (int rank = 0; rank < 3; ++rank) {
    nlohmann::json own = nlohmann::json::array();
    for (const std::string& text : events) {
      nlohmann::json e = nlohmann::json::parse(text);
      if (e["pid"] != rank) continue;
      e["ts"] = e["ts"].get<double>() + later[static_cast<std::size_t>(rank)];
      own.push_back(e);
    }
    (void)folder.with("rank" + std::to_string(rank) + ".json", nlohmann::json{{"traceEvents", own}}.dump());
  }
  const ImportedTrace result = imported(folder.file(""));
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("The clock of rank1.json disagrees with its neighbour's")));
  EXPECT_THAT(result.notes, testing::Contains(HasSubstr("The clock of rank2.json disagrees with its neighbour's")));
  const Job job = jobOf(measuredOf(result));
  EXPECT_EQ(job.schedule.name, "1f1b");
  ASSERT_EQ(job.steps.size(), 1U);
  EXPECT_LT(job.steps[0].makespan, 300'000) << "a clock that is off would make it some 100 ms";
}

// The first forward of the first stage, and its last backward, have one end that no message tells. Marks without room beside them: the
// forward is shorter than usual, and what it lacks is not the step's before.
TEST(TorchTraces, FillTheTimeBetweenMessagesWithinTheMarksOfSteps) {
  for (const int ranks : {2, 3}) {
    std::vector<std::string> events;
    const double step = 400, early = 6;  // the forward of 10 begins 6 before the first mark that counts
    for (int k = 0; k < 3; ++k) {
      std::vector<Cell> actions;
      std::ranges::copy(messagesOf1f1b(ranks, 6, k * step, actions), std::back_inserter(events));
      std::int64_t last = 0;
      for (const Cell& cell : actions) last = std::max(last, std::get<5>(cell));
      const double end = static_cast<double>(last) / 1000 - 3;  // so is the last backward
      for (int r = 0; r < ranks; ++r) {
        const std::string number = std::to_string(2 * k);
        events.push_back(event("ProfilerStep#" + number, r, k * step + (r == 0 ? early : -1), end - k * step - early));
        events.push_back(event("ProfilerStep#" + std::to_string(2 * k + 1), r, end, 1));
      }
    }
    const ImportedTrace result = importedEvents(events);
    const Job job = jobOf(measuredOf(result));
    EXPECT_EQ(job.schedule.name, "1f1b");
    EXPECT_EQ(job.steps.size(), 3U) << ranks;
  }
}

TEST(TorchTraces, OfMessagesThatBeginInsideAStepAreReadOrRefused) {
  for (const int ranks : {2, 3, 4}) {
    std::vector<Cell> ignored;
    const std::vector<std::string> whole = messagesOf1f1b(ranks, 4, 0, ignored);
    std::vector<std::string> more = messagesOf1f1b(ranks, 4, 1000, ignored);
    for (std::size_t cut = 1; cut < whole.size(); ++cut) {
      SCOPED_TRACE(fmt::format("{} ranks without {} events", ranks, cut));
      std::vector<std::string> events(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end());
      std::ranges::copy(more, std::back_inserter(events));
      try {
        const ImportedTrace result = importedEvents(events);
        MeasuredJob measured{.name = "cut"};
        for (const ImportedStep& step : result.steps) measured.steps.push_back({step.name, step.trace, step.operations});
        const Job job = jobOf(measured);
        EXPECT_EQ(parseJob(toJson(job), "job.json"), job) << "what is written can be read";
      } catch (const UsageError& refused) {
        EXPECT_THAT(refused.what(), HasSubstr("record"));
      }
    }
  }
}

TEST(TorchTraces, TakeAMessageThatIsLabelledTwiceOnce) {
  const ImportedTrace result =
      importedEvents({event("PP:0F0", 1, 0, 10), event("PP:0SEND_F0", 1, 10, 5), event("PP::fwd_send (stage 0)", 1, 11, 1),
                      event("PP:1RECV_F0", 2, 8, 7), event("PP::fwd_recv (stage 1)", 2, 9, 1), event("PP:1F0", 2, 15, 10)});
  EXPECT_THAT(cellsOf(result.steps.at(0).trace), ElementsAre(Cell{0, "F", 0, 0, 0, 10'000}, Cell{1, "WAIT_F", 1, 0, 8'000, 15'000},
                                                             Cell{0, "SEND_F", 0, 0, 10'000, 15'000}, Cell{1, "F", 1, 0, 15'000, 25'000}));
}

TEST(TorchTraces, CutWaitsAndSendsOffActions) {
  // Rank 1 waits from 2 to 12 within its forward, and posts its gradient 3 before the end of its backward.
  const ImportedTrace result =
      importedEvents({event("PP:0F0", 1, 0, 10), event("PP:1RECV_F0", 2, 1, 1), event("gloo:recv", 2, 1.5, 10.5), event("PP:1F0", 2, 2, 20),
                      event("PP:1B0", 2, 22, 20), event("c10d::send", 2, 39, 2, "cpu_op"), event("PP:0B0", 1, 45, 5)});
  EXPECT_THAT(cellsOf(result.steps.at(0).trace),
              ElementsAre(Cell{0, "F", 0, 0, 0, 10'000}, Cell{1, "WAIT_F", 1, 0, 2'000, 12'000}, Cell{1, "F", 1, 0, 12'000, 22'000},
                          Cell{1, "B", 1, 0, 22'000, 39'000}, Cell{1, "SEND_B", 1, 0, 39'000, 42'000}, Cell{0, "B", 0, 0, 45'000, 50'000}));
}

TEST(TorchTraces, ShowMessagesUntilTheyArriveWhereTheirReceiverWaited) {
  // Rank 1 waits for microbatch 0 until 14; microbatch 1 is there when it begins to wait at 30.
  const ImportedTrace result =
      importedEvents({event("PP:0F0", 1, 0, 10), event("PP:0SEND_F0", 1, 10, 1), event("PP:0F1", 1, 11, 10), event("PP:0SEND_F1", 1, 21, 1),
                      event("gloo:recv", 2, 1, 13), event("PP:1F0", 2, 2, 28), event("gloo:recv", 2, 15, 16), event("PP:1F1", 2, 30, 10)});
  EXPECT_THAT(cellsOf(result.steps.at(0).trace),
              ElementsAre(Cell{0, "F", 0, 0, 0, 10'000}, Cell{1, "WAIT_F", 1, 0, 2'000, 14'000}, Cell{0, "SEND_F", 0, 0, 10'000, 14'000},
                          Cell{0, "F", 0, 1, 11'000, 21'000}, Cell{1, "F", 1, 0, 14'000, 30'000}, Cell{0, "SEND_F", 0, 1, 21'000, 22'000},
                          Cell{1, "WAIT_F", 1, 1, 30'000, 31'000}, Cell{1, "F", 1, 1, 31'000, 40'000}));
}

/// 1F1B on two ranks as Megatron names its functions: F of 1, B of 2, messages that take no time.
std::vector<std::string> megatronEvents(int microbatches, int steps, bool optimizer) {
  std::vector<std::string> events;
  for (int step = 0; step < steps; ++step) {
    const double at = 1000.0 * step;
    for (int m = 0; m < microbatches; ++m) {
      // Rank 1: F m at 1 + 3 m, B m at 2 + 3 m. Rank 0: F 0 and F 1 first, then B m at 4 + 3 m and F m + 2 after it.
      events.push_back(event("schedules.forward_step", 1, at + 1 + 3 * m, 1));
      events.push_back(event("schedules.backward_step", 1, at + 2 + 3 * m, 2));
      events.push_back(event("schedules.forward_step", 0, m < 2 ? at + m : at + 3 * m, 1));
      events.push_back(event("schedules.backward_step", 0, at + 4 + 3 * m, 2));
      events.push_back(event("p2p_communication.P2PCommunicator.recv_forward", 0, at + (m < 2 ? m : 3 * m), 0));
      events.push_back(event("p2p_communication.P2PCommunicator.send_forward", 0, at + (m < 2 ? m : 3 * m) + 1, 0));
    }
    if (!optimizer) continue;
    for (int rank = 0; rank < 2; ++rank) events.push_back(event("optimizer", rank, at + 900, 10));
  }
  return events;
}

TEST(TorchTraces, NumberTheFunctionsOfMegatronByTheirOrder) {
  for (const bool optimizer : {true, false}) {
    for (const int microbatches : {2, 3, 5}) {
      SCOPED_TRACE(std::to_string(microbatches) + (optimizer ? " with optimizer" : ""));
      const ImportedTrace result = importedEvents(megatronEvents(microbatches, 3, optimizer));
      ASSERT_EQ(result.steps.size(), 3U);
      for (const ImportedStep& step : result.steps) {
        const auto executed = executedSchedule(step.trace);
        ASSERT_TRUE(executed.has_value());
        EXPECT_EQ(executed->name, "1f1b");
        EXPECT_EQ(executed->microbatches, microbatches);
        std::vector<int> sent;
        for (const Span& span : step.trace.spans) {
          if (span.kind == SpanKind::SendForward) sent.push_back(span.microbatch.value);
          EXPECT_NE(span.kind, SpanKind::WaitForward) << "the first stage receives nothing";
        }
        ASSERT_EQ(sent.size(), static_cast<std::size_t>(microbatches));
        for (int m = 0; m < microbatches; ++m) EXPECT_EQ(sent[static_cast<std::size_t>(m)], m);
      }
    }
  }
}

/// Interleaved 1F1B as a schedule, with Megatron's names instead of chunks and microbatches: F takes 1, B 2, and all of a rank follows on
/// itself (its order is what counts).
std::vector<std::string> interleavedEvents(const Schedule& schedule) {
  std::vector<std::string> events;
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    double at = 0;
    const std::string steady = "schedules.forward_backward_pipelining_with_interleaving.steady";
    events.push_back(event(steady, static_cast<int>(r), 0, 1000));
    for (const Action& action : schedule.rows[r]) {
      if (!isCompute(action.kind)) continue;  // a pause
      const double duration = action.kind == ActionKind::Forward ? 1 : 2;
      events.push_back(event(action.kind == ActionKind::Forward ? "forward_step" : "backward_step", static_cast<int>(r), at, duration));
      at += duration;
    }
  }
  return events;
}

TEST(TorchTraces, RecoverTheChunksOfMegatronsInterleavingFromItsOrder) {
  for (const Shape shape : {Shape{2, 4, 4}, {4, 8, 8}, {4, 16, 8}, {2, 6, 6}}) {
    SCOPED_TRACE(std::to_string(shape.ranks) + " ranks, " + std::to_string(shape.stages) + " stages");
    const Schedule meant = interleavedWithGroups(shape, shape.ranks);
    const ImportedTrace result = importedEvents(interleavedEvents(meant));
    EXPECT_THAT(result.notes, testing::Contains(HasSubstr(std::to_string(shape.stages / shape.ranks) + " stages on each rank")));
    ASSERT_EQ(result.steps.size(), 1U);
    std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(shape.ranks));
    for (const Span& s : result.steps[0].trace.spans)
      rows[s.rank.index()].push_back(std::to_string(s.stage.value) + std::string(nameOf(s.kind)) + std::to_string(s.microbatch.value));
    EXPECT_EQ(rows, wordsOf(meant));
  }
}

TEST(TorchTraces, FindPipelinesAndTensorParallelRanksInTheGroupsOfTheFiles) {
  // Two stages, two data-parallel replicas, two tensor-parallel ranks each; pipelines are {0, 6}, {1, 7}, {2, 4}, {3, 5}: as no order says.
  const test::Folder folder;
  const std::vector<std::vector<int>> pipelines{{0, 6}, {1, 7}, {2, 4}, {3, 5}}, tensors{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const auto groupOf = [](const std::vector<std::vector<int>>& groups, int rank) {
    return *std::ranges::find_if(groups, [&](const auto& group) { return std::ranges::find(group, rank) != group.end(); });
  };
  for (int rank = 0; rank < 8; ++rank) {
    const std::string stage = std::to_string(rank / 4);
    nlohmann::json file;
    file["distributedInfo"] = {{"rank", rank},
                               {"pg_config",
                                {{{"pg_desc", "mesh_pp"}, {"ranks", groupOf(pipelines, rank)}},
                                 {{"pg_desc", "mesh_tp"}, {"ranks", groupOf(tensors, rank)}},
                                 {{"pg_desc", "TENSOR_AND_DATA_PARALLEL_GROUP"}, {"ranks", groupOf({{0, 1, 2, 3}, {4, 5, 6, 7}}, rank)}},
                                 {{"pg_desc", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"}, {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}}},
                                 {{"pg_desc", "default_pg"}, {"ranks", {0, 1, 2, 3, 4, 5, 6, 7}}}}}};
    file["traceEvents"] = {nlohmann::json::parse(event("PP:" + stage + "F0", 1, 20 * (rank / 4), 10))};
    if (rank < 4) file["traceEvents"].push_back(nlohmann::json::parse(event("PP:0SEND_F0", 1, 10, 5)));
    (void)folder.with("rank" + std::to_string(rank) + ".json", file.dump());
  }
  const ImportedTrace result = imported(folder.file(""));
  EXPECT_THAT(result.notes,
              testing::Contains(HasSubstr("4 pipelines run beside each other, 2 tensor-parallel in each of 2 data-parallel replicas")));
  ASSERT_EQ(result.ranks.size(), 8U);
  EXPECT_EQ(result.replicas, 2);
  EXPECT_EQ(result.tensor, 2);
  // By replica, then tensor-parallel rank, then stage.
  std::vector<std::int32_t> jobs;
  for (const ImportedRank& rank : result.ranks) jobs.push_back(rank.job.value().value);
  EXPECT_THAT(jobs, ElementsAre(0, 6, 1, 7, 2, 4, 3, 5));
  for (const Span& span : result.steps.at(0).trace.spans) {
    if (span.kind != SpanKind::SendForward) continue;
    EXPECT_EQ(span.peer.value, span.rank.value + 1);
  }
}

}  // namespace
}  // namespace pw
