// Where rows of an explanation lead, on jobs in which it is known; and costs of stages cut at other places.
#include <gtest/gtest.h>

#include <algorithm>

#include "simulator/job/explain_tables.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/recover.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

constexpr int kMicrobatches = 6;

std::vector<ExplainedTable> tablesOf(const Job& job) {
  const JobShape shape(job);
  return explainedTables(shape, job, explainJob(shape, job));
}

const ExplainedTable* find(const std::vector<ExplainedTable>& tables, ExplainTopic topic) {
  const auto found = std::ranges::find(tables, topic, &ExplainedTable::topic);
  return found == tables.end() ? nullptr : &*found;
}

const ExplainedRow* find(const ExplainedTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.rows, name, [](const ExplainedRow& row) { return row.cells.front(); });
  return found == table.rows.end() ? nullptr : &*found;
}

Action action(int stage, ActionKind kind, int microbatch) { return {Stage(stage), kind, Microbatch(microbatch)}; }

/// Five equal steps, but that one action takes longer in the fourth.
Job withOneLongAction(const Action& which, Ns time) {
  const Schedule schedule = generate("1f1b", {3, 3, kMicrobatches});
  SyntheticCosts each;
  each.forward = {1000, 1000, 1000};
  each.backward = {2000, 2000, 2000};
  const CostTable costs = syntheticTable(each, 3);
  std::vector<Trace> steps(5, simulate(schedule, costs));
  Program program = compile(schedule, costs);
  setActionTimes(schedule, {{which, time}}, program);
  Times times;
  execute(program, times);
  steps[3] = traceOf(schedule, costs, program, times);
  return jobOf(jobOfSteps(steps));
}

TEST(ExplainTables, PartsOfTheStepAddUpWhereTheReplayDoesNotMeetIt) {
  JobExplanation explanation;
  explanation.slowdowns.measured = 3'000'000;
  explanation.slowdowns.ideal = 3'500'000;
  explanation.slowdowns.replayed = 4'000'000;
  const std::string parts = "3.50 ms if all operations of a kind took equally long + 500 µs by stragglers + 0 ns of waits for hosts";
  EXPECT_EQ(stepText(explanation), "step 3.00 ms on average = " + parts + " − 1.00 ms that its replay takes too long");
  explanation.slowdowns.measured = 4'000'000 - 3'000;
  EXPECT_EQ(stepText(explanation), "step 4.00 ms on average = " + parts);
}

TEST(ExplainTables, AStragglersRowsLeadToTheActionThatTookLonger) {
  const Action slow = action(1, ActionKind::Backward, 2);
  const std::vector<ExplainedTable> tables = tablesOf(withOneLongAction(slow, 2700));
  const StepPlace expected{3, JobRank(1), slow, false};
  EXPECT_EQ(find(*find(tables, ExplainTopic::Kinds), "B")->place, expected);
  EXPECT_EQ(find(*find(tables, ExplainTopic::Stages), "stage 1")->place, expected);
  const ExplainedTable& worst = *find(tables, ExplainTopic::WorstSteps);
  EXPECT_EQ(worst.rows.front().cells.front(), "step 3");
  EXPECT_EQ(worst.rows.front().place, expected);
  EXPECT_EQ(find(tables, ExplainTopic::Ranks), nullptr) << "each stage is a rank";
  EXPECT_EQ(find(tables, ExplainTopic::Workers), nullptr) << "there is one replica";
}

TEST(ExplainTables, AWorstStepLeadsBesideTheOperationThatGrewInIt) {
  MeasuredJob measured = jobOfSteps(std::vector<Trace>(5, pipeline("1f1b", kMicrobatches, {1000, 1000}, {2000, 2000})));
  for (std::size_t k = 0; k < measured.steps.size(); ++k) {
    // After the last backward of rank 1, which ends one F + B of a stage, less an F, before that of rank 0.
    const Ns end = (kMicrobatches + 1) * 3000;
    measured.steps[k].operations = {{JobRank(1), "optimizer", end, end + (k == 2 ? Ns{9000} : Ns{1000})}};
  }
  const std::vector<ExplainedTable> tables = tablesOf(jobOf(measured));
  const ExplainedRow& worst = find(tables, ExplainTopic::WorstSteps)->rows.front();
  EXPECT_EQ(worst.cells.front(), "step 2");
  EXPECT_EQ(worst.place, (StepPlace{2, JobRank(1), action(1, ActionKind::Backward, kMicrobatches - 1), false}));
}

