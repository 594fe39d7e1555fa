#include "backends/traces/readers/device_times.h"

#include <algorithm>
#include <map>
#include <optional>

#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

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
  std::map<Ns, Ns> begins;  // of kernels, by begin of their range
  for (const AnnotatedRange& range : ranges) {
    if (range.kernels > 0) begins.emplace(range.start, range.firstKernel);
  }
  for (StepMark& mark : file.marks) {
    if (file.tracks[mark.track.index()].device) continue;
    const auto next = begins.lower_bound(mark.start);
    if (next == begins.end()) continue;
    mark.start = next->second;
    mark.track = deviceOf(file, mark.track, made);
  }
}

}  // namespace

void DeviceTimes::addLaunch(std::int64_t correlation, Ns time) { launches_.push_back({correlation, time}); }

void DeviceTimes::addKernel(std::string_view name, std::int64_t correlation, std::int64_t stream, Ns start, Ns end) {
  kernels_.push_back({kernelKindOf(name), correlation, stream, start, end});
}

void DeviceTimes::apply(FileEvents& file) const {
  if (kernels_.empty()) return;
  std::vector<AnnotatedRange> ranges;
  std::vector<std::vector<std::size_t>> spans;     // of each range: two of an overlapped pair
  std::map<std::pair<Ns, Ns>, std::size_t> pairs;  // ranges of actions, by begin and end
  std::vector<Span> timed;
  for (std::size_t i = 0; i < file.spans.size(); ++i) {
    const Span& span = file.spans[i];
    const bool isAction = isCompute(span.kind), isOwn = isAction || span.kind == SpanKind::Optimizer;
    const bool onDevice = file.tracks[trackOf(span).index()].device;
    if (onDevice && !isOwn) timed.push_back(span);  // messages
    if (onDevice || !isOwn) continue;
    if (isAction && span.end > span.start) {
      const auto [at, isNew] = pairs.try_emplace({span.start, span.end}, ranges.size());
      if (!isNew) {
        spans[at->second].push_back(i);
        continue;
      }
    }
    ranges.push_back({.process = 0, .start = span.start, .end = span.end, .kind = isAction ? static_cast<int>(span.kind) : -1});
    spans.push_back({i});
  }
  // Where ranks share a file, or threads a program, nothing tells whose launch it is.
  const auto isElsewhere = [&](std::size_t i) { return trackOf(file.spans[i]) != trackOf(file.spans[spans.front().front()]); };
  if (std::ranges::any_of(spans, [&](const auto& of) { return std::ranges::any_of(of, isElsewhere); })) return;
  Launches launches(ranges);
  for (const Launch& launch : launches_) launches.addLaunch(0, launch.correlation, launch.time);
  for (const Kernel& kernel : kernels_) launches.addKernel(kernel.kind, 0, kernel.correlation, kernel.start, kernel.end, kernel.stream);
  launches.finish();
  const auto onDevice = std::ranges::count_if(ranges, [](const AnnotatedRange& range) { return range.kernels > 0; });
  if (2 * onDevice < std::ssize(ranges) || ranges.empty()) return;  // of a program on CPUs, or without its launches
  std::map<Track, Track> made;
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
}

}  // namespace pw
