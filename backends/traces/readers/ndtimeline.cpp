#include "backends/traces/readers/ndtimeline.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/traces/events/events.h"
#include "backends/traces/readers/time_text.h"
#include "backends/traces/readers/window_objects.h"
#include "backends/traces/readers/windows.h"
#include "schedules/error.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

namespace json = simdjson::ondemand;

constexpr std::size_t kMostKinds = 4096, kMostTracks = 1'000'000, kLongestName = 200;
constexpr std::int64_t kMostSteps = 1'000'000'000'000;

/// One event as it stands in the file: tokens, strings without their quotes. Valid as long as its window.
struct OperationEvent {
  std::string_view name, process, thread, start, duration, argumentName;
  char phase = 0;
  std::int64_t step = -1, chunk = -1, microbatch = -1;
};

void readOperationArguments(json::value value, OperationEvent& event) {
  json::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return;
  for (auto member : object) {
    json::raw_json_string key;
    json::value content;
    if (member.key().get(key) != simdjson::SUCCESS || member.value().get(content) != simdjson::SUCCESS) return;
    const auto number = [&](std::int64_t& target) { target = numberOf<std::int64_t>(bare(content.raw_json_token())).value_or(-1); };
    if (isNamed(key, "name")) event.argumentName = bare(content.raw_json_token());
    if (isNamed(key, "step")) number(event.step);
    if (isNamed(key, "model_chunk")) number(event.chunk);
    if (isNamed(key, "mb_id")) number(event.microbatch);
  }
}

/// Reads one object; an error of simdjson where its text is broken.
simdjson::error_code readOperation(json::object& object, OperationEvent& event) {
  for (auto member : object) {
    json::raw_json_string key;
    json::value value;
    if (const auto problem = member.key().get(key)) return problem;
    if (const auto problem = member.value().get(value)) return problem;
    const auto take = [&](std::string_view& into) { into = bare(value.raw_json_token()); };
    if (isNamed(key, "name")) take(event.name);
    if (isNamed(key, "pid")) take(event.process);
    if (isNamed(key, "tid")) take(event.thread);
    if (isNamed(key, "ts")) take(event.start);
    if (isNamed(key, "dur")) take(event.duration);
    if (isNamed(key, "args")) readOperationArguments(value, event);
    if (isNamed(key, "ph")) {
      const std::string_view phase = bare(value.raw_json_token());
      event.phase = phase.size() == 1 ? phase.front() : '?';
    }
  }
  return simdjson::SUCCESS;
}

/// The number after a word: 3 after `PP rank ` in `PP rank 3, TP rank 0, compute`; −1 where there is none from 0 to `most`.
std::int32_t numberAfter(std::string_view text, std::string_view word, std::int32_t most) {
  const std::size_t at = text.find(word);
  if (at == std::string_view::npos) return -1;
  text.remove_prefix(at + word.size());
  std::int32_t number = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end != text.data() && number >= 0 && number <= most ? number : -1;
}

class NdReader {
 public:
  bool read(const std::string& path, const std::function<bool(std::uint64_t)>& advance);
  [[nodiscard]] NdEvents finish();

 private:
  struct Track {
    std::int32_t process = 0;  ///< in `replicas_`
    std::size_t file = 0;
    std::int32_t pipeline = -1, tensor = -1;
  };
  void readWindow(std::string_view events, EventWindows& windows, const std::string& path);
  void take(const OperationEvent& event);
  std::int32_t processOf(std::string_view process);
  std::int32_t trackOf(const OperationEvent& event);

  json::parser parser_;
  NdEvents events_;
  std::string prefix_;  ///< of the keys of a file: its number
  std::unordered_map<std::string, std::int32_t> processes_, tracks_, kinds_;
  std::vector<std::int32_t> replicas_;  ///< by process: of its name, else its number
  std::vector<Track> tracksFound_;
  std::string lastKey_;
  std::int32_t lastTrack_ = -1;
  std::size_t files_ = 0;
};

std::int32_t NdReader::processOf(std::string_view process) {
  const auto [at, isNew] = processes_.try_emplace(prefix_ + std::string(process), static_cast<std::int32_t>(replicas_.size()));
  if (isNew) {
    const auto number = numberOf<std::int32_t>(process);
    replicas_.push_back(number && *number >= 0 && *number < kMaxRanks ? *number : 0);
  }
  return at->second;
}

std::int32_t NdReader::trackOf(const OperationEvent& event) {
  std::string key = prefix_;
  key.append(event.process).append("/").append(event.thread);
  if (key == lastKey_) return lastTrack_;
  const auto [at, isNew] = tracks_.try_emplace(key, static_cast<std::int32_t>(tracksFound_.size()));
  if (isNew) {
    if (tracksFound_.size() >= kMostTracks) throw UsageError("the trace has more than a million threads; import one job");
    tracksFound_.push_back({processOf(event.process), files_ - 1});
  }
  lastKey_ = std::move(key);
  lastTrack_ = at->second;
  return lastTrack_;
}

