// simulate --runtime and lower --minimise-waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "tests/app/cli/call.h"
#include "tests/support/jobs.h"

namespace pw::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Json runtimeAnswer(Words words, int status = 0) {
  words.emplace_back("--json");
  const Outcome outcome = call(words);
  EXPECT_EQ(outcome.status, status) << outcome.err;
  return outcome.out.empty() ? Json() : Json::parse(outcome.out);
}
std::string runtimeRefusal(const Words& words) {
  const Outcome outcome = call(words);
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  return outcome.err;
}

// pytorch issue 172668: two ranks with two stages each, four microbatches, F 1 and B 2. Without a pending receive in the way the step is
// M V (f + b) + (R − 1)(f + b) = 27; torch's own order, each receive of which stops its rank, takes 13 more.
TEST(Runtime, ShowsTheBubbleOfTorchsOrderAndRemovesIt) {
  const Folder folder;
  const std::string torch = folder.file("torch.csv"), better = folder.file("better.csv");
  ASSERT_EQ(
      call({"schedule", "interleaved-1f1b", "--ranks", "2", "--chunks", "2", "--microbatches", "4", "--lowered", "torch", "--out", torch})
          .status,
      0);
  const Words times{"--forward", "1ns", "--backward", "2ns"};
  const auto simulated = [&](const std::string& csv, const Words& more = {}) {
    Words words{"simulate", "--csv", csv, "--runtime", "torch"};
    words.insert(words.end(), times.begin(), times.end());
    words.insert(words.end(), more.begin(), more.end());
    return runtimeAnswer(words);
  };
  const Json blocked = simulated(torch);
  EXPECT_EQ(blocked["makespan_ns"], 40);
  EXPECT_EQ(blocked["makespan_overlapped_ns"], 27);
  EXPECT_EQ(blocked["blocked_receives"][0],
            (Json{{"rank", 0}, {"receive", "2RECV_F0"}, {"before", "0F1"}, {"start_ns", 1}, {"end_ns", 2}}));
  EXPECT_EQ(simulated(torch, {"--receives", "overlap"})["makespan_ns"], 27);

  Words lower{"lower", torch, "--minimise-waits", "--out", better};
  lower.insert(lower.end(), times.begin(), times.end());
  ASSERT_EQ(call(lower).status, 0);
  EXPECT_EQ(call({"check", better}).status, 0);
  EXPECT_EQ(simulated(better)["makespan_ns"], 27);
  EXPECT_EQ(simulated(better)["blocked_receives"].size(), 0U);
  const std::string text = call({"simulate", "--csv", torch, "--runtime", "torch", "--forward", "1ms", "--backward", "2ms"}).out;
  EXPECT_THAT(text, HasSubstr("rank 0: 0F1 waits 1.00 ms for 2RECV_F0, which it does not need, at 1.00 ms"));
}

// 1F1B with a message time x and nothing in the background. Two ranks, one microbatch: F, x, F, B, x, B.
TEST(Runtime, WaitsAsMegatronWaits) {
  const Words shape{"simulate", "--schedule", "1f1b", "--ranks",    "2",  "--microbatches", "1", "--forward",
                    "3ns",      "--backward", "5ns",  "--transfer", "2ns"};
  Words megatron = shape, torch = shape;
  megatron.insert(megatron.end(), {"--runtime", "megatron"});
  torch.insert(torch.end(), {"--runtime", "torch"});
  EXPECT_EQ(runtimeAnswer(megatron)["makespan_ns"], 2 * (3 + 2 + 5) - 2 + 2);
  EXPECT_EQ(runtimeAnswer(torch)["makespan_ns"], 2 * (3 + 2 + 5) - 2 + 2);
  EXPECT_EQ(runtimeAnswer(megatron)["runtime"], "megatron");
}

