// Recordings that begin and end within a step, and have no optimizer that says where steps end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/traces/import.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/job/recover.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "tests/support/folder.h"
#include "tests/support/trace_rules.h"

namespace pw {
namespace {

constexpr int kSteps = 4;
constexpr Ns kPause = 7'000;  ///< between steps

/// Steps of a schedule that were recorded, F of 10 µs, B of 20, I and W of 10, and messages of 1.
class Recording {
 public:
  explicit Recording(const Schedule& schedule) : schedule_(schedule) {
    SyntheticCosts costs;
    costs.forward = {10'000};
    costs.backward = {20'000};
    costs.backwardInput = costs.backwardWeight = {10'000};
    costs.latency = 1'000;
    const Trace trace = simulate(schedule, syntheticTable(costs, static_cast<int>(schedule.placement.stages())));
    for (const Span& span : trace.spans) {
      if (!isCompute(span.kind)) continue;
      step_.push_back(span);
      length_ = std::max(length_, span.end);
    }
  }

  [[nodiscard]] Ns length() const { return kSteps * (length_ + kPause); }
  /// How many steps are whole between these times.
  [[nodiscard]] std::size_t wholeSteps(Ns from, Ns to) const {
    std::size_t count = 0;
    for (int s = 0; s < kSteps; ++s) count += s * (length_ + kPause) >= from && s * (length_ + kPause) + length_ <= to ? 1U : 0U;
    return count;
  }

  /// The job of what is within these times, as torch's runtime or Megatron labels it.
  [[nodiscard]] Job job(Ns from, Ns to, bool isTorch) const {
    nlohmann::json events = nlohmann::json::array();
    const bool chunks = schedule_.placement.stages() > schedule_.rows.size();
    for (std::size_t r = 0; r < schedule_.rows.size() && chunks && !isTorch; ++r)
      events.push_back(event("forward_backward_pipelining_with_interleaving.steady", Rank(r), from, to));
    for (int s = 0; s < kSteps; ++s) {
      for (const Span& span : step_) {
        const Ns start = span.start + s * (length_ + kPause), end = start + (span.end - span.start);
        if (start < from || end > to) continue;
        events.push_back(event(isTorch                          ? torchLabel(span)
                               : span.kind == SpanKind::Forward ? "forward_step"
                                                                : "backward_step",
                               span.rank, start, end));
      }
    }
    const test::Folder folder;
    const ImportedTrace imported = importTrace({folder.with("torn.json", events.dump())}).value();
    for (const ImportedStep& step : imported.steps) test::expectKeepsRules(step.trace);
    return jobOf(measuredOf(imported));
  }

  /// The job of a file for each rank, all on one clock: `early` was recorded from the first step on, the others from the second.
  [[nodiscard]] Job jobWithEarly(Rank early) const {
    const test::Folder folder;
    std::vector<std::string> files;
    for (std::size_t r = 0; r < schedule_.rows.size(); ++r) {
      nlohmann::json events = nlohmann::json::array();
      for (int s = Rank(r) == early ? 0 : 1; s < kSteps; ++s) {
        for (const Span& span : step_) {
          const Ns start = span.start + s * (length_ + kPause), end = start + (span.end - span.start);
          if (span.rank == Rank(r)) events.push_back(event(torchLabel(span), span.rank, start, end));
        }
      }
      files.push_back(folder.with("rank" + std::to_string(r) + ".json", events.dump()));
    }
    return jobOf(measuredOf(importTrace(files).value()));
  }

 private:
  static std::string torchLabel(const Span& span) {
    return "PP:" + std::to_string(span.stage.value) + std::string(nameOf(span.kind)) + std::to_string(span.microbatch.value);
  }
  static nlohmann::json event(const std::string& name, Rank rank, Ns start, Ns end) {
    const auto micro = [](Ns time) { return static_cast<double>(time) / 1000; };
    return {{"ph", "X"},          {"cat", "user_annotation"}, {"name", name}, {"pid", rank.value}, {"tid", 1},
            {"ts", micro(start)}, {"dur", micro(end - start)}};
  }

  const Schedule schedule_;
  std::vector<Span> step_;
  Ns length_ = 0;
};

/// Every beginning within the first step, with an end within the last one.
void expectWholeSteps(const Schedule& schedule, bool isTorch) {
  const Recording recording(schedule);
  for (Ns from = 0; from < recording.length() / kSteps; from += Ns{9'000}) {
    const Ns to = recording.length() - (from + 31'000) % (recording.length() / kSteps);
    SCOPED_TRACE(schedule.name + (isTorch ? " of torch" : " of Megatron") + " from " + std::to_string(from.value) + " to " +
                 std::to_string(to.value));
    const Job job = recording.job(from, to, isTorch);
    EXPECT_EQ(job.schedule.rows, computeOnly(lower(schedule)).rows);
    EXPECT_EQ(job.steps.size(), recording.wholeSteps(from, to));
    const JobShape shape(job);
    for (const JobStep& step : job.steps) {
      forSlots(shape, [&](std::size_t i, std::size_t, const JobShape::Slot& slot) {
        EXPECT_EQ(step.actions[i], slot.action.kind == ActionKind::Backward ? 20'000 : 10'000) << toString(slot.action);
      });
    }
  }
}

TEST(TornRecordings, OfTorchsLabelsHaveTheirWholeSteps) {
  for (const auto& [name, shape] : {std::pair{"1f1b", Shape{2, 2, 4}},
                                    {"1f1b", {4, 4, 6}},
                                    {"gpipe", {3, 3, 4}},
                                    {"zb-h1", {3, 3, 5}},
                                    {"interleaved-1f1b", {2, 4, 4}},
                                    {"zbv", {2, 4, 6}},
                                    {"forward-only", {2, 2, 4}},
                                    {"forward-only", {3, 3, 6}},
                                    {"forward-only", {2, 4, 4}}})
    expectWholeSteps(generate(name, shape), true);
}

// Microbatches in an order of the user's own, whole: a step is cut where its first action comes again, not at the lowest microbatch.
TEST(TornRecordings, OfForwardsAloneAreThoseThatBeginAnywhere) {
  Schedule schedule = generate("forward-only", {2, 2, 4});
  for (auto& row : schedule.rows) std::ranges::reverse(row);
  const Recording recording(schedule);
  const Job job = recording.job(0, recording.length(), true);
  EXPECT_EQ(job.schedule.rows, schedule.rows);
  EXPECT_EQ(job.steps.size(), static_cast<std::size_t>(kSteps));
}

TEST(TornRecordings, OfARankThatBeganAStepEarlierAreOnTheClockOfTheOthers) {
  const Recording recording(generate("1f1b", {3, 3, 4}));
  for (const Rank early : {Rank(0), Rank(1), Rank(2)}) {
    const Job job = recording.jobWithEarly(early);
    EXPECT_EQ(job.steps.size(), static_cast<std::size_t>(kSteps - 1));
    EXPECT_THAT(job.notes, testing::Not(testing::Contains(testing::HasSubstr("clock"))));
    for (const JobStep& step : job.steps) EXPECT_EQ(step.makespan, job.steps.front().makespan);
  }
}

TEST(TornRecordings, OfMegatronsFunctionsHaveTheirWholeSteps) {
  expectWholeSteps(generate("1f1b", {2, 2, 4}), false);
  expectWholeSteps(generate("1f1b", {4, 4, 6}), false);
  expectWholeSteps(generate("1f1b", {3, 3, 9}), false);
  expectWholeSteps(interleavedWithGroups({2, 4, 4}, 2), false);
}

/// Rank 2 of the four receives gradients from rank 3, whose file is left out.
TEST(TornTraces, SayThatLaterStagesAreMissing) {
  const std::string whole = PW_SOURCE_DIR "/tests/data/torch_traces/1f1b/";
  std::vector<std::string> all, some;
  for (const char* name : {"rank0.json.gz", "rank1.json.gz", "rank2.json.gz", "rank3.json.gz"}) all.push_back(whole + name);
  some.assign(all.begin(), all.end() - 1);
  EXPECT_FALSE(importTrace(all)->lacksLastStages);
  EXPECT_TRUE(importTrace(some)->lacksLastStages);
  some.assign(all.begin(), all.begin() + 1);
  EXPECT_TRUE(importTrace(some)->lacksLastStages);
}

// Inference that streams: a later rank begins its step closer to the next step of the first rank than to its own.
TEST(TornRecordings, OfForwardsThatStreamCountTheStepsOfLateStagesWithTheirInputs) {
  constexpr int kStages = 4, kMicrobatches = 4;
  std::string events;
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < 2 * kMicrobatches; ++i) {
      const nlohmann::json event{{"ph", "X"},
                                 {"cat", "user_annotation"},
                                 {"name", "PP:" + std::to_string(stage) + "F" + std::to_string(i % kMicrobatches)},
                                 {"pid", stage},
                                 {"tid", 1},
                                 {"ts", 10 * (stage + i)},
                                 {"dur", 10}};
      events += (events.empty() ? "[" : ",") + event.dump();
    }
  }
  const test::Folder folder;
  const Job job = jobOf(measuredOf(importTrace({folder.with("streamed.json", events + "]")}).value()));
  EXPECT_EQ(job.steps.size(), 2U);
  EXPECT_EQ(job.schedule.rows, generate("forward-only", {kStages, kStages, kMicrobatches}).rows);
}

}  // namespace
}  // namespace pw
