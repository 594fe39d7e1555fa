#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/traces/events/events.h"
#include "backends/traces/events/transfers.h"
#include "backends/traces/names/label.h"
#include "backends/traces/readers/device_times.h"
#include "backends/traces/readers/distributed_info.h"
#include "backends/traces/readers/readers.h"
#include "backends/traces/readers/reduction_waits.h"
#include "backends/traces/readers/time_text.h"
#include "backends/traces/readers/window_objects.h"
#include "backends/traces/readers/windows.h"
#include "schedules/error.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

namespace json = simdjson::ondemand;
using Meaning = PipelineLabel::Meaning;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;  ///< of a message, so that no sum overflows
constexpr std::size_t kDeepestNesting = 100'000;            ///< of B events on one thread

/// One event as it stands in the file: tokens, strings without their quotes. Valid as long as its window.
struct Event {
  std::string_view name, category, process, thread, start, duration, argumentName;
  char phase = 0;
  std::int64_t from = -1, to = -1, bytes = 0, allocated = -1, deviceType = 0, correlation = -1, stream = -1;
};

void readChromeArguments(json::value value, Event& event) {
  json::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return;
  for (auto member : object) {
    json::raw_json_string key;
    std::string_view token;
    json::value content;
    if (member.key().get(key) != simdjson::SUCCESS || member.value().get(content) != simdjson::SUCCESS) return;
    const auto number = [&](std::int64_t& target) {
      if (const auto read = numberOf<std::int64_t>(bare(content.raw_json_token()))) target = *read;
    };
    if (isNamed(key, "name")) event.argumentName = bare(content.raw_json_token());
    if (isNamed(key, "from")) number(event.from);
    if (isNamed(key, "to")) number(event.to);
    if (isNamed(key, "bytes")) number(event.bytes);
    if (isNamed(key, "Total Allocated")) number(event.allocated);
    if (isNamed(key, "Device Type")) number(event.deviceType);
    if (isNamed(key, "correlation")) number(event.correlation);
    if (isNamed(key, "stream")) number(event.stream);
  }
}

bool isLaunch(std::string_view category) { return category == "cuda_runtime" || category == "cuda_driver" || category == "xpu_runtime"; }

/// Whether a span is one of this program's own messages and reductions.
bool isOwnCategory(std::string_view category) {
  if (category.empty() || category.size() > 11) return false;
  for (int kind = 0; kind <= static_cast<int>(SpanKind::Store); ++kind) {
    if (category == nameOf(static_cast<SpanKind>(kind))) return true;
  }
  return false;
}

bool hasUsefulArguments(std::string_view category) {
  return category.empty() || category == "kernel" || isLaunch(category) || isOwnCategory(category);
}

/// Reads one object; an error of simdjson where its text is broken.
simdjson::error_code readChromeEvent(json::object& object, Event& event) {
  for (auto member : object) {
    json::raw_json_string key;
    json::value value;
    if (const auto problem = member.key().get(key)) return problem;
    if (const auto problem = member.value().get(value)) return problem;
    const auto token = [&] { return bare(value.raw_json_token()); };
    switch (key.raw()[0]) {
      case 'n':
        if (isNamed(key, "name")) event.name = token();
        break;
      case 'c':
        if (isNamed(key, "cat")) event.category = token();
        break;
      case 'd':
        if (isNamed(key, "dur")) event.duration = token();
        break;
      case 't':
        if (isNamed(key, "ts")) event.start = token();
        if (isNamed(key, "tid")) event.thread = token();
        break;
      case 'p':
        if (isNamed(key, "pid")) event.process = token();
        if (isNamed(key, "ph")) event.phase = token().size() == 1 ? token().front() : '?';
        break;
      case 'a':
        // Millions of events have arguments that say nothing here.
        if (isNamed(key, "args") && (event.phase != 'X' || hasUsefulArguments(event.category))) readChromeArguments(value, event);
        break;
      default: break;
    }
  }
  return simdjson::SUCCESS;
}

class ChromeReader {
 public:
  ChromeReader(const std::string& path, const NamePatterns& patterns) : windows_(path), patterns_(patterns) { file_.source = path; }
  std::optional<FileEvents> read(const std::function<bool(std::uint64_t)>& advance);

 private:
  struct Open {
    PipelineLabel label;
    Ns start = 0;
  };
  void readWindow(std::string_view events);
  [[nodiscard]] PipelineLabel labelOf(const Event& event, bool own) const;
  void take(const Event& event);
  void takeComplete(const Event& event, const PipelineLabel& label, bool own);
  void takeOther(const Event& event);
  void takeBegin(const Event& event);
  void takeEnd(const Event& event);
  void takeCounter(const Event& event);
  void takeMemory(const Event& event);
  void takeName(const Event& event);
  void add(const PipelineLabel& label, Track track, Ns start, Ns duration, const Event& event);
  Track trackOf(const Event& event, bool device, bool own);
  std::int64_t trackNumber(std::string_view token);
  void reserve();
  void nameTracks();
  void finish();

