// The executor on a device that does enqueued work later, as a GPU does: timestamps are not times until the device is done, and live for a
// step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "backends/messages/in_memory_communicator.h"
#include "engine/live_spans.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/folder.h"
#include "tests/support/number_stage.h"

namespace pw {
namespace {

using test::NumberJob;
using test::NumberStage;

/// The device of the calling thread's rank. Marks are numbers that only it understands.
struct LateDevice {
  std::vector<Ns> times;  ///< of all timestamps ever taken
  std::size_t finished = 0, forgotten = 0;
  std::size_t mostAlive = 0;

  static constexpr std::int64_t kFirst = 1000;
  static LateDevice& current() {
    thread_local LateDevice device;
    return device;
  }
  static const Device& device() {
    static const Device device = [] {
      Device late = hostDevice();
      late.index = 0;
      late.timestamp = [] {
        LateDevice& self = current();
        self.times.push_back(monotonicNow());
        self.mostAlive = std::max(self.mostAlive, self.times.size() - self.forgotten);
        return Timestamp{kFirst + static_cast<std::int64_t>(self.times.size()) - 1};
      };
      late.timeOf = [](Timestamp timestamp) {
        const LateDevice& self = current();
        const auto index = static_cast<std::size_t>(timestamp.number - kFirst);
        if (timestamp.number < kFirst || index >= self.times.size()) throw Error("this is not a timestamp");
        if (index < self.forgotten) throw Error("this timestamp was forgotten");
        if (index >= self.finished) throw Error("the device was not done with that");
        return self.times[index];
      };
      late.forgetTimestamps = [] { current().forgotten = current().times.size(); };
      late.finish = [](std::chrono::milliseconds, const std::function<void()>&) { current().finished = current().times.size(); };
      return late;
    }();
    return device;
  }
};

const Ns kSent = monotonicNow() + Ns(3'600'000'000'000), kCame = kSent + 7;  // no clock says this yet

/// Knows when a message went, from its wait and the device's end of work to the second barrier after it.
class TimingCommunicator final : public Communicator {
 public:
  explicit TimingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] JobRank rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override { return inner_->send(to, tag, buffer); }
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override { return inner_->receive(from, tag, buffer); }
  void wait(Request request) override {
    inner_->wait(request);
    barriersSince_[request] = 0;
  }
  [[nodiscard]] std::optional<bool> isDone(Request request) override { return inner_->isDone(request); }
  [[nodiscard]] std::size_t waitAny(std::span<const Request> requests) override { return inner_->waitAny(requests); }
  void progress() override { inner_->progress(); }
  [[nodiscard]] std::optional<std::pair<Ns, Ns>> timesOf(Request request) override {
    const auto found = barriersSince_.find(request);
    const bool done = LateDevice::current().finished == LateDevice::current().times.size();
    return found == barriersSince_.end() || !done ? std::nullopt : std::optional(std::pair(kSent, kCame));
  }
  void barrier() override {
    LateDevice::device().finish({}, {});
    for (auto& [request, barriers] : barriersSince_) ++barriers;
    std::erase_if(barriersSince_, [](const auto& entry) { return entry.second == 2; });
    inner_->barrier();
  }
  void abort() noexcept override { inner_->abort(); }