void NdReader::take(const OperationEvent& event) {
  if (event.phase == 'M') {
    if (event.name == "process_name") {
      const std::int32_t replica = numberAfter(event.argumentName, "DP rank [", kMaxRanks - 1);
      if (replica >= 0) replicas_[static_cast<std::size_t>(processOf(event.process))] = replica;
    }
    if (event.name != "thread_name") return;
    Track& track = tracksFound_[static_cast<std::size_t>(trackOf(event))];
    track.pipeline = numberAfter(event.argumentName, "PP rank ", kMaxRanks - 1);
    track.tensor = std::max(0, numberAfter(event.argumentName, "TP rank ", kMaxRanks - 1));
    return;
  }
  if (event.phase != 'X' || event.name.empty() || event.name.size() > kLongestName) return;
  const auto start = nanoseconds(event.start);
  auto duration = nanoseconds(event.duration);
  // A collective's time counts from its last worker's start, whose clock may be a little ahead.
  constexpr Ns kClocksApart = 10'000'000;
  if (duration && *duration < 0 && *duration > -kClocksApart) duration = Ns{0};
  if (!start || !duration || *duration < 0 || *duration > kLongestDuration || event.step < 0 || event.step > kMostSteps) {
    ++events_.unusable;
    return;
  }
  const auto [kind, isNew] = kinds_.try_emplace(std::string(event.name), static_cast<std::int32_t>(events_.kinds.size()));
  if (isNew) {
    if (events_.kinds.size() >= kMostKinds) throw UsageError("the trace has more than 4096 kinds of operations; import one of NDTimeline");
    events_.kinds.push_back(kind->first);
  }
  const auto small = [](std::int64_t number) { return number >= 0 && number < kMaxMicrobatches ? static_cast<std::int32_t>(number) : -1; };
  events_.operations.push_back(
      {trackOf(event), kind->second, event.step, small(event.chunk), Microbatch(small(event.microbatch)), *start, *start + *duration});
}

void NdReader::readWindow(std::string_view events, EventWindows& windows, const std::string& path) {
  forEachObject(parser_, windows, events, path, [this](json::object& object) {
    OperationEvent event;
    const auto broken = readOperation(object, event);
    if (!broken) take(event);
    return broken;
  });
}

bool NdReader::read(const std::string& path, const std::function<bool(std::uint64_t)>& advance) {
  EventWindows windows(path);
  prefix_ = fmt::format("{}:", files_++);
  std::string_view events;
  while (windows.next(events)) {
    if (!events.empty()) readWindow(events, windows, path);
    if (!advance(windows.position())) return false;
  }
  events_.truncated = events_.truncated || windows.isTruncated();
  return true;
}

/// Tracks become workers; operations of those without a name are left out.
NdEvents NdReader::finish() {
  std::map<NdWorker, std::int32_t> workers;
  std::vector<std::int32_t> workerOf(tracksFound_.size(), -1);
  for (std::size_t t = 0; t < tracksFound_.size(); ++t) {
    const Track& track = tracksFound_[t];
    if (track.pipeline < 0) continue;
    const NdWorker worker{replicas_[static_cast<std::size_t>(track.process)], track.tensor, Rank(track.pipeline)};
    const auto [at, isNew] = workers.try_emplace(worker, static_cast<std::int32_t>(events_.workers.size()));
    if (isNew) {
      events_.workers.push_back(worker);
      events_.files.push_back(track.file);
    }
    workerOf[t] = at->second;
  }
  std::size_t kept = 0;
  for (NdOperation operation : events_.operations) {
    operation.worker = workerOf[static_cast<std::size_t>(operation.worker)];
    if (operation.worker >= 0)
      events_.operations[kept++] = operation;
    else
      ++events_.nameless;
  }
  events_.operations.resize(kept);
  return std::move(events_);
}

}  // namespace

bool isNdTimeline(const std::string& path) {
  EventWindows windows(path);
  std::string_view events;
  while (windows.next(events)) {
    if (events.empty()) continue;
    const auto holds = [&](std::string_view text) { return events.find(text) != std::string_view::npos; };
    const bool isOfTorch = holds("\"schemaVersion\"") || holds("\"deviceProperties\"") || holds("\"user_annotation\"");
    return holds("\"PP rank ") || (!isOfTorch && (holds("\"forward-compute\"") || holds("\"backward-compute\"")));
  }
  return false;
}

std::optional<NdEvents> readNdFiles(const std::vector<std::string>& paths, const std::function<bool(std::size_t, std::uint64_t)>& advance) {
  NdReader reader;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!reader.read(paths[i], [&](std::uint64_t bytes) { return advance(i, bytes); })) return std::nullopt;
  }
  return reader.finish();
}

}  // namespace pw
