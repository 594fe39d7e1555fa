#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "backends/traces/events/events.h"
#include "backends/traces/names/label.h"
#include "backends/traces/readers/launches.h"
#include "backends/traces/readers/readers.h"
#include "backends/traces/readers/tables.h"
#include "schedules/error.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

using Meaning = PipelineLabel::Meaning;

constexpr std::size_t kMostRanges = 50'000'000, kMostLaunches = 200'000'000, kMostNames = 1'000'000;
const std::string kKernels = "CUPTI_ACTIVITY_KIND_KERNEL", kCalls = "CUPTI_ACTIVITY_KIND_RUNTIME", kRanges = "NVTX_EVENTS";

/// Process and thread as Nsight packs them (its documentation, "Serialized process and thread identifiers").
std::int64_t processOf(std::int64_t globalId) { return globalId >> 24 & 0xFFFFFF; }
std::int64_t threadOf(std::int64_t globalId) { return globalId & 0xFFFFFF; }

bool isUsable(Ns start, Ns end) { return end >= start && start > -kLatestTime && end < kLatestTime && end - start <= kLongestDuration; }

class NsightReader {
 public:
  NsightReader(const std::string& path, const NamePatterns& patterns, const std::function<bool(std::uint64_t)>& advance)
      : tables_(path, advance), patterns_(patterns) {
    file_.source = path;
  }
  std::optional<FileEvents> read();

 private:
  [[nodiscard]] PipelineLabel labelOf(std::string_view name);
  void readNames();
  void readRanges();
  void takeRange(const PipelineLabel& label, std::int64_t thread, Ns start, Ns end);
  void readLaunches();
  void readKernels(Launches& launches);
  [[nodiscard]] Ns firstKernelFrom(const AnnotatedRange& step);
  void addSpans();
  void nameProcesses();
  void readOrigin();
  Track trackOf(std::int64_t process, std::int64_t thread, bool device);

  TableFile tables_;
  const NamePatterns& patterns_;
  FileEvents file_;
  std::unordered_map<std::int64_t, PipelineLabel> labels_;  ///< by id of the text
  std::unordered_map<std::int64_t, KernelKind> transfers_;  ///< ids of the names of NCCL's kernels
  std::map<std::int64_t, std::int64_t> rankIn_;             ///< by process, where a range or table says it
  std::map<std::int64_t, std::int64_t> deviceOf_;           ///< by process; −1: several
  std::vector<AnnotatedRange> ranges_;
  std::vector<std::pair<PipelineLabel, std::int64_t>> meanings_;  ///< of each range: label and thread
  std::map<std::pair<std::int64_t, bool>, Track> tracks_;
  std::map<std::pair<std::int64_t, Ns>, Ns> launched_;  ///< by process and begin of a range: its first kernel
};

PipelineLabel NsightReader::labelOf(std::string_view name) {
  if (const PipelineLabel label = patterns_.label(name); label.meaning != Meaning::None) return label;
  return functionLabel(name);
}

/// Texts that Nsight stores once: names of kernels too, which label nothing.
void NsightReader::readNames() {
  if (!tables_.hasTable("StringIds")) return;
  tables_.setPart(0, 0.1, tables_.rowsOf("StringIds"));
  TableFile::Rows rows(tables_, "SELECT id, value FROM StringIds");
  while (rows.next()) {
    const auto id = rows.integer(0);
    if (!id) continue;
    const std::string_view name = rows.text(1);
    if (const KernelKind kind = kernelKindOf(name); kind != KernelKind::Compute && transfers_.size() < kMostNames)
      transfers_.insert_or_assign(*id, kind);
    const PipelineLabel label = labelOf(name);
    if (label.meaning != Meaning::None && labels_.size() < kMostNames) labels_.insert_or_assign(*id, label);
  }
}

void NsightReader::takeRange(const PipelineLabel& label, std::int64_t thread, Ns start, Ns end) {
  if (label.meaning == Meaning::Unused) return static_cast<void>(++file_.unused);
  if (label.meaning == Meaning::Chunks) file_.chunks = true;
  if (label.meaning == Meaning::Chunks || label.meaning == Meaning::Receive || label.meaning == Meaning::Sent) return;
  if (!isUsable(start, end)) return static_cast<void>(++file_.unusable);
  if (ranges_.size() >= kMostRanges)
    throw UsageError(fmt::format("{} has more than {} annotated ranges; profile fewer steps", file_.source, kMostRanges));
  const bool isAction = label.meaning != Meaning::Step && isCompute(label.kind);
  ranges_.push_back({.process = processOf(thread), .start = start, .end = end, .kind = isAction ? static_cast<int>(label.kind) : -1});
  meanings_.emplace_back(label, thread);
}