 private:
  std::unique_ptr<Communicator> inner_;
  std::map<Request, int> barriersSince_;
};

struct LateRun {
  NumberJob job;
  std::vector<std::vector<StepLog>> logs;  ///< by step and rank
  std::vector<std::size_t> mostAlive;      ///< timestamps, by rank
};

LateRun runLate(const Plan& plan, int steps, const ExecutorOptions& options = {}, const std::string& live = {}) {
  LateRun run{test::prepareJob(plan), {}, {}};
  auto communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
  for (auto& communicator : communicators) communicator = std::make_unique<TimingCommunicator>(std::move(communicator));
  for (auto& rank : run.job.stages) {
    for (auto& [s, stage] : rank) stage->on = &LateDevice::device();
  }
  run.logs.assign(static_cast<std::size_t>(steps), std::vector<StepLog>(communicators.size()));
  run.mostAlive.resize(communicators.size());
  test::runJob(run.job, plan, communicators, options, [&](Executor& executor, std::size_t r) {
    std::optional<LiveWriter> writer;
    if (!live.empty()) executor.tellTo(&writer.emplace(live, JobRank(r), Ns{0}));
    for (int s = 0; s < steps; ++s) run.logs[static_cast<std::size_t>(s)][r] = executor.step(s, {});
    run.mostAlive[r] = LateDevice::current().mostAlive;
    return run.logs.back()[r];
  });
  return run;
}

bool isMessage(const Span& span) { return span.kind == SpanKind::SendForward || span.kind == SpanKind::SendBackward; }

void expectTimes(const LateRun& run, Ns begin, Ns end) {
  ASSERT_EQ(run.job.firstError(), "");
  for (const auto& step : run.logs) {
    for (std::size_t r = 0; r < step.size(); ++r) {
      EXPECT_GT(step[r].spans.size(), 0U);
      for (const Span& span : step[r].spans) {
        if (isMessage(span)) {
          EXPECT_EQ(span.start, span.rank.index() == r ? kSent : kCame) << "the transport's time was lost";
          EXPECT_EQ(span.end, span.start);
        } else {
          EXPECT_TRUE(begin <= span.start && span.start <= span.end && span.end <= end) << "no time of the device";
        }
      }
      for (const MemorySample& sample : step[r].memory) EXPECT_TRUE(begin <= sample.time && sample.time <= end);
    }
  }
}

TEST(ExecutorOnADevice, KnowsTheTimesOfAllThatALongStepInLockstepAskedFor) {
  // 300 microbatches: 302 cycles with a barrier after each, and more timestamps in a step than any pool that was not made for it.
  const Plan plan = test::chainPlan(lower(generate("lockstep", {2, 2, 300})));
  const Ns begin = monotonicNow();
  const LateRun run = runLate(plan, 3);
  expectTimes(run, begin, monotonicNow());
  const std::size_t ofAStep = 2 * 2 * 300;  // of each action when it starts and ends
  for (const std::size_t alive : run.mostAlive) {
    EXPECT_GT(alive, ofAStep);
    EXPECT_LT(alive, 3 * ofAStep) << "timestamps of earlier steps stay alive";
  }
}

TEST(ExecutorOnADevice, KnowsTheTimesInReadyOrderToo) {
  const Plan plan = test::chainPlan(lower(generate("1f1b", {2, 2, 8})));
  const Ns begin = monotonicNow();
  const LateRun run = runLate(plan, 2, {.order = Order::Ready});
  expectTimes(run, begin, monotonicNow());
}

TEST(ExecutorOnADevice, TellsAStepWhenItsTimesAreKnown) {
  const test::Folder folder;
  const Plan plan = test::chainPlan(lower(generate("1f1b", {2, 2, 4})));
  const LateRun run = runLate(plan, 2, {}, folder.file("live"));
  ASSERT_EQ(run.job.firstError(), "");
  const std::string told = test::contentOf(folder.file("live"));
  EXPECT_EQ(std::ranges::count(told, '\n'), 4) << "one line for each rank and step, although no time passes between two lines";
  LiveReader reader(2, 2);
  EXPECT_TRUE(reader.feed(told));
  EXPECT_EQ(reader.newest(), (LiveStep{1, joinTraces(run.logs[1], 2), true}));
}

TEST(ExecutorOnADevice, TellsNothingOfAStepThatFailedBeforeItsTimesWereKnown) {
  const test::Folder folder;
  const Plan plan = test::chainPlan(lower(generate("gpipe", {1, 1, 4})));
  NumberJob job = test::prepareJob(plan);
  NumberStage& stage = *job.stages[0].at(Stage(0));
  stage.on = &LateDevice::device();
  stage.failAt = "B2";
  auto communicators = inMemoryCommunicators(1, std::chrono::seconds(20));
  test::runJob(job, plan, communicators, {}, [&](Executor& executor, std::size_t) {
    LiveWriter writer(folder.file("live"), JobRank(0), 0);
    executor.tellTo(&writer);
    return executor.step(0, {});
  });
  EXPECT_THAT(job.errors[0], testing::HasSubstr("action 0B2"));
  EXPECT_EQ(test::contentOf(folder.file("live")), "");
}

}  // namespace
}  // namespace pw
