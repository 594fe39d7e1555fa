#include "engine/gathering.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "backends/host/packed.h"
#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"
#include "backends/store/trace_blob.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::uint32_t kSizeTag = kGatheringTags.first, kPayloadTag = kSizeTag + 1, kStepTag = kSizeTag + 2, kRestTag = kSizeTag + 3,
                        kComparisonTag = kSizeTag + 4;
static_assert(kComparisonTag < kGatheringTags.end());
constexpr Ns kBetweenComparisons{5'000'000'000};  // clocks of hosts drift apart by some 10 µs a second
constexpr int kMostStepsBetween = 1 << 20;
// A span for the action, one for a wait and one or two for messages, three samples of memory; with room to spare.
constexpr std::size_t kBytesOfAction = 4 * 44 + 4 * 20, kBytesOfStep = 1024;

Buffer bufferOf(std::string& bytes) { return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}; }

template <class T>
Buffer bufferOf(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof(value)};
}

/// Throws unless the log was read to its end.
void requireComplete(const Unpacker& unpacker, JobRank rank) {
  if (!unpacker.isComplete()) throw Error(fmt::format("Rank {} sent a broken log; run all ranks with the same build.", rank.value));
}

std::string pack(const RankLog& log) {
  Packer packer;
  const Verification& v = log.verification;
  packer.add(v.equal);
  packer.add(v.lossDifference);
  packer.add(v.boundaryDifference);
  packer.add(v.gradientDifference);
  packer.add(v.position);
  packer.add(v.notFinite);
  packer.add(v.firstDifference);
  packer.add(log.residentPeak);
  packer.add(log.startToFirstAction);
  packer.add(log.lossScale);
  return packer.finish();
}

RankLog unpackRankLog(std::string_view bytes, JobRank rank) {
  Unpacker unpacker(bytes);
  RankLog log;
  Verification& v = log.verification;
  unpacker.take(v.equal);
  unpacker.take(v.lossDifference);
  unpacker.take(v.boundaryDifference);
  unpacker.take(v.gradientDifference);
  unpacker.take(v.position);
  unpacker.take(v.notFinite);
  unpacker.take(v.firstDifference);
  unpacker.take(log.residentPeak);
  unpacker.take(log.startToFirstAction);
  unpacker.take(log.lossScale);
  requireComplete(unpacker, rank);
  return log;
}

std::string pack(const StepLog& step) {
  Packer packer;
  packer.add(step.loss);
  packer.add(step.gradientNorm);
  packer.add(step.lossScale);
  packer.add(step.skipped);
  packer.add(step.notFinite.value_or(JobRank(-1)).value);
  packer.add(step.whatNotFinite);
  packer.add(toBlob(kMostTraceRanks, step.spans, step.memory));
  return packer.finish();
}

StepLog unpackStepLog(std::string_view bytes, JobRank rank) {
  Unpacker unpacker(bytes);
  StepLog step;
  unpacker.take(step.loss);
  unpacker.take(step.gradientNorm);
  unpacker.take(step.lossScale);
  unpacker.take(step.skipped);
  if (const JobRank notFinite(unpacker.next<std::int32_t>()); notFinite.value >= 0) step.notFinite = notFinite;
  unpacker.take(step.whatNotFinite);
  const std::string_view blob = unpacker.text();
  requireComplete(unpacker, rank);
  Trace trace = parseBlob(blob, fmt::format("the log of rank {}", rank.value));
  step.spans = std::move(trace.spans);
  step.memory = std::move(trace.memory);
  return step;
}

struct NotedMessage {
  Communicator::Request request;
  FlightRecord::Id flight = 0;
};

NotedMessage noted(Communicator::Request request, bool sending, JobRank peer, std::uint32_t tag, std::size_t bytes, FlightRecord& flights) {
  return {request,
          flights.add({.what = FlightEntry::What::Log, .sending = sending, .peer = peer, .tag = tag, .bytes = bytes, .request = request})};
}

NotedMessage sendNoted(JobRank to, std::uint32_t tag, std::string& bytes, Communicator& communicator, FlightRecord& flights) {
  return noted(communicator.send(to, tag, bufferOf(bytes)), true, to, tag, bytes.size(), flights);
}

NotedMessage receiveNoted(JobRank from, std::uint32_t tag, std::string& bytes, Communicator& communicator, FlightRecord& flights) {
  return noted(communicator.receive(from, tag, bufferOf(bytes)), false, from, tag, bytes.size(), flights);
}

/// Room for what most logs of the plan's longest row need.
std::size_t inlineBytesOf(const Plan& plan) {
  std::size_t longest = 0;
  for (const auto& row : plan.schedule.rows) longest = std::max(longest, row.size());
  return kBytesOfStep + kBytesOfAction * longest;
}

}  // namespace

std::vector<RankLog> gatherRankLogs(const RankLog& own, Communicator& communicator) {
  if (communicator.rank().value != 0) {
    std::string bytes = pack(own);
    std::uint64_t size = bytes.size();
    communicator.wait(communicator.send(JobRank(0), kSizeTag, bufferOf(size)));
    communicator.wait(communicator.send(JobRank(0), kPayloadTag, bufferOf(bytes)));
    communicator.barrier();
    return {};
  }
  std::vector<RankLog> logs{own};
  for (int r = 1; r < communicator.size(); ++r) {
    const JobRank peer(r);
    std::uint64_t size = 0;
    communicator.wait(communicator.receive(peer, kSizeTag, bufferOf(size)));
    std::string bytes(size, '\0');
    communicator.wait(communicator.receive(peer, kPayloadTag, bufferOf(bytes)));
    logs.push_back(unpackRankLog(bytes, peer));
  }
  communicator.barrier();
  return logs;
}

