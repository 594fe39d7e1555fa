// Training by remote calls and distributed autograd: the numbers of the schedule, traces that keep the rules, and ends that are named.
#include "engine/dynamic/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "backends/messages/channel/in_memory_link.h"
#include "schedules/error.h"
#include "tests/support/graph_builder.h"
#include "tests/support/trace_rules.h"
#include "tests/support/training.h"

namespace pw {
namespace {

constexpr int kSteps = 3;
constexpr std::chrono::seconds kPatience{60};

test::ThreadOptions withSgd(double rate = 0.05) {
  test::ThreadOptions options;
  options.stage.seed = 7;
  options.stage.optimizer.learningRate = rate;
  return options;
}

/// The pipelines of all ranks, which are threads of this process, and what each saw of its steps.
class DynamicJob {
 public:
  explicit DynamicJob(const Plan& plan) : ranks_(plan.schedule.rows.size()), logs_(static_cast<std::size_t>(worldSize(plan))) {
    const std::vector<LinkMaker> links = inMemoryLinks(worldSize(plan));
    std::vector<std::future<std::unique_ptr<DynamicPipeline>>> connecting;
    for (const LinkMaker& link : links) {
      connecting.push_back(
          std::async(std::launch::async, [&] { return std::make_unique<DynamicPipeline>(plan, link, torchBackend(), kPatience); }));
    }
    for (auto& pipeline : connecting) pipelines_.push_back(pipeline.get());
  }

  [[nodiscard]] test::ThreadOptions options(test::ThreadOptions options) {
    options.stage.distributed = true;
    options.executor.instead = [this](const std::map<Stage, StageModule*>& stages, Communicator& communicator, StepLog& log) {
      const std::size_t rank = communicator.rank().index();
      pipelines_[rank]->run(stages, communicator, log);
      logs_[rank].push_back(log);
    };
    return options;
  }
  void end(std::size_t rank) { pipelines_[rank].reset(); }

  [[nodiscard]] std::size_t steps() const { return logs_.front().size(); }
  [[nodiscard]] Trace trace(std::size_t step) const {
    std::vector<StepLog> ranks;
    for (const auto& logs : logs_) ranks.push_back(logs.at(step));
    return joinTraces(ranks, ranks_);
  }

 private:
  std::size_t ranks_;
  std::vector<std::unique_ptr<DynamicPipeline>> pipelines_;
  std::vector<std::vector<StepLog>> logs_;  // by rank, then step
};

void expectSame(const test::Trained& actual, const test::Trained& expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t s = 0; s < actual.losses.size(); ++s)
    EXPECT_LE(std::abs(actual.losses[s] - expected.losses[s]), 1e-5 + 1e-5 * std::abs(expected.losses[s])) << "step " << s;
  EXPECT_EQ(test::firstDifference(actual.gradients, expected.gradients, 1e-5, 4e-5), "");
  EXPECT_EQ(test::firstDifference(actual.parameters, expected.parameters, 1e-5, 4e-5), "");
  EXPECT_EQ(test::firstDifference(actual.buffers, expected.buffers, 1e-5, 4e-5), "");
}

struct Case {
  std::string model, loss, schedule;
  int ranks = 2, microbatches = 4;
  std::int64_t batch = 8;
  int replicas = 1;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model << " by " << c.schedule << " on " << c.ranks; }
};

class DynamicTraining : public testing::TestWithParam<Case> {};

/// The actions of a microbatch at a stage that a trace must have, and has once: F, and B of stages whose outputs meet in one message back.
std::set<std::tuple<SpanKind, Stage, Microbatch, Rank>> actionsOf(const Trace& trace) {
  std::set<std::tuple<SpanKind, Stage, Microbatch, Rank>> actions;
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) actions.emplace(span.kind, span.stage, span.microbatch, span.rank);
  }
  return actions;
}

TEST_P(DynamicTraining, GivesTheNumbersOfTheSchedule) {
  const Case& c = GetParam();
  const ModelGraph graph = test::sample(c.model);
  const Plan plan = test::planFor(graph, c.schedule, c.ranks, c.microbatches, c.batch, c.loss, {}, c.replicas);
  const test::Trained expected = test::trainInThreads(graph, plan, kSteps, withSgd());
  DynamicJob job(plan);
  int unequal = 0;
  const test::Trained actual = test::trainInThreads(graph, plan, kSteps, job.options(withSgd()), &unequal);
  expectSame(actual, expected);
  EXPECT_EQ(unequal, 0) << "copies of a parameter differ";
}

