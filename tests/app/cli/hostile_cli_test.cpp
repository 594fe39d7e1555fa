// Calls nobody means: numbers out of range, names that steer terminals, files that are none.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/app/cli/call.h"
#include "tests/app/cli/job.h"

namespace pw::test {
namespace {

using Words = std::vector<std::string>;

/// Every option that takes a number, by command.
const std::vector<std::pair<Words, Words>> kNumeric = {
    {{"inspect", sample("gpt_small")}, {"--depth", "--microbatch"}},
    {{"schedule", "1f1b"}, {"--ranks", "--chunks", "--microbatches", "--group"}},
    {{"profile", sample("gpt_small")}, {"--microbatch", "--ranks", "--depth", "--threads"}},
    {{"plan", sample("gpt_small")},
     {"--ranks", "--chunks", "--microbatches", "--microbatch", "--replicas", "--batch", "--memory-limit", "--threads"}},
    {{"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "4"},
     {"--chunks", "--forward", "--backward", "--input", "--weight", "--overlap", "--latency", "--transfer", "--load", "--store",
      "--live-limit", "--memory-limit", "--slow", "--jitter"}},
    {{"simulate", "--schedule", "1f1b", "--ranks", "2", "--microbatches", "4", "--jitter", "0.1"}, {"--draws", "--seed"}},
    {{"search", sample("gpt_small")},
     {"--ranks", "--microbatches", "--batch", "--microbatch", "--replicas", "--memory-limit", "--chunks", "--top"}},
    {{"run", "plan.json"},
     {"--steps", "--lr", "--momentum", "--weight-decay", "--warmup", "--decay-steps", "--final-rate", "--clip-norm", "--save-every",
      "--seed", "--threads", "--timeout"}},
    {{"run", "plan.json", "--optimizer", "adam"}, {"--betas"}},
    {{"compare", "--store", "runs.db"}, {"--run", "--with"}},
    {{"export", "--store", "runs.db", "--to", "csv"}, {"--run", "--step"}},
    {{"demo"}, {"--ranks", "--microbatches", "--steps"}},
};

TEST(HostileOptions, NumbersThatAreNoneAreRefusedByTheOptionsName) {
  // Of each option a few, so that all meet all kinds.
  const Words nonsense = {"nan",   "inf",     "-1",  "1e400", "",  "3x", "0x10", "-inf", "99999999999999999999999999999999",
                          "-5GiB", "1e400ms", "NaN", "+-1",   "--"};
  std::size_t next = 0;
  for (const auto& [command, options] : kNumeric) {
    for (const std::string& option : options) {
      for (int i = 0; i < 3; ++i) {
        const std::string& value = nonsense[next++ % nonsense.size()];
        Words words = command;
        words.push_back(option + "=" + value);
        const Outcome outcome = call(words);
        EXPECT_EQ(outcome.status, 2) << command[0] << " " << option << "=" << value << ": " << outcome.err;
        EXPECT_NE(outcome.err.find(option), std::string::npos) << command[0] << " " << option << "=" << value << ": " << outcome.err;
        EXPECT_EQ(outcome.out, "");
      }
    }
  }
}

TEST(HostileOptions, RefusesWhatTrainedUntilNow) {
  for (const Words& option : {Words{"--lr", "nan"},
                              {"--lr", "-1"},
                              {"--lr", "inf"},
                              {"--seed", "18446744073709551616"},
                              {"--seed", "-1"},
                              {"--timeout", "nan"},
                              {"--timeout", "0"},
                              {"--clip-norm", "nan"},
                              {"--weight-decay", "inf"},
                              {"--momentum", "nan"}}) {
    const Outcome outcome = call({"run", "plan.json", option[0], option[1]});
    EXPECT_EQ(outcome.status, 2) << option[0] << option[1];
    const std::string wanted = option[0] == "--seed" ? "\" is not an integer from 0 to " : "\" is not a ";
    EXPECT_NE(outcome.err.find(option[0] + ": \"" + option[1] + wanted), std::string::npos) << outcome.err;
  }
}

TEST(HostileOptions, HelpSaysTheRange) {
  const std::string help = call({"run", "--help"}).out;
  for (const char* range : {"0 to 1000000", "0 to 2^63 - 1", "0.1 to 1000000", "1 to 1024"})
    EXPECT_NE(help.find(range), std::string::npos) << range;
}

bool holdsControl(const std::string& text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == '\x7f') return true;
  }
  return text.find("\xC2\x9B") != std::string::npos || text.find("\xE2\x80\xAE") != std::string::npos;
}

TEST(HostileNames, DoNotReachTheTerminal) {
  const Folder folder;
  const std::string name =
      "a\x1b[31m\xC2\x9B"
      "b\xE2\x80\xAE"
      "c\x7f";
  const std::string csv = folder.with(name + ".csv", "0F0,0B0\n");
  const Outcome checked = call({"check", csv});
  EXPECT_EQ(checked.status, 0);
  EXPECT_FALSE(holdsControl(checked.out)) << checked.out;
  EXPECT_NE(checked.out.find("a\\u001b[31m\\u009bb\\u202ec\\u007f"), std::string::npos) << checked.out;
  const Outcome missing = call({"simulate", folder.file(name + "d.json")});
  EXPECT_EQ(missing.status, 2);
  EXPECT_FALSE(holdsControl(missing.err)) << missing.err;
  const Outcome unknown = call({"schedule", name, "--ranks", "2", "--microbatches", "2"});
  EXPECT_FALSE(holdsControl(unknown.err)) << unknown.err;
  const Outcome json = call({"check", csv, "--json"});
  EXPECT_FALSE(holdsControl(json.out)) << json.out;
  EXPECT_EQ(nlohmann::json::parse(json.out).at("schedule"), name) << "the document means the same";
}

TEST(HostileNames, OfAPlanAreShownButNotObeyed) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  ASSERT_EQ(
      call({"plan", sample("gpt_small"), "--ranks", "2", "--microbatches", "4", "--cluster", "cpu-workstation", "--out", plan}).status, 0);
  auto json = nlohmann::ordered_json::parse(contentOf(plan));
  json["schedule"]["name"] = "x\x1b]0;owned\x07y";
  json["model"] = "m\x1b[2J";
  (void)folder.with("plan.json", json.dump());
  for (const Words& words :
       {Words{"simulate", plan}, {"simulate", plan, "--json"}, {"export", plan, "--to", "torch", "--out", folder.file("out")}}) {
    const Outcome outcome = call(words);
    EXPECT_NE(outcome.status, -1) << "ended by a signal";
    EXPECT_FALSE(holdsControl(outcome.out + outcome.err)) << outcome.out << outcome.err;
  }
}