TEST(Runtime, WaitsAsMegatronWaitsWithoutOverlap) {
  Words words{"simulate",  "--schedule", "interleaved-1f1b", "--ranks", "4",         "--chunks", "2",         "--microbatches", "8",
              "--forward", "10ns",       "--backward",       "20ns",    "--latency", "2ns",      "--runtime", "megatron"};
  const auto overlapped = runtimeAnswer(words)["makespan_ns"].get<int>();
  words.emplace_back("--no-overlap-p2p-communication");
  EXPECT_GT(runtimeAnswer(words)["makespan_ns"].get<int>(), overlapped);
  EXPECT_THAT(call(words).out, HasSubstr("with --no-overlap-p2p-communication: sends and receives in groups, and waits for all"));
  words[4] = "2";
  EXPECT_THAT(runtimeRefusal(words), HasSubstr("Megatron refuses --no-overlap-p2p-communication for interleaved stages on two ranks"));
  words[16] = "torch";
  EXPECT_THAT(runtimeRefusal(words), HasSubstr("is an argument of Megatron; add --runtime megatron, or omit it"));
}

// `lower --minimise-waits` knows how long messages take.
TEST(Runtime, PlacesReceivesWhereMessagesWithLatencyAreDue) {
  const Folder folder;
  const std::string torch = folder.file("torch.csv");
  ASSERT_EQ(
      call({"schedule", "interleaved-1f1b", "--ranks", "4", "--chunks", "2", "--microbatches", "8", "--lowered", "torch", "--out", torch})
          .status,
      0);
  const Words times{"--forward", "10ns", "--backward", "20ns", "--latency", "3ns"};
  const auto placedWith = [&](Words more) {
    const std::string placed = folder.file("placed.csv");
    Words lower{"lower", torch, "--minimise-waits", "--out", placed};
    lower.insert(lower.end(), more.begin(), more.end());
    EXPECT_EQ(call(lower).status, 0);
    Words simulate{"simulate", "--csv", placed, "--runtime", "torch"};
    simulate.insert(simulate.end(), times.begin(), times.end());
    return runtimeAnswer(simulate)["makespan_ns"].get<int>();
  };
  EXPECT_LT(placedWith(times), placedWith({"--forward", "10ns", "--backward", "20ns"}));
}

