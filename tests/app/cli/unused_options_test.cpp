// An option either changes what a command prints or writes, or is refused: every option of the help, in each mode of its command.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

using Words = std::vector<std::string>;

/// A mode of a command, and the options that may leave its output as it is there, for the given reason.
struct Mode {
  std::string what;
  Words call;
  std::map<std::string, std::string> silent = {}, values = {};  ///< values: in place of the usual ones
};

struct OptionInHelp {
  std::string name;
  bool takesValue = false;
};

std::vector<OptionInHelp> optionsOf(const std::string& command) {
  std::vector<OptionInHelp> options;
  std::istringstream help(call({command, "--help"}).out);
  for (std::string line; std::getline(help, line);) {
    if (!line.starts_with("  --")) continue;
    const std::size_t end = line.find(' ', 2);
    options.push_back({line.substr(2, end - 2), end + 1 < line.size() && line[end + 1] != ' '});
  }
  return options;
}

/// A value of each option that is none of its defaults and none of the modes below.
const std::map<std::string, std::string>& values() {
  static const std::map<std::string, std::string> all{{"--ranks", "3"},
                                                      {"--chunks", "3"},
                                                      {"--microbatches", "7"},
                                                      {"--group", "3"},
                                                      {"--letters", "zero-bubble"},
                                                      {"--forward", "3ms"},
                                                      {"--backward", "7ms"},
                                                      {"--input", "3ms"},
                                                      {"--weight", "5ms"},
                                                      {"--overlap", "4ms"},
                                                      {"--latency", "50us"},
                                                      {"--transfer", "70us"},
                                                      {"--load", "1ms"},
                                                      {"--store", "1ms"},
                                                      {"--seconds", "0.5"},
                                                      {"--live-limit", "1"},
                                                      {"--memory-limit", "1MB"},
                                                      {"--slow", "1=2"},
                                                      {"--sends", "blocking"},
                                                      {"--runtime", "torch"},
                                                      {"--receives", "block"},
                                                      {"--jitter", "0.1"},
                                                      {"--draws", "50"},
                                                      {"--seed", "7"},
                                                      {"--sensitivity", "0.1"},
                                                      {"--split", "l3"},
                                                      {"--cluster", "a100-nvlink"},
                                                      {"--optimizer", "adamw"},
                                                      {"--microbatch", "3"},
                                                      {"--replicas", "2"},
                                                      {"--batch", "13"},
                                                      {"--schedule", "gpipe"},
                                                      {"--balance", "parameters"},
                                                      {"--rank-order", "1,0"},
                                                      {"--recompute", "full"},
                                                      {"--share", "transmit"},
                                                      {"--momentum", "0.9"},
                                                      {"--loss", "mse"},
                                                      {"--device", "cpu"},
                                                      {"--precision", "bf16"},
                                                      {"--attention", "unfused"},
                                                      {"--threads", "2"},
                                                      {"--lowered", "torch"},
                                                      {"--strict", "torch"},
                                                      {"--depth", "1"},
                                                      {"--load-library", "nosuch.so"},
                                                      {"--estimate", "a100-nvlink"},
                                                      {"--costs", "nosuch.json"},
                                                      {"--costs-from", "nosuch.json"},
                                                      {"--steps", "1"},
                                                      {"--csv", "nosuch.csv"},
                                                      {"--layers", "nosuch.csv"},
                                                      {"--profile", "nosuch.json"},
                                                      {"--progress", "json"},
                                                      {"--placement", "v"},
                                                      {"--sizes", "nosuch.json"},
                                                      {"--top", "1"},
                                                      {"--study", "nosuch.json"},
                                                      {"--shard", "1/2"},
                                                      {"--run", "1"},
                                                      {"--patterns", "nosuch.json"},
                                                      {"--step", "2"},
                                                      {"--num-layers", "8"},
                                                      {"--dpi", "72"},
                                                      {"--width", "column"},
                                                      {"--font-size", "6"},
                                                      {"--row-height", "9mm"},
                                                      {"--time", "0ms-1ms"},
                                                      {"--title", "Step"},
                                                      {"--predicted-title", "Before"},
                                                      {"--measured-title", "After"},
                                                      {"--rank-label", "stage"},
                                                      {"--labels", "full"},
                                                      {"--trace", ""},
                                                      {"--out", ""}};
  return all;
}

