// Our CSV files run in torch's own pipeline runtime and train to the losses of one process (torch_runtime.py: two processes, Gloo).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 2;  // as in the script
/// For the whole script [s]; it needs about 15 on two cores. `timeout` ends its processes with it.
constexpr int kDeadline = 120;

/// A folder of CSV files for the script, removed at the end.
class Cases {
 public:
  Cases() : folder_(fs::temp_directory_path() / ("pipewright-torch-runtime-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  Cases(const Cases&) = delete;
  Cases& operator=(const Cases&) = delete;
  ~Cases() { fs::remove_all(folder_); }

  void add(const std::string& file, const Schedule& schedule, std::string_view form) {
    std::ofstream(folder_ / file, std::ios::binary) << toCsv(schedule);
    list_ << file << ' ' << form << ' ';
    for (const char* separator = ""; const Rank rank : schedule.placement.rankOfStage) {
      list_ << separator << rank.value;
      separator = ",";
    }
    list_ << ' ' << schedule.microbatches << '\n';
    files_.push_back(file);
  }

  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  /// What the script says of each file: `ok`, `failed` and so on, to the end of the line.
  [[nodiscard]] std::map<std::string, std::string> run() const {
    std::ofstream(folder_ / "cases.txt") << list_.str();
    const std::string command = "timeout -k 1 " + std::to_string(kDeadline) +
                                " " PW_PYTHON " -B -W ignore " PW_SOURCE_DIR "/tests/schedules/torch_runtime.py " + folder_.string() +
                                " 2>" + (folder_ / "errors.txt").string();
    std::map<std::string, std::string> verdicts;
    std::string text;
    std::FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return verdicts;
    std::array<char, 4096> buffer{};
    for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
    const int status = pclose(pipe);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t name = line.find(' ') + 1, end = line.find(':');
      if (end != std::string::npos) verdicts[line.substr(name, end - name)] = line;
    }
    EXPECT_EQ(status, 0) << std::ifstream(folder_ / "errors.txt").rdbuf();
    return verdicts;
  }

 private:
  fs::path folder_;
  std::ostringstream list_;
  std::vector<std::string> files_;
};

struct Family {
  std::string_view name;
  int chunks;
};

/// A schedule as torch lowers it itself, and with messages in the orders we know.
void addForms(Cases& cases, const Family& family, int microbatches) {
  const Schedule whole = generate(family.name, {kRanks, kRanks * family.chunks, microbatches});
  const std::string stem = std::string(family.name) + "_V" + std::to_string(family.chunks) + "_M" + std::to_string(microbatches);
  cases.add(stem + "_compute.csv", whole, "compute_only");
  cases.add(stem + "_torch.csv", lower(whole, Lowering::Torch), "compute_comms");
  cases.add(stem + "_torch-runtime.csv", lower(whole, Lowering::TorchRuntime), "compute_comms");
  cases.add(stem + "_deferred.csv", lower(whole, Lowering::Deferred), "compute_comms");
}

void expectAllTrain(const Cases& cases) {
  const auto verdicts = cases.run();
  for (const std::string& file : cases.files()) {
    const auto verdict = verdicts.find(file);
    ASSERT_NE(verdict, verdicts.end()) << file << " was not reached";
    EXPECT_TRUE(verdict->second.starts_with("ok ")) << verdict->second;
  }
}

TEST(TorchRuntime, TrainsToTheLossOfOneProcessInTheOrderOfEveryLoopSchedule) {
  ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
  Cases cases;
  for (const Family family : {Family{"gpipe", 1},
                              {"1f1b", 1},
                              {"interleaved-1f1b", 2},
                              {"looped-bfs", 2},
                              {"zb-h1", 1},
                              {"zb-h2", 1},
                              {"interleaved-zb", 1},
                              {"interleaved-zb", 2},
                              {"lockstep", 1}}) {
    for (const int microbatches : {4, 5}) addForms(cases, family, microbatches);
  }
  expectAllTrain(cases);
}

/// Without the exchange before the first step, which Gloo cannot do within a rank: see the script.
TEST(TorchRuntime, LoadsValidatesAndTrainsInTheOrderOfEveryVAndWaveSchedule) {
  ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
  Cases cases;
  for (const Family family : {Family{"zbv", 2}, {"dualpipev", 2}, {"v-half", 2}, {"v-min", 2}, {"hanayo", 2}, {"hanayo", 4}}) {
    for (const int microbatches : {4, 5}) addForms(cases, family, microbatches);
  }
  expectAllTrain(cases);
}

/// What the tests above rest on: the script sees microbatches that changed places, which torch's runtime does not, and continues after a
/// failure.
TEST(TorchRuntime, TrainsToAnotherLossWhereTwoMessagesAreSwapped) {
  ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
  const std::string receiver = "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
  const auto withFirstRow = [&](const std::string& row) {
    return parseCsv(row + ",0RECV_B0,0B0,0RECV_B1,0B1\n" + receiver, "gpipe", "test");
  };
  const Schedule right = withFirstRow("0F0,0SEND_F0,0F1,0SEND_F1"), swapped = withFirstRow("0F0,0F1,0SEND_F1,0SEND_F0"),
                 early = withFirstRow("0SEND_F0,0F0,0F1,0SEND_F1");
  EXPECT_TRUE(check(right).empty());
  EXPECT_FALSE(check(swapped).empty());
  EXPECT_FALSE(check(early).empty());
  Cases cases;
  cases.add("swapped.csv", swapped, "compute_comms");
  cases.add("early.csv", early, "compute_comms");
  cases.add("right.csv", right, "compute_comms");
  auto verdicts = cases.run();
  EXPECT_NE(verdicts["swapped.csv"].find(": AssertionError: step 0: "), std::string::npos)
      << verdicts["swapped.csv"];  // of the first to see it
  EXPECT_TRUE(verdicts["early.csv"].starts_with("failed early.csv: rank 0: KeyError")) << verdicts["early.csv"];
  EXPECT_TRUE(verdicts["right.csv"].starts_with("ok right.csv: mean losses")) << verdicts["right.csv"];
}

}  // namespace
}  // namespace pw