TEST_P(DynamicTraining, RecordsEveryForwardBackwardAndMessage) {
  const Case& c = GetParam();
  const ModelGraph graph = test::sample(c.model);
  const Plan plan = test::planFor(graph, c.schedule, c.ranks, c.microbatches, c.batch, c.loss, {}, c.replicas);
  DynamicJob job(plan);
  (void)test::trainInThreads(graph, plan, kSteps, job.options(withSgd()));
  ASSERT_EQ(job.steps(), static_cast<std::size_t>(kSteps));
  const Trace trace = job.trace(kSteps - 1);
  test::expectKeepsRules(trace);
  std::set<std::tuple<SpanKind, Stage, Microbatch, Rank>> expected;
  std::set<std::tuple<SpanKind, Stage, Microbatch, Rank, Rank>> expectedMessages, messages;
  std::map<SpanKind, Bytes> expectedBytes, bytes;
  for (int d = 0; d < c.replicas; ++d) {
    const auto rankOf = [&](Stage stage) {
      return replicasOf(plan.schedule).inTrace(d, plan.schedule.placement.rankOfStage[stage.index()]);
    };
    for (int m = 0; m < c.microbatches; ++m) {
      for (std::size_t s = 0; s < plan.partition.stages.size(); ++s) {
        for (const SpanKind kind : {SpanKind::Forward, SpanKind::Backward})
          expected.emplace(kind, Stage(s), Microbatch(m), rankOf(Stage(s)));
      }
      for (const Transfer& t : plan.partition.transfers) {
        if (rankOf(t.from) == rankOf(t.to)) continue;
        expectedMessages.emplace(SpanKind::SendForward, t.from, Microbatch(m), rankOf(t.from), rankOf(t.to));
        expectedBytes[SpanKind::SendForward] += t.bytes;
        if (t.gradient) expectedBytes[SpanKind::SendBackward] += t.bytes;  // a gradient has the shape of its value
        if (t.gradient) expectedMessages.emplace(SpanKind::SendBackward, t.to, Microbatch(m), rankOf(t.to), rankOf(t.from));
      }
    }
  }
  EXPECT_EQ(actionsOf(trace), expected);
  for (const Span& span : trace.spans) {
    const bool isMessage = span.kind == SpanKind::SendForward || span.kind == SpanKind::SendBackward;
    if (!isMessage) continue;
    EXPECT_GT(span.bytes, 0);
    bytes[span.kind] += span.bytes;
    messages.emplace(span.kind, span.stage, span.microbatch, span.rank, span.peer);
  }
  EXPECT_EQ(messages, expectedMessages);
  EXPECT_EQ(bytes, expectedBytes);
}

/// unet skips over stages, several_inputs has dropout, gpt_small may tie weights, resnet18_narrow counts batches in its buffers.
INSTANTIATE_TEST_SUITE_P(Samples, DynamicTraining,
                         testing::Values(Case{"gpt_small", "cross_entropy", "1f1b"}, Case{"gpt_small", "cross_entropy", "interleaved_1f1b"},
                                         Case{"gpt_small", "cross_entropy", "zbv"}, Case{"gpt_small", "cross_entropy", "gpipe", 4},
                                         Case{"unet", "cross_entropy", "1f1b", 4}, Case{"unet", "cross_entropy", "zbv", 2},
                                         Case{"example_code", "cross_entropy", "1f1b"}, Case{"several_inputs", "mse", "1f1b", 2, 2, 8, 2},
                                         Case{"resnet18_narrow", "cross_entropy", "1f1b", 2, 2, 8},
                                         Case{"gpt_small", "cross_entropy", "1f1b", 1}));

TEST(DynamicTraining, SharesParametersOfSeveralStagesAsTheScheduleDoes) {
  const ModelGraph graph = test::sample("hf_gpt2");  // its embedding is its head
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "sum");
  ASSERT_FALSE(plan.partition.shared.empty());
  const test::ThreadOptions options = withSgd(1e-5);  // gradients of a sum are large
  const test::Trained expected = test::trainInThreads(graph, plan, kSteps, options);
  DynamicJob job(plan);
  int unequal = 0;
  expectSame(test::trainInThreads(graph, plan, kSteps, job.options(options), &unequal), expected);
  EXPECT_EQ(unequal, 0);
}

/// What is sent is a transposed part of rows, with gaps in memory; dropout draws in the order in which its input lies.
TEST(DynamicTraining, DrawsWhatTheWholeModelDrawsAfterAPermutedValue) {
  test::GraphBuilder g;
  const auto sized = [](std::int64_t rows, std::int64_t columns) {
    return test::GraphBuilder::meta({test::GraphBuilder::batch(), {rows, ""}, {columns, ""}});
  };
  const ValueId x = g.input("x", sized(3, 4)), first = g.parameter("first"), last = g.parameter("last");
  const ValueId y = g.call("linear", {{"input", x}, {"weight", first}}, "y", sized(3, 4));
  const std::int64_t one = 1, two = 2;
  const ValueId part =
      g.call("torch.ops.aten.slice.Tensor", {{"self", y}, {"dim", one}, {"start", one}, {"end", two + 1}}, "part", sized(2, 4));
  TensorMeta lies = sized(4, 2);
  lies.memoryOrder = memoryOrderOf({2, 4, 2}, {12, 1, 4});
  const ValueId turned = g.call("torch.ops.aten.transpose.int", {{"self", part}, {"dim0", one}, {"dim1", two}}, "turned", lies);
  const ValueId dropped = g.call("dropout", {{"input", turned}, {"p", 0.5}, {"train", true}}, "dropped", sized(4, 2));
  const ValueId back = g.call("torch.ops.aten.transpose.int", {{"self", dropped}, {"dim0", one}, {"dim1", two}}, "back", sized(2, 4));
  const ModelGraph graph = g.done(g.call("linear", {{"input", back}, {"weight", last}}, "scores", sized(2, 4)));
  test::ThreadOptions options = withSgd();
  options.stage.initRandom = true;
  const test::Trained whole = test::trainInThreads(graph, test::planFor(graph, "1f1b", 1, 2, 4, "mse"), kSteps, options);
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "mse", {graph.value(dropped).producer});
  expectSame(test::trainInThreads(graph, plan, kSteps, options), whole);
  DynamicJob job(plan);
  expectSame(test::trainInThreads(graph, plan, kSteps, job.options(options)), whole);
}