TEST(ExplainTables, BubblesLeadToTheActionThatTheyAreBefore) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 1000}, {2000, 2000, 2000});
  const std::vector<ExplainedTable> tables = tablesOf(jobOf(jobOfSteps({trace, trace, trace})));
  const ExplainedTable& bubble = *find(tables, ExplainTopic::Bubble);
  Ns idle = 0;
  for (const ExplainedRow& row : bubble.rows) {
    ASSERT_EQ(row.cells.size(), bubble.columns.size());
    EXPECT_TRUE(row.place.idle);
    if (row.cells[0] == "rank 2" && row.cells[2] == "start-up") {
      EXPECT_EQ(row.place.action, action(2, ActionKind::Forward, 0));
      ++idle;
    }
    if (row.cells[2] == "drain" && row.cells[0] == "rank 2") {
      EXPECT_EQ(row.place.action, std::nullopt) << "its row is done";
    }
    // Rank 0 waits longest for B of microbatch 0, which comes back through all stages.
    if (row.cells[0] == "rank 0" && row.cells[2] == "drain") {
      EXPECT_TRUE(row.place.action);
    }
  }
  EXPECT_GE(idle, 1);
}

TEST(ExplainTables, PartsOfThePathLeadToALongestOne) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 1000, 4000}, {2000, 2000, 8000});
  const std::vector<ExplainedTable> tables = tablesOf(jobOf(jobOfSteps({trace, trace, trace})));
  const ExplainedTable& path = *find(tables, ExplainTopic::Path);
  EXPECT_EQ(path.rows.front().cells.front(), "B");
  for (const char* kind : {"F", "B"}) {
    const StepPlace& place = find(path, kind)->place;
    EXPECT_EQ(place.worker, JobRank(2)) << kind;
    EXPECT_EQ(place.action->stage, Stage(2)) << kind;
    EXPECT_EQ(place.step, std::nullopt);
  }
}

TEST(JobCosts, CutsBetweenStagesShareTheWorkOfTheirPart) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 3000}, {2000, 8000});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  const CostTable own = costsOf(job);
  const CostTable cut = costsCutAt(own, {0.25, 0.75});
  // A quarter of two stages is half of the first; the middle is the other half and half of the second.
  ASSERT_EQ(cut.stages.size(), 3U);
  EXPECT_EQ(cut.stages[0].forward, 500);
  EXPECT_EQ(cut.stages[1].forward, 500 + 1500);
  EXPECT_EQ(cut.stages[2].forward, 1500);
  EXPECT_EQ(cut.stages[1].backward, 1000 + 4000);
  EXPECT_EQ(costsCutAt(own, {0.5}).stages, own.stages);
  EXPECT_EQ(timesFor(job, generate("1f1b", {3, 3, kMicrobatches})).costs.stages, costsCutAt(own, {1 / 3.0, 2 / 3.0}).stages);
}

TEST(JobCosts, KnowsActionsOneByOneOnlyOfTheSameWork) {
  const Trace trace = pipeline("1f1b", kMicrobatches, {1000, 3000}, {2000, 8000});
  const Job job = jobOf(jobOfSteps({trace, trace}));
  EXPECT_EQ(timesFor(job, job.schedule).actions.size(), 2U * 2 * kMicrobatches);
  EXPECT_EQ(timesFor(job, generate("gpipe", {2, 2, kMicrobatches})).actions.size(), 2U * 2 * kMicrobatches);
  EXPECT_TRUE(timesFor(job, generate("1f1b", {2, 2, kMicrobatches + 1})).actions.empty());
  EXPECT_EQ(timesFor(job, generate("interleaved-1f1b", {2, 4, kMicrobatches})).costs.stages.size(), 4U);
}

}  // namespace
}  // namespace pw::test