class UnusedOptions : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(call({"schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--out", file("s.csv")}).status, 0);
    ASSERT_EQ(planned({"--out", file("plan.json")}).status, 0);
    std::string rows = "name,forward_ns,backward_ns,parameter_bytes,activation_bytes,output_bytes\n";
    for (int i = 0; i < 8; ++i) rows += "l" + std::to_string(i) + ",100000,200000," + std::to_string(1000 << i) + ",500000,40000\n";
    std::ofstream(file("layers.csv")) << rows;
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  static Outcome planned(const Words& more) {
    Words words{"plan", sample("gpt_small"), "--cluster", "h100-nvlink", "--ranks", "2", "--microbatches", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return call(words);
  }

  /// The options of the command that change nothing in this mode.
  std::set<std::string> silentIn(const Mode& mode) const {
    std::set<std::string> silent;
    const Outcome plain = call(mode.call);
    EXPECT_NE(plain.status, 2) << mode.what << ": " << plain.err;
    for (const OptionInHelp& option : optionsOf(mode.call.front())) {
      if (std::ranges::find(mode.call, option.name) != mode.call.end()) continue;
      Words words = mode.call;
      words.push_back(option.name);
      std::optional<std::string> out;
      if (option.takesValue) {
        const auto& from = mode.values.contains(option.name) ? mode.values : values();
        if (!from.contains(option.name)) {
          ADD_FAILURE() << "no value for " << option.name;
          continue;
        }
        const std::string& value = from.at(option.name);
        if (value.empty()) out = file("written" + option.name);
        words.push_back(out.value_or(value));
      }
      const Outcome with = call(words);
      const bool written = out && access(out->c_str(), R_OK) == 0;
      if (with.status == plain.status && with.out == plain.out && !written) silent.insert(option.name);
    }
    return silent;
  }

  void expectNoneBut(const std::vector<Mode>& modes) const {
    for (const Mode& mode : modes) {
      for (const std::string& option : silentIn(mode)) EXPECT_TRUE(mode.silent.contains(option)) << mode.what << " ignores " << option;
    }
  }

 private:
  Folder folder_;
};

const std::string kOnStderr = "is shown on stderr", kMet = "a demand that is met";