TEST(HostileFiles, DeepNestingIsRefusedByEveryCommandThatReadsJson) {
  const Folder folder;
  const std::string deep = folder.with("deep.json", std::string(117'000, '['));
  const std::string csv = folder.with("s.csv", "0F0,0B0\n");
  const std::string model = sample("gpt_small");
  for (const Words& words : {Words{"simulate", deep},
                             {"run", deep},
                             {"export", deep, "--to", "torch", "--out", folder.file("o")},
                             {"check", csv, "--sizes", deep},
                             {"plan", model, "--ranks", "2", "--microbatches", "4", "--cluster", deep},
                             {"plan", model, "--ranks", "2", "--microbatches", "4", "--profile", deep},
                             {"simulate", "--schedule", "1f1b", "--costs", deep},
                             {"export", "--trace", deep, "--to", "csv"}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << words[0] << " " << outcome.err;
    EXPECT_NE(outcome.err.find("deep.json"), std::string::npos) << outcome.err;
  }
}

TEST(HostileFiles, ThatAreNoFilesAreSaidToBeNone) {
  const Folder folder;
  const std::string none = folder.file("none.json"), here = std::filesystem::path(none).parent_path().string();
  for (const auto& [words, said] :
       std::vector<std::pair<Words, std::string>>{{{"runs", "--store", here}, "is a folder; give a file in it"},
                                                  {{"gate", "--store", here, "--against", here}, "is a folder; give a file in it"},
                                                  {{"hang", "/dev/null"}, "/dev/null is not a file"},
                                                  {{"plan", "--layers", none, "--ranks", "2"}, none + " does not exist"},
                                                  {{"plan", "--layers", "nosuch", "--ranks", "2"}, "pipewright: nosuch does not exist"}}) {
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 2) << words[0] << " " << outcome.err;
    EXPECT_NE(outcome.err.find(said), std::string::npos) << outcome.err;
  }
}

/// What `name` has in the last whole line of progress; 0: there is none yet.
std::int64_t progressOf(const std::string& lines, const char* name) {
  const std::size_t end = lines.rfind("}\n");
  if (end == std::string::npos) return 0;
  const std::size_t begin = lines.rfind('{', end);
  return nlohmann::json::parse(lines.substr(begin, end + 1 - begin)).at(name);
}

TEST(CtrlC, EndsTheDrawsOfASimulationWithThoseThereAre) {
  Job job({"simulate", "--schedule", "1f1b", "--ranks", "8", "--microbatches", "256", "--jitter", "0.2", "--draws", "1000000", "--progress",
           "json", "--json"});
  ASSERT_TRUE(eventually([&] { return progressOf(job.errSoFar(), "done") > 0; }, kLong)) << job.errSoFar();
  const std::int64_t least = progressOf(job.errSoFar(), "done");
  ::kill(job.pid(), SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_NE(outcome.err.find(" of 1000000 draws were made"), std::string::npos) << outcome.err;
  const std::int64_t draws = nlohmann::json::parse(outcome.out).at("jitter").at("draws");
  EXPECT_TRUE(least <= draws && draws < 1'000'000) << draws;
}

/// Whether the program runs as this process and handles a signal itself.
bool handles(pid_t pid, int signal) {
  const std::string status = contentOf("/proc/" + std::to_string(pid) + "/status");
  const std::size_t at = status.find("SigCgt:");
  return status.starts_with("Name:\tpipewright\n") && at != std::string::npos &&
         ((std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1)) & 1U) != 0;
}

// Its one draw is its last: the program stands at a progress line that nobody reads yet when the signal comes.
TEST(CtrlC, AfterTheLastDrawIsNotLost) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Folder folder;
    const std::string fifo = folder.file("err");
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    const int lines = ::open(fifo.c_str(), O_RDWR | O_NONBLOCK);
    ASSERT_GE(lines, 0);
    while (::write(lines, "x", 1) == 1) continue;  // until it is full
    Job job({"-c", "exec \"$0\" simulate --schedule 1f1b --ranks 2 --microbatches 4 --jitter 0.2 --draws 1 --progress json --json 2>\"$1\"",
             PIPEWRIGHT, fifo},
            {.environment = {}, .program = "/bin/sh"});
    EXPECT_TRUE(eventually([&] { return handles(job.pid(), signal); }, kLong));
    ::kill(job.pid(), signal);
    std::array<char, 4096> part{};
    std::string err;
    const auto read = [&] {
      for (ssize_t n = 0; (n = ::read(lines, part.data(), part.size())) > 0;) err.append(part.data(), static_cast<std::size_t>(n));
      return !alive(job.pid());
    };
    EXPECT_TRUE(eventually(read, kLong));
    const Outcome outcome = job.wait();
    static_cast<void>(read());
    ::close(lines);
    EXPECT_EQ(outcome.status, 1) << err.substr(err.find_last_of('x') + 1);
    EXPECT_NE(err.find("Interrupted: 1 of 1 draws were made"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(outcome.out).at("jitter").at("draws"), 1);
  }
}

#ifdef PIPEWRIGHT_GUI
/// The app without a display.
Outcome callApp(const std::string& arguments) {
  const Folder folder;
  const std::string line = "env -u DISPLAY -u WAYLAND_DISPLAY QT_QPA_PLATFORM=xcb HOME=" + folder.file("") + " " PIPEWRIGHT_GUI " " +
                           arguments + " > " + folder.file("out") + " 2> " + folder.file("err");
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contentOf(folder.file("out")), contentOf(folder.file("err"))};
}

TEST(AppWithoutADisplay, AnswersItsCommandLine) {
  const Outcome help = callApp("--help");
  EXPECT_EQ(help.status, 0) << help.err;
  EXPECT_NE(help.out.find("--grab"), std::string::npos) << help.out;
  EXPECT_EQ(callApp("--version").status, 0);
  for (const char* wrong :
       {"--no-such-option", "--size 3x3", "--size nonsense", "--theme pink", "--show-run abc", "--show-run -1", "--grab"}) {
    const Outcome outcome = callApp(wrong);
    EXPECT_EQ(outcome.status, 2) << wrong << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("pipewright-gui: "), std::string::npos) << outcome.err;
  }
}