TEST(DynamicTraining, AddsSparseGradientsOfEmbeddings) {
  ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "cross_entropy");
  const test::Trained expected = test::trainInThreads(graph, plan, kSteps, withSgd());
  int embeddings = 0;
  for (Node& node : graph.nodes) {
    if (node.target != "torch.ops.aten.embedding.default") continue;
    ASSERT_EQ(node.inputs.size(), 2U);
    node.inputs.push_back({"padding_idx", std::int64_t{-1}});
    node.inputs.push_back({"scale_grad_by_freq", false});
    node.inputs.push_back({"sparse", true});
    ++embeddings;
  }
  ASSERT_EQ(embeddings, 2) << "tokens and positions";
  DynamicJob job(plan);
  expectSame(test::trainInThreads(graph, plan, kSteps, job.options(withSgd())), expected);
}

TEST(DynamicTraining, RunsAStepOnceWhoseGradientsAreNotFinite) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "cross_entropy");
  DynamicJob job(plan);
  test::ThreadOptions options = job.options(withSgd());
  options.executor.instead = [run = options.executor.instead](const std::map<Stage, StageModule*>& stages, Communicator& communicator,
                                                              StepLog& log) {
    run(stages, communicator, log);
    const ParameterGroup group = stages.begin()->second->groups().front();
    const float infinity = std::numeric_limits<float>::infinity();
    std::memcpy(group.gradients.data, &infinity, sizeof infinity);
  };
  (void)test::trainInThreads(graph, plan, 1, options);
  EXPECT_EQ(job.steps(), 1U);
}

TEST(DynamicTraining, GivesTheSameBitsEveryTime) {
  const ModelGraph graph = test::sample("unet");
  const Plan plan = test::planFor(graph, "1f1b", 4, 4, 8, "cross_entropy");
  std::vector<test::Trained> all;
  for (int i = 0; i < 2; ++i) {
    DynamicJob job(plan);
    all.push_back(test::trainInThreads(graph, plan, kSteps, job.options(withSgd())));
  }
  EXPECT_EQ(all[0].losses, all[1].losses);
  EXPECT_EQ(test::firstDifference(all[0].parameters, all[1].parameters, 0, 0), "");
}

TEST(DynamicTraining, NamesTheRankThatWasLost) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 2, 2, 4, "cross_entropy");
  torchBackend().prepareProcess(1);
  StageOptions options;
  options.distributed = true;
  for (const int victim : {0, 1}) {
    const Rank survivor(1 - victim);
    const auto stage = torchBackend().makeTracedStage(graph, plan, Stage(survivor.index()), options);
    stage->beginStep(0, StepMode::Train);
    const auto communicators = inMemoryCommunicators(2, kPatience);
    auto links = inMemoryLinks(2);
    auto other = std::async(std::launch::async, [&] {
      return std::make_unique<DynamicPipeline>(plan, links[static_cast<std::size_t>(victim)], torchBackend(), kPatience);
    });
    DynamicPipeline own(plan, links[survivor.index()], torchBackend(), kPatience);
    other.get().reset();
    StepLog log;
    try {
      own.run({{Stage(survivor.index()), stage.get()}}, *communicators[survivor.index()], log);
      ADD_FAILURE() << "the step ended without rank " << victim;
    } catch (const Error& lost) {
      EXPECT_THAT(lost.what(), testing::HasSubstr("rank " + std::to_string(victim)));
    }
  }
}

TEST(DynamicTraining, NeedsStagesThatWereMadeForIt) {
  const ModelGraph graph = test::sample("gpt_small");
  const Plan plan = test::planFor(graph, "1f1b", 1, 1, 2, "cross_entropy");
  torchBackend().prepareProcess(1);
  const auto stage = torchBackend().makeTracedStage(graph, plan, Stage(0), {});
  stage->beginStep(0, StepMode::Train);
  DynamicPipeline pipeline(plan, inMemoryLinks(1).front(), torchBackend(), kPatience);
  StepLog log;
  EXPECT_THROW(pipeline.run({{Stage(0), stage.get()}}, *inMemoryCommunicators(1, kPatience).front(), log), UsageError);
}

}  // namespace
}  // namespace pw
