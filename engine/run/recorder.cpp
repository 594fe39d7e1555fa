#include "engine/run/recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

}  // namespace

RunRecorder::RunRecorder(std::size_t ranksOfPipeline, Keep keep, std::function<void(const std::string&)> tell)
    : ranksOfPipeline_(ranksOfPipeline), keep_(std::move(keep)), tell_(std::move(tell)), thread_([this] { run(); }) {}

RunRecorder::~RunRecorder() { close(); }

void RunRecorder::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RunRecorder::add(int step, std::vector<StepLog> ranks) {
  Waiting waiting{step, std::move(ranks), 0};
  waiting.bytes = bytesOf(waiting.ranks);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || waitingBytes_ < kMostWaiting; });
    if (failure_) return;  // `finish` tells
    waitingBytes_ += waiting.bytes;
    waiting_.push_back(std::move(waiting));
  }
  changed_.notify_all();
}

void RunRecorder::finish() {
  close();
  if (failure_) std::rethrow_exception(failure_);
}

void RunRecorder::keepBatch(const std::vector<Waiting>& batch) {
  std::vector<StepRecord> steps;
  steps.reserve(batch.size());
  for (const Waiting& waiting : batch) {
    StepRecord& step = steps.emplace_back();
    step.step = waiting.step;
    for (const StepLog& rank : waiting.ranks) step.loss += rank.loss.value_or(0);
    step.gradientNorm = waiting.ranks.front().gradientNorm;
    step.measured = joinTraces(waiting.ranks, ranksOfPipeline_);
  }
  keep_(steps);
}

void RunRecorder::run() {
  for (;;) {
    std::vector<Waiting> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      batch.swap(waiting_);
      waitingBytes_ = 0;
    }
    changed_.notify_all();
    const auto start = Clock::now();
    try {
      keepBatch(batch);
    } catch (const std::exception& problem) {  // a thread's entry; `finish` throws it again
      {
        const std::scoped_lock lock(mutex_);
        failure_ = std::current_exception();
      }
      changed_.notify_all();
      tell_(causeOf(problem));
      return;
    }
    const auto pause = std::min<Clock::duration>(kPauses * (Clock::now() - start), kLongestPause);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [&] { return closed_ || waitingBytes_ >= kMostWaiting / 2; });
  }
}

}  // namespace pw