  EventWindows windows_;
  const NamePatterns& patterns_;
  FileEvents file_;
  json::parser parser_;
  DeviceTimes devices_;
  bool labelsKernels_ = false;  ///< by a user's patterns: then actions are kernels, and not what launches them
  ReductionWaits waits_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool>, Track> tracks_;  ///< by process, thread, whether a device's, our own
  std::unordered_map<std::string, std::int64_t> texts_;                         ///< numbers of processes and threads that are texts
  std::string lastProcess_, lastThread_;                                        ///< events of a thread often follow each other
  std::optional<Track> lastTrack_;
  std::map<std::int64_t, std::string> processNames_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> threadNames_;
  std::unordered_map<Track, std::vector<Open>> open_;  ///< by track
};

/// Processes and threads are numbers, or now and then words; the latter count down from −1.
std::int64_t ChromeReader::trackNumber(std::string_view token) {
  if (const auto number = numberOf<std::int64_t>(token)) {
    if (*number >= 0 && *number < (std::int64_t{1} << 31)) return *number;
  }
  return texts_.try_emplace(std::string(token), -1 - static_cast<std::int64_t>(texts_.size())).first->second;
}

Track ChromeReader::trackOf(const Event& event, bool device, bool own) {
  const bool again = lastTrack_ && event.process == lastProcess_ && event.thread == lastThread_;
  if (again && file_.tracks[lastTrack_->index()].device == device && file_.tracks[lastTrack_->index()].own == own) return *lastTrack_;
  const std::int64_t process = trackNumber(event.process), thread = trackNumber(event.thread);
  const auto [at, isNew] = tracks_.try_emplace({process, thread, device, own}, Track(file_.tracks.size()));
  if (isNew) file_.tracks.push_back({.process = process, .thread = thread, .device = device, .own = own});
  lastProcess_ = event.process;
  lastThread_ = event.thread;
  lastTrack_ = at->second;
  return at->second;
}

void ChromeReader::add(const PipelineLabel& label, Track track, Ns start, Ns duration, const Event& event) {
  if (label.meaning == Meaning::Step) {
    file_.marks.push_back({track, label.number, start});
    return;
  }
  if (label.meaning == Meaning::Receive || label.meaning == Meaning::Sent) {
    (label.meaning == Meaning::Sent ? file_.sends : file_.receives).push_back({track, start, start + duration});
    return;
  }
  if (label.meaning == Meaning::Chunks) {
    file_.chunks = true;
    return;
  }
  const bool message = label.kind == SpanKind::SendForward || label.kind == SpanKind::SendBackward;
  const bool own = file_.tracks[track.index()].own;
  Span span{.rank = asRank(track), .stage = {}, .microbatch = {}, .peer = Rank(-1), .start = start, .end = start + duration};
  if (own && message && event.to >= 0 && event.to < kMaxRanks) span.peer = Rank(static_cast<std::int32_t>(event.to));
  if (own) span.bytes = Bytes(std::clamp<std::int64_t>(event.bytes, 0, kMostBytes));
  addLabelled(label, span, file_.spans);
}

void ChromeReader::takeComplete(const Event& event, const PipelineLabel& label, bool own) {
  if (label.meaning == Meaning::Unused) {
    ++file_.unused;
    return;
  }
  const auto start = nanoseconds(event.start), duration = nanoseconds(event.duration);
  if (!start || !duration || *duration < 0 || *duration > kLongestDuration) {
    ++file_.unusable;
    return;
  }
  add(label, trackOf(event, event.category == "gpu_user_annotation", own), *start, *duration, event);
}

/// What is no part of the pipeline, but tells when the device did it, or how long backwards wait.
void ChromeReader::takeOther(const Event& event) {
  const bool isOperator = event.category == "cpu_op", isKernel = event.category == "kernel", launches = isLaunch(event.category);
  const bool gathers = isGather(event.name);
  if (!isOperator && !isKernel && !launches && !gathers && !isHostCollective(event.name)) return;
  const auto start = nanoseconds(event.start), duration = nanoseconds(event.duration);
  if (!start || !duration || *duration < 0 || *duration > kLongestDuration) return;
  if (isKernel)
    return devices_.addKernel(event.name, trackNumber(event.process), event.correlation, event.stream, *start, *start + *duration);
  const std::int64_t process = trackNumber(event.process);
  if (launches) return devices_.addLaunch(process, event.correlation, *start);
  if (gathers)
    waits_.addGather(process, trackNumber(event.thread), *start, *start + *duration);
  else if (isOperator)
    waits_.addOperator(process, trackNumber(event.thread), *start, *start + *duration);
  else
    waits_.addCollective(process, *start, *start + *duration);
}