void NsightReader::readRanges() {
  if (!tables_.hasTable(kRanges))
    throw UsageError(
        fmt::format("{} has no NVTX ranges (no table NVTX_EVENTS): profile with nsys profile --trace=cuda,nvtx, then export it with nsys "
                    "export --type sqlite",
                    file_.source));
  const auto column = [&](const char* name) { return tables_.hasColumn(kRanges, name) ? std::string(name) : std::string("NULL"); };
  // Push and pop, start and end, and the same of NVTX's extension.
  const std::string filter = tables_.hasColumn(kRanges, "eventType") ? " WHERE eventType IN (59, 60, 70, 71)" : "";
  tables_.setPart(0.1, 0.4, tables_.rowsOf(kRanges));
  TableFile::Rows rows(tables_, fmt::format("SELECT start, \"end\", {}, {}, {} FROM {}{}", column("globalTid"), column("textId"),
                                            column("text"), kRanges, filter));
  std::unordered_map<std::string, PipelineLabel> texts;
  while (rows.next()) {
    ++file_.events;
    PipelineLabel label;
    if (const auto id = rows.integer(3)) {
      if (const auto known = labels_.find(*id); known != labels_.end()) label = known->second;
    } else if (const std::string_view text = rows.text(4); !text.empty() && text.size() < 1000) {
      const auto [at, isNew] = texts.size() < kMostNames ? texts.try_emplace(std::string(text)) : std::pair{texts.end(), true};
      label = isNew ? labelOf(text) : at->second;
      if (isNew && at != texts.end()) at->second = label;
    }
    if (label.meaning == Meaning::None) continue;
    const auto start = rows.integer(0), end = rows.integer(1);
    if (!start || !end || *end < *start) {  // still open when the recording ended
      ++file_.unclosed;
      continue;
    }
    takeRange(label, rows.integer(2).value_or(0), Ns(*start), Ns(*end));
  }
}

void NsightReader::readKernels(Launches& launches) {
  tables_.setPart(0.7, 1, tables_.rowsOf(kKernels));
  const auto column = [&](const char* name) { return tables_.hasColumn(kKernels, name) ? name : "NULL"; };
  TableFile::Rows rows(tables_, fmt::format("SELECT start, \"end\", correlationId, {}, {}, {}, {} FROM {}", column("globalPid"),
                                            column("deviceId"), column("streamId"), column("shortName"), kKernels));
  const std::int64_t only = ranges_.empty() ? 0 : ranges_.front().process;
  while (rows.next()) {
    ++file_.events;
    const auto start = rows.integer(0), end = rows.integer(1), correlation = rows.integer(2);
    if (!start || !end || !correlation || !isUsable(Ns(*start), Ns(*end))) continue;
    const std::int64_t process = rows.integer(3) ? processOf(*rows.integer(3)) : only;
    const auto transfer = rows.integer(6) ? transfers_.find(*rows.integer(6)) : transfers_.end();
    const KernelKind kind = transfer == transfers_.end() ? KernelKind::Compute : transfer->second;
    launches.addKernel(kind, process, *correlation, Ns(*start), Ns(*end), rows.integer(5).value_or(-1));
    if (const auto device = rows.integer(4)) {
      const auto [at, isNew] = deviceOf_.try_emplace(process, *device);
      if (!isNew && at->second != *device) at->second = -1;
    }
  }
  launches.finish();
}

void NsightReader::readLaunches() {
  if (!tables_.hasTable(kCalls) || !tables_.hasTable(kKernels)) return;
  if (!tables_.hasColumn(kCalls, "correlationId") || !tables_.hasColumn(kKernels, "correlationId")) return;
  Launches launches(ranges_);
  tables_.setPart(0.4, 0.7, tables_.rowsOf(kCalls));
  {
    TableFile::Rows rows(tables_, fmt::format("SELECT start, correlationId, {} FROM {}",
                                              tables_.hasColumn(kCalls, "globalTid") ? "globalTid" : "NULL", kCalls));
    const std::int64_t only = ranges_.empty() ? 0 : ranges_.front().process;
    std::size_t count = 0;
    while (rows.next() && ++count < kMostLaunches) {
      ++file_.events;
      const auto start = rows.integer(0), correlation = rows.integer(1);
      if (start && correlation) launches.addLaunch(rows.integer(2) ? processOf(*rows.integer(2)) : only, *correlation, Ns(*start));
    }
  }
  if (launches.any() && !tables_.stopped()) readKernels(launches);
}

Track NsightReader::trackOf(std::int64_t process, std::int64_t thread, bool device) {
  const auto [at, isNew] = tracks_.try_emplace({process, device}, Track(file_.tracks.size()));
  if (isNew) file_.tracks.push_back({.process = process, .thread = threadOf(thread), .device = device});
  return at->second;
}

