#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>

#include "engine/autograd/pass_message.h"
#include "tests/engine/workers/loss_trials.h"
#include "tests/support/counts.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;

constexpr int kAtOnce = 6;
constexpr auto kLongest = std::chrono::milliseconds(40s);  // of a trial, far above what any needs on a busy machine

std::string nameOf(const Trial& trial) {
  return std::string(pw::nameOf(trial.transport)) + ": worker" + std::to_string(trial.worker) + " " + nameOf(trial.harm) + " at " +
         nameOf(trial.step) + " " + std::to_string(trial.nth);
}

/// For each step that a worker takes, its first ones: those of jobs to which nothing happens.
std::vector<Trial> allTrials(Transport transport) {
  const TrialResult quiet = runTrials({{.transport = transport, .harm = Harm::None}}, 1, kLongest).front();
  std::vector<Trial> trials;
  for (int worker = 0; worker < kTrialWorkers; ++worker) {
    const WorkerEnd& end = quiet.ends[static_cast<std::size_t>(worker)];
    EXPECT_TRUE(end.well) << end.problem;
    std::map<ProtocolStep, int> counts;
    for (const ProtocolStep& step : end.sent) ++counts[step];
    for (const auto& [step, count] : counts) {
      if (step.kind == MessageKind::Lost) continue;             // of one that ended well before this worker heard of the end
      const bool depends = step.kind == MessageKind::Shutdown;  // how many rounds there are
      for (int nth = 1; nth <= std::min(count, depends ? 2 : 4); ++nth) {
        for (const Harm harm : {Harm::Kill, Harm::Stop, Harm::Drop}) trials.push_back({transport, harm, worker, step, nth});
      }
    }
  }
  return trials;
}

std::string workerName(int worker) { return "worker" + std::to_string(worker); }
bool names(const std::string& problem, const std::set<int>& workers) {
  return std::any_of(workers.begin(), workers.end(), [&](int worker) { return problem.find(workerName(worker)) != std::string::npos; });
}

/// Whether a job cannot end well without this message. What others would end, goes with its process; nobody may wait for a result.
bool isNeeded(const ProtocolStep& step) {
  if (step.kind == MessageKind::GiveBack || step.kind == MessageKind::Result) return false;
  if (step.kind != MessageKind::Autograd) return true;
  const auto pass = static_cast<PassStep>(step.detail);
  return pass != PassStep::Joined && pass != PassStep::Release && pass != PassStep::End;
}

/// What is wrong with how a trial ended; empty: nothing.
std::string faultOf(const Trial& trial, const TrialResult& result) {
  const bool isEnd = trial.step == ProtocolStep{MessageKind::Shutdown, 2};  // for who got it, the job has ended well
  bool anyProblem = false;
  for (int worker = 0; worker < kTrialWorkers; ++worker) {
    const WorkerEnd& end = result.ends[static_cast<std::size_t>(worker)];
    const bool isHarmed = result.to >= 0 && worker == trial.worker;
    if (isHarmed && trial.harm != Harm::Drop) continue;
    if (!end.inTime) return workerName(worker) + " did not end";
    if (!end.well && end.problem.empty()) return workerName(worker) + " was ended by signal " + std::to_string(end.signal);
    anyProblem |= !end.well;
    if (result.to < 0 && !end.well) return workerName(worker) + " has a problem, though nothing happened: " + end.problem;
    if (result.to < 0 || (end.well && (isEnd || trial.harm == Harm::Drop))) continue;
    // Who loses a message ends with what it waits for, naming an end of its way; the others lose that worker then.
    std::set<int> right{trial.worker};
    if (trial.harm == Harm::Drop) right.insert({result.to, 0});
    if (trial.harm == Harm::Drop && worker == 0) right = {trial.worker, result.to};
    if (end.well) return workerName(worker) + " ended well";
    if (!names(end.problem, right)) return workerName(worker) + " names somebody else: " + end.problem;
  }
  const bool mayBoth = trial.step.kind == MessageKind::Result;
  if (trial.harm == Harm::Drop && result.to >= 0 && !mayBoth && anyProblem != isNeeded(trial.step))
    return anyProblem ? "a problem, though the message is not needed" : "no problem, though a message was lost";
  return "";
}

/// How many trials of each transport, by PW_LOSS_TRIALS.
std::size_t count() { return countFrom("PW_LOSS_TRIALS", 15); }

class Losses : public testing::TestWithParam<Transport> {};

TEST_P(Losses, AtAnyMessageEndAllOtherWorkersWhoNameTheRightOne) {
  const std::vector<Trial> all = allTrials(GetParam());
  std::vector<Trial> chosen;
  const std::size_t most = std::min(count(), all.size());
  for (std::size_t i = 0; i < most; ++i) chosen.push_back(all[i * all.size() / most]);
  const std::vector<TrialResult> results = runTrials(chosen, kAtOnce, kLongest);
  std::size_t held = 0, happened = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::string fault = faultOf(chosen[i], results[i]);
    EXPECT_EQ(fault, "") << nameOf(chosen[i]) << (results[i].to < 0 ? std::string() : ", to " + workerName(results[i].to));
    held += fault.empty() ? 1 : 0;
    happened += results[i].to >= 0 ? 1 : 0;
  }
  std::cout << held << " of " << chosen.size() << " trials held, of " << all.size() << "; it happened in " << happened << '\n';
  EXPECT_GE(happened, chosen.size() * 9 / 10) << "most messages are sent in every run";
}

INSTANTIATE_TEST_SUITE_P(Transports, Losses, testing::Values(Transport::Ucx, Transport::Gloo),
                         [](const auto& test) { return std::string(pw::nameOf(test.param)); });

}  // namespace
}  // namespace pw::test
