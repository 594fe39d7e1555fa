#include "engine/planning/study_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "backends/host/contents.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "engine/planning/study_worker.h"
#include "simulator/text/digest.h"
#include "simulator/text/parallel_for.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBlock = 32;  ///< points that one thread does in a row, as neighbours share schedules
constexpr auto kStoreEvery = std::chrono::milliseconds(500);
constexpr std::size_t kMostWaiting = 10'000;  ///< rows that are not stored yet

/// Rows on their way into the store.
class Collector {
 public:
  Collector(StudyStore& store, const StudyEffort& effort, std::int64_t done, std::int64_t all)
      : store_(store), effort_(effort), done_(done), all_(all) {}

  void add(StudyRow row) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(row));
    ++done_;
    if (waiting_.size() >= kMostWaiting || Clock::now() - last_ >= kStoreEvery) store();
    if (effort_.shouldContinue && !effort_.shouldContinue(done_, all_)) ended_ = true;
  }
  /// Between rows: polls, and stores what waits for long.
  bool shouldContinue() {
    const std::lock_guard lock(mutex_);
    if (Clock::now() - last_ >= kStoreEvery) store();
    if (effort_.shouldContinue && !effort_.shouldContinue(done_, all_)) ended_ = true;
    return !ended_;
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    store();
  }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool complete() const { return done_ == all_; }

 private:
  void store() {
    if (waiting_.empty()) return;
    store_.add(waiting_);
    if (effort_.stored) effort_.stored(waiting_);
    waiting_.clear();
    last_ = Clock::now();
  }

  StudyStore& store_;
  const StudyEffort& effort_;
  std::mutex mutex_;  ///< of all below
  std::vector<StudyRow> waiting_;
  std::int64_t done_, all_;
  Clock::time_point last_ = Clock::now();
  std::atomic<bool> ended_{false};
};

}  // namespace

std::string studyInputs(const Study& study, const std::string& folder) {
  std::string inputs;
  const auto add = [&](const std::string& name, const std::string& path) {
    inputs += fmt::format("{} {}\n", name, path.ends_with(".json") ? hex(sha256(readFile(path))) : contentsOf(path));
  };
  for (const std::string& model : study.models) add(model, studyPath(folder, model));
  for (const std::string& profile : study.profiles) add(profile, studyPath(folder, profile));
  for (const std::string& cluster : study.clusters) {
    if (!isClusterFile(cluster)) continue;
    const std::string file = clusterFile(folder, cluster);
    add(cluster, file);
    std::set<std::string> profiles;
    for (const RankSpec& rank : loadCluster(file).topology.ranks) {
      if (rank.own.exists() && profiles.insert(rank.own.file).second) add(rank.own.file, rank.own.file);
    }
  }
  return inputs;
}

bool runStudy(StudyStore& store, const StudyEffort& effort) {
  const Study& study = store.study();
  const std::int64_t points = pointsOf(study);
  const std::vector<bool> done = store.done();
  std::int64_t all = 0, before = 0;
  for (std::int64_t point = 0; point < points; ++point) {
    if (!effort.shard.has(point)) continue;
    ++all;
    before += done[static_cast<std::size_t>(point)] ? 1 : 0;
  }
  StudyCosts costs(study, effort.folder);
  Collector collector(store, effort, before, all);
  const std::int64_t span = kBlock * effort.shard.count;
  const int threads = effort.threads > 0 ? effort.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  try {
    parallelFor(static_cast<int>((points + span - 1) / span), threads, [&](int block) {
      StudyWorker worker(study, costs, [&] { return collector.shouldContinue(); });
      const std::int64_t end = std::min(points, (block + 1) * span);
      for (std::int64_t number = block * span; number < end && !collector.ended(); ++number) {
        if (!effort.shard.has(number) || done[static_cast<std::size_t>(number)]) continue;
        const StudyPoint point = pointOf(study, number);
        StudyResult result = worker.run(point);
        if (!collector.ended()) collector.add({point, std::move(result)});
      }
    });
  } catch (...) {  // of a model that cannot be read, or of `shouldContinue`: the rows that ended before are kept
    collector.finish();
    throw;
  }
  collector.finish();
  return collector.complete();
}

}  // namespace pw