/// When the device began what the process launched first in the step: the program runs ahead of it.
Ns NsightReader::firstKernelFrom(const AnnotatedRange& step) {
  if (launched_.empty()) {
    for (const AnnotatedRange& range : ranges_) {
      if (range.kernels > 0) launched_.emplace(std::pair{range.process, range.start}, range.firstKernel);
    }
  }
  const auto next = launched_.lower_bound({step.process, step.start});
  const bool inside = next != launched_.end() && next->first.first == step.process && next->first.second < step.end;
  const Ns own = step.kernels > 0 ? step.firstKernel : step.end;
  return inside ? std::min(own, next->second) : own;
}

/// Times are the kernels' where a process launched any in its ranges. What launched none there is left out: it only enqueued.
void NsightReader::addSpans() {
  std::set<std::int64_t> onDevice;
  for (const AnnotatedRange& range : ranges_) {
    if (range.kernels > 0) onDevice.insert(range.process);
  }
  file_.exactStarts = !onDevice.empty();
  std::uint64_t idle = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const AnnotatedRange& range = ranges_[i];
    const auto& [label, thread] = meanings_[i];
    const bool device = onDevice.contains(range.process);
    if (label.meaning == Meaning::Step) {
      const Track track = trackOf(range.process, thread, device);
      file_.marks.push_back({track, label.number, device ? firstKernelFrom(range) : range.start});
      continue;
    }
    if (device && range.kernels == 0) {
      idle += isCompute(label.kind) ? 1 : 0;
      continue;
    }
    addLabelled(label,
                {.rank = asRank(trackOf(range.process, thread, device)),
                 .stage = {},
                 .microbatch = {},
                 .peer = Rank(-1),
                 .start = device ? range.firstKernel : range.start,
                 .end = device ? range.lastKernel : range.end},
                file_.spans);
    if (range.reducedUntil > 0) {
      const Rank rank = asRank(trackOf(range.process, thread, device));
      file_.spans.push_back({rank, SpanKind::ReduceGrad, Stage(-1), Microbatch(-1), rank, 0, range.lastKernel, range.reducedUntil});
    }
  }
  file_.unusable += idle;
}

/// Ranks by what says so: a table of MPI's, else the devices' order, where each process has one.
void NsightReader::nameProcesses() {
  if (tables_.hasTable("MPI_RANKS") && tables_.hasColumn("MPI_RANKS", "rank") && tables_.hasColumn("MPI_RANKS", "globalTid")) {
    TableFile::Rows rows(tables_, "SELECT globalTid, rank FROM MPI_RANKS");
    while (rows.next() && rankIn_.size() < kMostNames) {
      const auto thread = rows.integer(0), rank = rows.integer(1);
      if (thread && rank && *rank >= 0 && *rank < (std::int64_t{1} << 31)) rankIn_.emplace(processOf(*thread), *rank);
    }
  }
  std::set<std::int64_t> devices;
  for (const EventTrack& track : file_.tracks) {
    const auto device = deviceOf_.find(track.process);
    if (device != deviceOf_.end() && device->second >= 0) devices.insert(device->second);
  }
  std::set<std::int64_t> processes;
  for (const EventTrack& track : file_.tracks) processes.insert(track.process);
  file_.severalRanks = processes.size() > 1;
  const bool byDevice = devices.size() == file_.tracks.size();
  for (EventTrack& track : file_.tracks) {
    if (const auto rank = rankIn_.find(track.process); rank != rankIn_.end()) track.processName = fmt::format("rank {}", rank->second);
    if (byDevice) track.process = deviceOf_.at(track.process);
  }
}

/// Nsight's times count from the begin of its session, whose time of the day it stores.
void NsightReader::readOrigin() {
  if (!tables_.hasTable("TARGET_INFO_SESSION_START_TIME") || !tables_.hasColumn("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")) return;
  TableFile::Rows rows(tables_, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME");
  if (!rows.next()) return;
  const Ns time(rows.integer(0).value_or(0));
  if (time > 0 && time < kLatestTime) file_.origin = time;
}

std::optional<FileEvents> NsightReader::read() {
  readNames();
  readRanges();
  readLaunches();
  if (tables_.stopped()) return std::nullopt;
  addSpans();
  nameProcesses();
  readOrigin();
  return std::move(file_);
}

}  // namespace

std::optional<FileEvents> readNsightFile(const std::string& path, const NamePatterns& patterns,
                                         const std::function<bool(std::uint64_t)>& advance) {
  return NsightReader(path, patterns, advance).read();
}

}  // namespace pw