TEST(AppWithoutADisplay, SaysSoInsteadOfAborting) {
  const Outcome outcome = callApp("");
  EXPECT_EQ(outcome.status, 2) << outcome.err;
  EXPECT_NE(outcome.err.find("No window can be opened here"), std::string::npos) << outcome.err;
}

TEST(AppWithoutItsResources, SaysSoInsteadOfAborting) {
  const Folder folder;
  const std::string moved = folder.file("pipewright-gui"), picture = folder.file("window.png");
  std::filesystem::copy_file(PIPEWRIGHT_GUI, moved);
  const std::string before = "env -u PIPEWRIGHT_RESOURCES QT_QPA_PLATFORM=offscreen LD_LIBRARY_PATH=" +
                             std::filesystem::path(PIPEWRIGHT_GUI).parent_path().string() + "/../lib HOME=" + folder.file("") + " ";
  for (const std::string& arguments : {"--grab " + picture, std::string("--time-first-frame")}) {
    const std::string line = before + moved + " " + arguments + " > /dev/null 2> " + folder.file("err");
    const int status = std::system(line.c_str());
    const std::string said = contentOf(folder.file("err"));
    ASSERT_TRUE(WIFEXITED(status)) << said;
    EXPECT_EQ(WEXITSTATUS(status), 2) << said;
    EXPECT_EQ(said.find("pipewright-gui: The files that come with this program are not in "), 0U) << said;
    EXPECT_NE(said.find("PIPEWRIGHT_RESOURCES"), std::string::npos) << said;
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  }
}
#endif

}  // namespace
}  // namespace pw::test
