#include "backends/traces/readers/device_times.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr std::size_t kMostAlike = 64;  ///< processes: what more of them did or numbered alike tells none from another

/// The track of the device that a host's track feeds; made where there is none.
Track deviceOf(FileEvents& file, Track host, std::map<Track, Track>& made) {
  const auto [at, isNew] = made.try_emplace(host, Track(file.tracks.size()));
  if (isNew) {
    EventTrack track = file.tracks[host.index()];
    track.device = true;
    file.tracks.push_back(std::move(track));
  }
  return at->second;
}

/// Steps begin when the first kernel of what they launched does.
void moveMarks(FileEvents& file, const std::vector<AnnotatedRange>& ranges, std::map<Track, Track>& made) {
  std::map<std::pair<std::int64_t, Ns>, Ns> begins;  // of kernels, by process and begin of their range
  for (const AnnotatedRange& range : ranges) {
    if (range.kernels > 0) begins.emplace(std::pair(range.process, range.start), range.firstKernel);
  }
  for (StepMark& mark : file.marks) {
    const EventTrack& track = file.tracks[mark.track.index()];
    if (track.device) continue;
    const auto next = begins.lower_bound({track.process, mark.start});
    if (next == begins.end() || next->first.first != track.process) continue;
    mark.start = next->second;
    mark.track = deviceOf(file, mark.track, made);
  }
}

bool isOfProgram(SpanKind kind) { return isCompute(kind) || kind == SpanKind::Optimizer; }

/// Leaves the copies on devices out where they lack a kind of action that the program has.
void leavePartialCopies(FileEvents& file) {
  std::set<SpanKind> ofHost, ofDevice;
  for (const Span& span : file.spans) {
    if (isCompute(span.kind)) (file.tracks[trackOf(span).index()].device ? ofDevice : ofHost).insert(span.kind);
  }
  if (ofDevice.empty() || std::ranges::includes(ofDevice, ofHost)) return;
  std::erase_if(file.spans, [&](const Span& span) { return file.tracks[trackOf(span).index()].device; });
  file.hostTimes = true;
}

/// Whether most of the ranges of each process launched something: else its program computes on CPUs, or its launches are missing.
bool mostLaunched(const std::vector<AnnotatedRange>& ranges) {
  std::map<std::int64_t, std::int64_t> launched;  // less those that did not
  for (const AnnotatedRange& range : ranges) launched[range.process] += range.kernels > 0 ? 1 : -1;
  return std::ranges::all_of(launched, [](const auto& of) { return of.second >= 0; });
}

}  // namespace

void DeviceTimes::addLaunch(std::int64_t process, std::int64_t correlation, Ns time) {
  if (correlation >= 0) launches_.push_back({process, correlation, time});
}

void DeviceTimes::addKernel(std::string_view name, std::int64_t device, std::int64_t correlation, std::int64_t stream, Ns start, Ns end) {
  if (correlation >= 0) kernels_.push_back({kernelKindOf(name), device, correlation, stream, start, end});
}

DeviceTimes::Owners DeviceTimes::ownersIn(const FileEvents& file, const std::map<std::int64_t, Track>& hosts) const {
  Owners owners;
  std::map<std::int64_t, std::int64_t> devices;  // their number in order
  for (const EventTrack& track : file.tracks) {
    if (track.device) devices.emplace(track.process, 0);
  }
  for (const Kernel& kernel : kernels_) devices.emplace(kernel.device, 0);
  if (hosts.size() == 1) {
    for (const auto& [device, number] : devices) owners.ofDevices[device] = hosts.begin()->first;
    owners.ofKernels.assign(kernels_.size(), hosts.begin()->first);
    return owners;
  }
  for (std::int64_t number = 0; auto& [device, of] : devices) of = number++;

  std::vector<Launch> launches;  // the first of each correlation and process
  std::ranges::copy_if(launches_, std::back_inserter(launches), [&](const Launch& launch) { return hosts.contains(launch.process); });
  const auto keyOf = [](const Launch& launch) { return std::pair(launch.correlation, launch.process); };
  std::ranges::sort(launches, {}, [&](const Launch& launch) { return std::pair(keyOf(launch), launch.time); });
  const auto again = std::ranges::unique(launches, {}, keyOf);
  launches.erase(again.begin(), again.end());
  const auto launched = [&](const Kernel& kernel, std::int64_t process) {
    const auto at = std::ranges::lower_bound(launches, std::pair(kernel.correlation, process), {}, keyOf);
    return at != launches.end() && keyOf(*at) == std::pair(kernel.correlation, process) && at->time <= kernel.start;
  };
  const auto launchersOf = [&](const Kernel& kernel) {
    std::vector<std::int64_t> processes;
    const auto of = std::ranges::equal_range(launches, kernel.correlation, {}, &Launch::correlation);
    if (of.size() > kMostAlike) return processes;
    for (const Launch& launch : of) {
      if (launch.time <= kernel.start) processes.push_back(launch.process);
    }
    return processes;
  };
  std::map<std::tuple<SpanKind, Stage, Microbatch>, std::set<std::int64_t>> doers;  // processes, by action
  for (const Span& span : file.spans) {
    const EventTrack& track = file.tracks[trackOf(span).index()];
    if (isCompute(span.kind) && !track.device) doers[{span.kind, span.stage, span.microbatch}].insert(track.process);
  }
  using Pair = std::pair<std::int64_t, std::int64_t>;               // device, process
  std::map<Pair, std::pair<std::int64_t, std::int64_t>> agreement;  // actions, kernels
  for (const Span& span : file.spans) {
    const EventTrack& track = file.tracks[trackOf(span).index()];
    if (!isCompute(span.kind) || !track.device) continue;
    const auto of = doers.find({span.kind, span.stage, span.microbatch});
    if (of == doers.end() || of->second.size() > kMostAlike) continue;
    for (const std::int64_t process : of->second) ++agreement[{track.process, process}].first;
  }
  for (const Kernel& kernel : kernels_) {
    for (const std::int64_t process : launchersOf(kernel)) ++agreement[{kernel.device, process}].second;
  }
  std::map<std::int64_t, std::int64_t> numbers;  // of hosts in order
  for (const auto& [process, track] : hosts) numbers.emplace(process, std::ssize(numbers));
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, Pair>> candidates;  // best first
  for (const auto& [pair, agree] : agreement)
    candidates.emplace_back(-agree.first, -agree.second, std::abs(devices.at(pair.first) - numbers.at(pair.second)), pair);
  std::ranges::sort(candidates);
  std::set<std::int64_t> taken;
  for (const auto& [actions, kernels, distance, pair] : candidates) {
    if (!owners.ofDevices.contains(pair.first) && taken.insert(pair.second).second) owners.ofDevices.insert(pair);
  }
  for (const Kernel& kernel : kernels_) {
    const auto owner = owners.ofDevices.find(kernel.device);
    if (owner != owners.ofDevices.end() && launched(kernel, owner->second)) {
      owners.ofKernels.push_back(owner->second);
      continue;
    }
    const std::vector<std::int64_t> processes = launchersOf(kernel);
    owners.ofKernels.push_back(processes.size() == 1 ? processes.front() : -1);
  }
  return owners;
}

