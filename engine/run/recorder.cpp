#include "engine/run/recorder.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "engine/processes/failure.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

/// Handing on costs time per batch (a transaction) and the thread may share a core with a rank: short steps wait for more to come.
constexpr int kPauses = 20;                              // times as long as the last batch took
constexpr std::chrono::milliseconds kLongestPause{100};  // a rank that is killed takes with it what waits

std::size_t bytesOf(const std::vector<StepLog>& ranks) {
  std::size_t bytes = sizeof(StepLog) * ranks.size();
  for (const StepLog& log : ranks) bytes += log.spans.size() * sizeof(Span) + log.memory.size() * sizeof(MemorySample);
  return bytes;
}

struct Waiting {
  int step = 0;
  std::vector<StepLog> ranks;
  std::size_t bytes = 0;
};

}  // namespace

/// Shared with the thread, which may hang in `keep` when the recorder is gone.
struct RunRecorder::State {
  const std::size_t ranksOfPipeline;
  const Keep keep;
  const std::function<void(const std::string&)> tell;
  const RecordTarget target;
  std::mutex mutex{};
  std::condition_variable changed{};
  std::vector<Waiting> waiting{};
  std::size_t waitingBytes = 0;
  std::optional<int> lastKept{};  ///< step
  bool closed = false;
  bool ended = false;  ///< the thread
  bool hangs = false;  ///< nobody waits for the thread any more
  std::exception_ptr failure{};

  void run();
  void keepBatch(const std::vector<Waiting>& batch) const;
  [[nodiscard]] std::string giveUp();
};

RunRecorder::RunRecorder(std::size_t ranksOfPipeline, Keep keep, std::function<void(const std::string&)> tell, RecordTarget target)
    : state_(std::make_shared<State>(ranksOfPipeline, std::move(keep), std::move(tell), std::move(target))),
      thread_([state = state_] { state->run(); }) {}

RunRecorder::~RunRecorder() { close(); }

/// With the lock. What the user reads.
std::string RunRecorder::State::giveUp() {
  const double seconds = std::chrono::duration<double>(target.deadline).count();
  const std::string kept = lastKept ? fmt::format("steps up to {} are kept, and later ones are not", *lastKept) : "no step is kept";
  const std::string sentence =
      fmt::format("{} has not taken a step for {:g} s (its disk or network hangs): {}", target.name, seconds, kept);
  hangs = true;
  waiting.clear();
  failure = std::make_exception_ptr(Error(sentence));
  return sentence;
}

/// Waits for the thread as long as batch after batch is kept in time; leaves it where one is not.
void RunRecorder::close() {
  if (!thread_.joinable()) return;
  std::string sentence;
  {
    std::unique_lock lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
    while (!state_->hangs) {
      const std::optional<int> before = state_->lastKept;
      if (state_->changed.wait_for(lock, state_->target.deadline, [&] { return state_->ended; })) break;
      if (state_->lastKept == before) sentence = state_->giveUp();
    }
  }
  state_->hangs ? thread_.detach() : thread_.join();
  if (!sentence.empty()) state_->tell(sentence);
}

void RunRecorder::add(int step, std::vector<StepLog> ranks) {
  Waiting waiting{step, std::move(ranks), 0};
  waiting.bytes = bytesOf(waiting.ranks);
  State& s = *state_;
  std::string sentence;
  {
    std::unique_lock lock(s.mutex);
    const bool inTime = s.changed.wait_for(lock, s.target.deadline, [&] { return s.failure || s.waitingBytes < kMostWaiting; });
    if (!inTime) sentence = s.giveUp();
    if (!s.failure) {  // else `finish` tells
      s.waitingBytes += waiting.bytes;
      s.waiting.push_back(std::move(waiting));
    }
  }
  s.changed.notify_all();
  if (!sentence.empty()) s.tell(sentence);
}

void RunRecorder::finish() {
  close();
  if (state_->failure) std::rethrow_exception(state_->failure);
}

bool RunRecorder::hangs() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->hangs;
}

void RunRecorder::State::keepBatch(const std::vector<Waiting>& batch) const {
  std::vector<StepRecord> steps;
  steps.reserve(batch.size());
  for (const Waiting& one : batch) {
    StepRecord& step = steps.emplace_back();
    step.step = one.step;
    for (const StepLog& rank : one.ranks) step.loss += rank.loss.value_or(0);
    step.gradientNorm = one.ranks.front().gradientNorm;
    step.measured = joinTraces(one.ranks, ranksOfPipeline);
  }
  keep(steps);
}

void RunRecorder::State::run() {
  for (;;) {
    std::vector<Waiting> batch;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return closed || !waiting.empty(); });
      if (waiting.empty()) {
        ended = true;
        changed.notify_all();
        return;
      }
      batch.swap(waiting);
      waitingBytes = 0;
    }
    changed.notify_all();
    const auto start = Clock::now();
    std::exception_ptr problem;
    try {
      keepBatch(batch);
    } catch (const std::exception&) {  // a thread's entry; `finish` throws it again
      problem = std::current_exception();
    }
    std::unique_lock lock(mutex);
    if (hangs) return;  // it came back too late: the recorder has given up, and may be gone
    if (!problem) lastKept = batch.back().step;
    failure = problem;
    ended = problem != nullptr;
    changed.notify_all();
    if (problem) break;
    const auto pause = std::min<Clock::duration>(kPauses * (Clock::now() - start), kLongestPause);
    changed.wait_for(lock, pause, [&] { return closed || waitingBytes >= kMostWaiting / 2; });
  }
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& problem) {
    tell(causeOf(problem));
  }
}

}  // namespace pw