StepGatherer::StepGatherer(const Plan& plan, Communicator& communicator, ClockFunction now)
    : communicator_(communicator), now_(std::move(now)), inlineBytes_(inlineBytesOf(plan)) {
  compare();
}

/// Rank 0 tells the others after how many steps this happens again.
void StepGatherer::compare() {
  std::vector<ClockReading> readings = compareClocks(communicator_, now_);
  std::int32_t next = 0;
  if (communicator_.rank() == JobRank(0)) {
    const Ns passed = now_() - std::exchange(comparedAt_, now_());
    const bool shared = std::ranges::all_of(readings, [](const ClockReading& r) { return r.offset == 0; });
    const Ns step = std::max<Ns>(1, passed / std::max(1, sinceComparison_));
    if (!shared)
      next =
          sinceComparison_ == 0 ? 1 : static_cast<std::int32_t>(std::clamp<std::int64_t>(kBetweenComparisons / step, 1, kMostStepsBetween));
    first_ = last_.empty() ? readings : std::move(last_);
    last_ = std::move(readings);
    for (int r = 1; r < communicator_.size(); ++r) communicator_.wait(communicator_.send(JobRank(r), kComparisonTag, bufferOf(next)));
  } else {
    communicator_.wait(communicator_.receive(JobRank(0), kComparisonTag, bufferOf(next)));
  }
  untilComparison_ = next;
  sinceComparison_ = 0;
}

std::vector<StepLog> StepGatherer::gather(StepLog own, FlightRecord& flights) {
  ++sinceComparison_;
  if (untilComparison_ > 0 && --untilComparison_ == 0) compare();
  if (communicator_.rank() == JobRank(0)) return receive(std::move(own), flights);
  send(own, flights);
  return {};
}

/// The first message holds the log's size and as much of it as fits; its own size is the same for all.
void StepGatherer::send(const StepLog& own, FlightRecord& flights) {
  const std::string log = pack(own);
  const std::uint64_t size = log.size();
  const MessageMemory<std::string> posted(communicator_, std::string(sizeof(size) + inlineBytes_, '\0'));
  std::string& message = *posted;
  std::memcpy(message.data(), &size, sizeof(size));
  std::memcpy(message.data() + sizeof(size), log.data(), std::min(log.size(), inlineBytes_));
  const NotedMessage sent = sendNoted(JobRank(0), kStepTag, message, communicator_, flights);
  if (log.size() > inlineBytes_) {
    std::string rest = log.substr(inlineBytes_);
    const NotedMessage second = sendNoted(JobRank(0), kRestTag, rest, communicator_, flights);
    flights.await(communicator_, second.request, second.flight);
  }
  flights.await(communicator_, sent.request, sent.flight);
}

std::vector<StepLog> StepGatherer::receive(StepLog own, FlightRecord& flights) {
  const auto peers = static_cast<std::size_t>(communicator_.size()) - 1;
  const MessageMemory<std::vector<std::string>> posted(
      communicator_, std::vector<std::string>(peers, std::string(sizeof(std::uint64_t) + inlineBytes_, '\0')));
  std::vector<std::string>& messages = *posted;
  std::vector<NotedMessage> requests;
  for (std::size_t i = 0; i < peers; ++i) requests.push_back(receiveNoted(JobRank(i + 1), kStepTag, messages[i], communicator_, flights));
  std::vector<StepLog> logs{std::move(own)};
  for (std::size_t i = 0; i < peers; ++i) {
    const JobRank peer(i + 1);
    std::string& message = messages[i];
    flights.await(communicator_, requests[i].request, requests[i].flight);
    std::uint64_t size = 0;
    std::memcpy(&size, message.data(), sizeof(size));
    message.erase(0, sizeof(size));
    if (size > inlineBytes_) {
      std::string rest(size - inlineBytes_, '\0');
      const NotedMessage second = receiveNoted(peer, kRestTag, rest, communicator_, flights);
      flights.await(communicator_, second.request, second.flight);
      message += rest;
    }
    logs.push_back(unpackStepLog(std::string_view(message).substr(0, size), peer));
    putOnOurClock(logs.back(), peer);
  }
  return logs;
}

/// The drift of the last interval is assumed to continue for as long again.
void StepGatherer::putOnOurClock(StepLog& log, JobRank peer) const {
  const ClockReading &first = first_.at(peer.index()), &last = last_.at(peer.index());
  const ClockReading next{last.at + (last.at - first.at), last.offset + (last.offset - first.offset), last.roundTrip};
  const auto move = [&](Ns& time) { time = time < last.at ? onOurClock(time, first, last) : onOurClock(time, last, next); };
  for (Span& span : log.spans) {
    move(span.start);
    move(span.end);
  }
  for (MemorySample& sample : log.memory) move(sample.time);
}

}  // namespace pw