void DeviceTimes::apply(FileEvents& file) const {
  if (!applyKernels(file)) leavePartialCopies(file);
}

bool DeviceTimes::applyKernels(FileEvents& file) const {
  if (kernels_.empty()) return false;
  std::vector<AnnotatedRange> ranges;
  std::vector<std::vector<std::size_t>> spans;             // of each range: two of an overlapped pair
  std::map<std::tuple<Track, Ns, Ns>, std::size_t> pairs;  // ranges of actions, by begin and end
  std::map<std::int64_t, Track> hosts;                     // by process
  for (std::size_t i = 0; i < file.spans.size(); ++i) {
    const Span& span = file.spans[i];
    const EventTrack& track = file.tracks[trackOf(span).index()];
    if (track.device || !isOfProgram(span.kind)) continue;
    // Of threads of a program nothing tells whose launch it is.
    if (hosts.try_emplace(track.process, trackOf(span)).first->second != trackOf(span)) return false;
    if (isCompute(span.kind) && span.end > span.start) {
      const auto [at, isNew] = pairs.try_emplace({trackOf(span), span.start, span.end}, ranges.size());
      if (!isNew) {
        spans[at->second].push_back(i);
        continue;
      }
    }
    ranges.push_back(
        {.process = track.process, .start = span.start, .end = span.end, .kind = isCompute(span.kind) ? static_cast<int>(span.kind) : -1});
    spans.push_back({i});
  }
  if (ranges.empty()) return false;
  if (hosts.size() > static_cast<std::size_t>(kMaxRanks))
    throw UsageError(fmt::format("{} has pipeline events of {} processes, more than {}; open the files of one pipeline", file.source,
                                 hosts.size(), kMaxRanks));
  const Owners owners = ownersIn(file, hosts);
  Launches launches(ranges);
  for (const Launch& launch : launches_) launches.addLaunch(launch.process, launch.correlation, launch.time);
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    const Kernel& kernel = kernels_[k];
    launches.addKernel(kernel.kind, owners.ofKernels[k], kernel.correlation, kernel.start, kernel.end, kernel.stream);
  }
  launches.finish();
  if (!mostLaunched(ranges)) return false;
  std::map<Track, Track> made;
  std::vector<Span> timed;
  for (Span span : file.spans) {  // messages, beside the actions of their process
    const EventTrack& track = file.tracks[trackOf(span).index()];
    if (!track.device || isOfProgram(span.kind)) continue;
    const auto owner = owners.ofDevices.find(track.process);
    if (owner != owners.ofDevices.end()) span.rank = asRank(deviceOf(file, hosts.at(owner->second), made));
    timed.push_back(span);
  }
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const AnnotatedRange& range = ranges[r];
    for (const std::size_t i : spans[r]) {
      Span span = file.spans[i];
      if (range.kernels == 0) {
        file.unusable += isCompute(span.kind) ? 1 : 0;
        continue;
      }
      span.rank = asRank(deviceOf(file, trackOf(span), made));
      span.start = range.firstKernel;
      span.end = range.lastKernel;
      timed.push_back(span);
    }
    if (range.reducedUntil == 0) continue;
    Span span = timed.back();
    span.kind = SpanKind::ReduceGrad;
    span.stage = Stage(-1);
    span.microbatch = Microbatch(-1);
    span.start = range.lastKernel;
    span.end = range.reducedUntil;
    timed.push_back(span);
  }
  moveMarks(file, ranges, made);
  file.spans = std::move(timed);
  file.exactStarts = true;
  return true;
}

}  // namespace pw
