#include "engine/step_times.h"

namespace pw {
namespace {

/// Gives three samples their places within a span.
void spread(const Span& span, MemorySample* samples) {
  samples[0].time = span.start;
  samples[1].time = span.start + (span.end - span.start) / 2;
  samples[2].time = span.end;
}

}  // namespace

void StepTimes::begin() {
  device_.forgetTimestamps();
  spans_.clear();
  samples_.clear();
  within_.clear();
}

void StepTimes::add(StepLog& log, Span span, Timestamp start, Timestamp end) {
  if (isHost()) {
    span.start = device_.timeOf(start);
    span.end = device_.timeOf(end);
  } else {
    spans_.push_back({log.spans.size(), start, end});
  }
  log.spans.push_back(span);
}

void StepTimes::add(StepLog& log, Rank rank, Timestamp moment, Bytes memory) {
  if (!isHost()) samples_.push_back({log.memory.size(), moment, moment});
  log.memory.push_back({rank, isHost() ? device_.timeOf(moment) : 0, memory});
}

void StepTimes::add(StepLog& log, const Span& span, Timestamp start, Timestamp end, const std::array<Bytes, 3>& memory) {
  const std::size_t place = log.spans.size(), first = log.memory.size();
  add(log, span, start, end);
  for (const Bytes bytes : memory) log.memory.push_back({span.rank, 0, bytes});
  if (isHost()) return spread(log.spans[place], &log.memory[first]);
  within_.emplace_back(place, first);
}

void StepTimes::settle(StepLog& log) {
  for (const Pending& pending : spans_) {
    log.spans[pending.place].start = device_.timeOf(pending.start);
    log.spans[pending.place].end = device_.timeOf(pending.end);
  }
  for (const Pending& pending : samples_) log.memory[pending.place].time = device_.timeOf(pending.start);
  for (const auto& [span, first] : within_) spread(log.spans[span], &log.memory[first]);
  spans_.clear();
  samples_.clear();
  within_.clear();
}

}  // namespace pw