void ChromeReader::takeBegin(const Event& event) {
  const auto start = nanoseconds(event.start);
  std::vector<Open>& open = open_[trackOf(event, event.category == "gpu_user_annotation", false)];
  PipelineLabel label = labelOf(event, false);
  if (!start) {
    file_.unusable += label.meaning != Meaning::None ? 1 : 0;
    label = {};
  }
  if (open.size() >= kDeepestNesting)
    throw UsageError(
        fmt::format("{} opens {} events on one thread without closing any; it is not a usable trace", file_.source, open.size()));
  open.push_back({label, start.value_or(Ns{0})});
}

void ChromeReader::takeEnd(const Event& event) {
  const Track track = trackOf(event, event.category == "gpu_user_annotation", false);
  std::vector<Open>& open = open_[track];
  const auto end = nanoseconds(event.start);
  if (open.empty()) {
    file_.unclosed += labelOf(event, false).meaning != Meaning::None ? 1 : 0;
    return;
  }
  const Open begin = open.back();
  open.pop_back();
  if (begin.label.meaning == Meaning::None) return;
  if (begin.label.meaning == Meaning::Unused) {
    ++file_.unused;
  } else if (!end || *end < begin.start || *end - begin.start > kLongestDuration) {
    ++file_.unusable;
  } else {
    add(begin.label, track, begin.start, *end - begin.start, event);
  }
}

void ChromeReader::takeCounter(const Event& event) {
  constexpr std::string_view kCounter = "memory of rank ";
  if (!event.name.starts_with(kCounter)) return;
  const auto rank = numberOf<std::int32_t>(event.name.substr(kCounter.size()));
  const auto time = nanoseconds(event.start);
  if (!rank || *rank < 0 || *rank >= kMaxRanks || !time || event.bytes < 0) {
    ++file_.unusable;
    return;
  }
  // The counter of a trace belongs to its process; the rank is in its name.
  Event place = event;
  place.thread = std::string_view(event.name).substr(kCounter.size());
  file_.memory.push_back({asRank(trackOf(place, false, true)), *time, Bytes(event.bytes)});
}

void ChromeReader::takeMemory(const Event& event) {
  const auto time = nanoseconds(event.start);
  if (event.allocated < 0 || !time) return;
  file_.memory.push_back({asRank(trackOf(event, event.deviceType != 0, false)), *time, Bytes(event.allocated)});
}

void ChromeReader::takeName(const Event& event) {
  constexpr std::size_t kMostNames = 1'000'000, kLongestName = 200;
  if (threadNames_.size() > kMostNames || processNames_.size() > kMostNames) return;
  std::string name;
  const std::string quoted = "\"" + std::string(event.argumentName.substr(0, kLongestName)) + "\"";
  simdjson::dom::parser parser;
  std::string_view text;
  // The escapes of a name are resolved; one that was cut within an escape stays as it is.
  name = parser.parse(quoted).get(text) == simdjson::SUCCESS ? std::string(text) : std::string(event.argumentName.substr(0, kLongestName));
  if (event.name == "process_name") processNames_[trackNumber(event.process)] = name;
  if (event.name == "thread_name") threadNames_[{trackNumber(event.process), trackNumber(event.thread)}] = name;
}

PipelineLabel ChromeReader::labelOf(const Event& event, bool own) const {
  if (own) return ownLabel(event.name);
  if (!patterns_.empty()) {
    if (const PipelineLabel label = patterns_.label(event.name); label.meaning != Meaning::None) return label;
  }
  // Other trainers' words are common ones: only what somebody annotated is taken by them.
  const bool annotated = event.category == "user_annotation" || event.category == "gpu_user_annotation";
  return annotated ? functionLabel(event.name) : torchLabel(event.name);
}

void ChromeReader::take(const Event& event) {
  ++file_.events;
  switch (event.phase) {
    case 'X': {
      const bool own = isOwnCategory(event.category);
      const PipelineLabel label = labelOf(event, own);
      labelsKernels_ = labelsKernels_ || (label.meaning != Meaning::None && event.category == "kernel");
      label.meaning != Meaning::None ? takeComplete(event, label, own) : takeOther(event);
      break;
    }
    case 'B': takeBegin(event); break;
    case 'E': takeEnd(event); break;
    case 'C': takeCounter(event); break;
    case 'i':
    case 'I':
      if (event.name == "[memory]") takeMemory(event);
      break;
    case 'M': takeName(event); break;
    default: break;
  }
}

void ChromeReader::readWindow(std::string_view events) {
  forEachObject(parser_, windows_, events, file_.source, [this](json::object& object) {
    Event event;
    const auto broken = readChromeEvent(object, event);
    if (!broken) take(event);
    return broken;
  });
}