// F 1, I 2, W 3. Rank 0 does its Ws last: plain it ends with I1 at 12 and two Ws, 18. Torch's first stage does nothing in I, and 5 in W:
// its I1 ends when the gradient comes, at 10, and two Ws end at 20.
TEST(Runtime, TorchsFirstStageDoesItsWholeBackwardWithTheWeights) {
  const Folder folder;
  const std::string csv = folder.with("x.csv", "0F0,0I0,0F1,0I1,0W0,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
  const Words words{"simulate", "--csv", csv, "--forward", "1ns", "--input", "2ns", "--weight", "3ns"};
  Words torch = words;
  torch.insert(torch.end(), {"--runtime", "torch"});
  EXPECT_EQ(runtimeAnswer(words)["makespan_ns"], 18);
  EXPECT_EQ(runtimeAnswer(torch)["makespan_ns"], 20);
}

// A job of whole backwards of 2 µs: its parts are halves. Torch's last stage takes 0.57 of one for its inputs, then the first a whole one.
TEST(Runtime, TorchsPartsOfBackwardsAreMoreThanHalves) {
  const Folder folder;
  const Trace step = pipeline("1f1b", 1, {1000, 1000}, {2000, 2000});
  const std::string job = folder.with("job.json", toJson(jobOf(jobOfSteps({step, step}))));
  const Words words{"simulate", "--costs-from", job, "--schedule", "zb-h1"};
  Words torch = words;
  torch.insert(torch.end(), {"--runtime", "torch"});
  EXPECT_EQ(runtimeAnswer(words)["makespan_ns"], 2 * 1000 + 2 * 1000 + 1000);
  EXPECT_EQ(runtimeAnswer(torch)["makespan_ns"], 2 * 1000 + 1140 + 2000);
  EXPECT_THAT(call(words).out, HasSubstr("did whole backwards; the times of their parts are estimated, which a run with zb-h1 would show"));
}

// Of two steps, one thrice as long as the other, little can be said; but no step takes less than nothing.
TEST(Runtime, NoErrorBarGoesBelowZero) {
  const Folder folder;
  const Trace fast = pipeline("1f1b", 4, {1000, 1000}, {2000, 2000}), slow = pipeline("1f1b", 4, {3000, 3000}, {6000, 6000});
  const std::string job = folder.with("job.json", toJson(jobOf(jobOfSteps({fast, slow}))));
  const Json of = runtimeAnswer({"simulate", "--costs-from", job});
  EXPECT_GT(of["uncertainty"]["deviation"], 1);
  EXPECT_EQ(of["uncertainty"]["step_low_ns"], 0);
}

// A later comment of the issue: 0SEND_F1 waits for 1RECV_F1, which is behind 1SEND_F0, which waits for 2RECV_F0, which is behind 0SEND_F1.
TEST(Runtime, SaysWhereItHangs) {
  const Folder folder;
  const std::string csv =
      folder.with("x.csv",
                  "0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,"
                  "2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                  "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,3F1,3B1,3SEND_B1,"
                  "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1\n");
  const Json of = runtimeAnswer({"simulate", "--csv", csv, "--runtime", "torch"}, 1);
  ASSERT_EQ(of["problems"].size(), 2U);
  EXPECT_EQ(of["problems"][0]["action"], "2RECV_F0");
  EXPECT_EQ(of["problems"][1]["action"], "1RECV_F1");
  EXPECT_GT(runtimeAnswer({"simulate", "--csv", csv})["makespan_ns"], 0);
}

// The stages of a plan have no collectives of their own, so a pending receive stops nothing.
TEST(Runtime, LetsAPlansStagesComputeWhileReceivesArePending) {
  const Folder folder;
  const std::string table = folder.with("t.csv",
                                        "name,forward_ns,input_ns,weight_ns,parameter_bytes,activation_bytes,output_bytes\n"
                                        "a,1,1,1,0,0,0\nb,1,1,1,0,0,0\nc,1,1,1,0,0,0\nd,1,1,1,0,0,0\n");
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(call({"plan", "--layers", table, "--ranks", "2", "--chunks", "2", "--microbatches", "4", "--schedule", "interleaved-1f1b",
                  "--out", plan})
                .status,
            0);
  EXPECT_EQ(runtimeAnswer({"simulate", plan, "--runtime", "torch"})["makespan_ns"], 27);
  EXPECT_EQ(runtimeAnswer({"simulate", plan, "--runtime", "torch", "--receives", "block"})["makespan_ns"], 40);
  EXPECT_EQ(runtimeAnswer({"simulate", plan, "--runtime", "megatron"})["makespan_ns"], 27);
}

// On Gloo a pending receive stops no rank.
TEST(Runtime, PredictsJobsOfTorchAsTheyRan) {
  for (const std::string name : {"interleaved", "1f1b", "zero_bubble"}) {
    const Words words{"simulate", "--costs-from", PW_SOURCE_DIR "/tests/data/torch_traces/" + name, "--runtime", "torch"};
    const auto with = [&](const char* receives) {
      Words all = words;
      all.insert(all.end(), {"--receives", receives});
      return runtimeAnswer(all);
    };
    const Json overlapping = with("overlap"), blocking = with("block");
    EXPECT_EQ(runtimeAnswer(words), overlapping) << name;
    const Json explained = runtimeAnswer({"explain", words[2]});
    const auto measured = explained["step_ns"].get<double>();
    EXPECT_NEAR(overlapping["step_ns"].get<double>() / measured, 1, 0.05) << name;
    EXPECT_LT(overlapping["makespan_ns"], blocking["makespan_ns"]) << name;
    // The error bar is of held-out steps that were predicted the same way.
    EXPECT_NE(overlapping["uncertainty"]["deviation"], blocking["uncertainty"]["deviation"]) << name;
  }
}

TEST(Runtime, RefusesWhatDoesNotGoTogether) {
  const Words zbv{"simulate", "--schedule", "zbv", "--ranks", "2", "--microbatches", "4", "--runtime", "megatron"};
  EXPECT_THAT(runtimeRefusal(zbv), HasSubstr("zbv is neither"));
  EXPECT_THAT(
      runtimeRefusal({"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--runtime", "torch", "--sends", "posted"}),
      HasSubstr("omit --sends"));
  EXPECT_THAT(runtimeRefusal({"lower", "x.csv", "--minimise-waits", "--lowered", "torch"}), HasSubstr("omit --lowered"));
  EXPECT_THAT(runtimeRefusal({"lower", "missing.csv"}), HasSubstr("missing.csv"));
}

}  // namespace
}  // namespace pw::test