TEST_F(UnusedOptions, OfSimulateAreRefused) {
  const Words shape{"--ranks", "2", "--microbatches", "4"};
  const auto named = [&](const std::string& schedule, const Words& more = {}) {
    Words words{"simulate", "--schedule", schedule};
    words.insert(words.end(), shape.begin(), shape.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::pair<const std::string, std::string> progress{"--progress", kOnStderr}, strict{"--strict", kMet};
  const std::pair<const std::string, std::string> seconds{"--seconds", "the best order is found in less"};
  expectNoneBut({
      {"a plan", {"simulate", file("plan.json")}, {progress}},
      {"a family", named("1f1b"), {progress, strict}},
      {"a family in JSON", named("1f1b", {"--json", "--transfer", "1ms"}), {progress, strict}},
      {"a split backward", named("zbv"), {progress, strict}},
      {"slots", named("dualpipev"), {progress, strict}},
      {"forwards", named("forward-only"), {progress, strict, {"--live-limit", kMet}}},
      {"lockstep", named("lockstep"), {progress, strict}},
      {"auto", named("auto"), {progress, seconds}},
      {"a CSV", {"simulate", "--csv", file("s.csv")}, {progress, {"--letters", "the file has no W"}}},
      {"layers", named("1f1b", {"--layers", file("layers.csv")}), {progress, strict}},
      {"layers and auto", named("auto", {"--layers", file("layers.csv")}), {progress, seconds}},
      {"torch's runtime", named("1f1b", {"--runtime", "torch"}), {progress, strict, {"--receives", "block is the default"}}},
      {"Megatron", named("1f1b", {"--runtime", "megatron"}), {progress, strict, {"--no-overlap-p2p-communication", "as in Megatron"}}},
  });
}

TEST_F(UnusedOptions, OfSchedulesAreRefused) {
  const std::pair<const std::string, std::string> letters{"--letters", "the schedule has no W"}, strict{"--strict", kMet};
  const std::pair<const std::string, std::string> due{"--minimise-waits", "messages are due where they stand"};
  expectNoneBut({
      {"list", {"schedule", "list"}},
      {"a family", {"schedule", "1f1b", "--ranks", "2", "--microbatches", "4"}, {letters, strict}},
      {"split", {"schedule", "zbv", "--ranks", "2", "--microbatches", "4"}, {strict}},
      {"lower", {"lower", file("s.csv")}, {letters, due}},
      {"check", {"check", file("s.csv")}, {letters}},
  });
}

TEST_F(UnusedOptions, OfPlansAreRefused) {
  const Words estimate{"--cluster", "h100-nvlink"}, shape{"--ranks", "2", "--microbatches", "4"};
  const auto of = [&](Words words, const std::vector<Words>& more) {
    for (const Words& part : more) words.insert(words.end(), part.begin(), part.end());
    return words;
  };
  const std::map<std::string, std::string> ordered{{"--seconds", "the best order is found in less"}}, searched{{"--progress", kOnStderr}};
  const std::map<std::string, std::string> ofLayers{{"--progress", kOnStderr}, {"--no-recompute", kMet}, {"--top", "there is one plan"}};
  const std::string model = sample("gpt_small"), marked = sample("gpt_split");
  expectNoneBut({
      {"estimates", of({"plan", model}, {estimate, shape})},
      {"auto", of({"plan", model, "--schedule", "auto"}, {estimate, shape}), ordered},
      {"marks", of({"plan", marked, "--microbatches", "4"}, {estimate}), {}, {{"--balance", "memory"}}},
      {"splits", of({"plan", model, "--split", "blocks.1", "--microbatches", "4"}, {estimate})},
      {"layers", of({"plan", "--layers", file("layers.csv")}, {shape})},
      {"a search", of({"search", model, "--schedules", "1f1b"}, {estimate, shape}), searched},
      {"a search of layers", of({"search", "--layers", file("layers.csv"), "--schedules", "1f1b"}, {shape}), ofLayers},
      {"an estimate", {"profile", model, "--estimate", "h100-nvlink"}, {{"--progress", kOnStderr}}},
  });
}

TEST_F(UnusedOptions, OfExportsAreRefused) {
  std::vector<Mode> modes;
  const std::map<std::string, std::string> own{{"--trace", "nosuch.json"}, {"--store", "nosuch.db"}, {"--font", "monospace"}};
  const std::map<std::string, std::string> silent{{"--progress", kOnStderr}};
  for (const char* to : {"svg", "tikz", "csv", "html", "chrome", "layers", "megatron"})
    modes.push_back({to, {"export", file("plan.json"), "--to", to}, silent, own});
  expectNoneBut(modes);
}

TEST_F(UnusedOptions, OfReplicasAndOfSharedParametersAreRefusedWhereThereAreNone) {
  const auto refusal = [](const Words& words) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  };
  const auto ofPlan = [&](const Words& more) {
    Words words{"plan", "--layers", file("layers.csv"), "--ranks", "2", "--microbatches", "4"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words);
  };
  EXPECT_EQ(ofPlan({"--zero1"}),
            "pipewright: --zero1 spreads the optimizer's state over replicas, and the plan has one; add --replicas, or omit it.\n");
  EXPECT_EQ(ofPlan({"--same-splits"}), "pipewright: --same-splits is for replicas, and the plan has one; add --replicas, or omit it.\n");
  EXPECT_EQ(ofPlan({"--same-splits", "--replicas", "2", "--split", "l3"}),
            "pipewright: --split cuts all replicas alike; omit it or --same-splits.\n");
  EXPECT_EQ(ofPlan({"--share", "transmit"}),
            "pipewright: --share is for parameters of several stages, and layers reads each only once; omit it.\n");
  EXPECT_NE(refusal({"search", "--layers", file("layers.csv"), "--ranks", "2", "--schedules", "1f1b,auto", "--zero1"}).find("omit it"),
            std::string::npos);
  EXPECT_NE(refusal({"run", file("plan.json"), "--zero1"}).find("plan.json has one; omit it."), std::string::npos);
  // Chimera's two copies of each stage share a state, and this model's embedding is its head.
  EXPECT_EQ(planned({"--schedule", "chimera", "--zero1", "--optimizer", "adam"}).status, 0);
  EXPECT_EQ(
      call({"plan", sample("hf_gpt2"), "--cluster", "h100-nvlink", "--ranks", "2", "--microbatches", "4", "--share", "transmit"}).status,
      0);
}

}  // namespace
}  // namespace pw::test