/// Room for as many spans as the part read so far promises: growing step by step would need up to three times the memory.
void ChromeReader::reserve() {
  constexpr std::size_t kShortest = 40;  ///< no event with a label takes fewer bytes
  if (file_.spans.size() < file_.spans.capacity() / 2 || windows_.position() == 0) return;
  const double expected =
      1.05 * static_cast<double>(file_.spans.size()) * static_cast<double>(windows_.size()) / static_cast<double>(windows_.position());
  const double most = static_cast<double>(windows_.size()) / static_cast<double>(kShortest) + 1;
  file_.spans.reserve(static_cast<std::size_t>(std::min(expected, most)));
}

void ChromeReader::nameTracks() {
  std::set<std::int64_t> own;
  for (const EventTrack& track : file_.tracks) {
    if (track.own) own.insert(track.process);
  }
  // Every rank this program names a thread for counts, also one without a span.
  for (const auto& [place, name] : threadNames_) {
    if (own.contains(place.first)) {
      if (tracks_.try_emplace({place.first, place.second, false, true}, Track(file_.tracks.size())).second) {
        file_.tracks.push_back({.process = place.first, .thread = place.second, .device = false, .own = true});
      }
    }
  }
  for (const auto& [text, number] : texts_) processNames_[number].insert(0, text + " ");  // a merged file's `rank 1: 4711`, beside `python`
  for (EventTrack& track : file_.tracks) {
    if (const auto name = processNames_.find(track.process); name != processNames_.end()) track.processName = name->second;
    if (const auto name = threadNames_.find({track.process, track.thread}); name != threadNames_.end()) track.threadName = name->second;
  }
}

void ChromeReader::finish() {
  for (const auto& [track, open] : open_) {
    file_.unclosed += static_cast<std::uint64_t>(
        std::count_if(open.begin(), open.end(), [](const Open& o) { return o.label.meaning == Meaning::Action; }));
  }
  nameTracks();
  file_.truncated = windows_.isTruncated();
  const auto& members = windows_.members();
  if (const auto base = members.find("baseTimeNanoseconds"); base != members.end()) {
    file_.origin = Ns(numberOf<std::int64_t>(base->second).value_or(0));
    if (file_.origin < 0 || file_.origin > kLatestTime) file_.origin = 0;
  }
  if (const auto info = members.find("distributedInfo"); info != members.end()) {
    readDistributedInfo(info->second, file_);
  }
}

/// Several processes that act are as many ranks: `distributedInfo` is that of one of the files that this one was merged from.
void tellRanksApart(FileEvents& file) {
  std::set<std::int64_t> acting;
  for (const Span& span : file.spans) {
    const EventTrack& track = file.tracks[trackOf(span).index()];
    if (isCompute(span.kind) && !track.own && !track.device) acting.insert(track.process);
  }
  if (acting.size() < 2) return;
  file.severalRanks = true;
  file.rank.reset();
}

/// A thread that does its rank's actions holds for the reductions that it does, of whatever stage.
void holdForReductions(FileEvents& file) {
  const auto isOfHost = [&](const Span& span) {
    const EventTrack& track = file.tracks[trackOf(span).index()];
    return !track.own && !track.device;
  };
  std::vector<bool> acts(file.tracks.size());
  for (const Span& span : file.spans) {
    if (isOfHost(span) && isCompute(span.kind)) acts[trackOf(span).index()] = true;
  }
  for (Span& span : file.spans) {
    if (span.kind != SpanKind::ReduceGrad || !isOfHost(span) || !acts[trackOf(span).index()]) continue;
    span.stage = Stage(-1);
    span.microbatch = Microbatch(-1);
  }
}

std::optional<FileEvents> ChromeReader::read(const std::function<bool(std::uint64_t)>& advance) {
  std::string_view events;
  while (windows_.next(events)) {
    if (!events.empty()) readWindow(events);
    reserve();
    if (!advance(windows_.position())) return std::nullopt;
  }
  if (!windows_.hasEvents() && windows_.isTruncated())
    throw UsageError(fmt::format("{} ends before its list traceEvents begins: it is truncated; copy or record it again", file_.source));
  if (!windows_.hasEvents())
    throw UsageError(
        fmt::format("{} holds no trace: it has no list traceEvents; open a trace of torch.profiler or of this program", file_.source));
  finish();
  tellRanksApart(file_);
  if (!labelsKernels_) devices_.apply(file_);
  holdForReductions(file_);
  waits_.cut(file_);
  cutTransfers(file_);
  waits_.cutGathers(file_);
  return std::move(file_);
}

}  // namespace

std::optional<FileEvents> readChromeFile(const std::string& path, const NamePatterns& patterns,
                                         const std::function<bool(std::uint64_t)>& advance) {
  return ChromeReader(path, patterns).read(advance);
}

}  // namespace pw
