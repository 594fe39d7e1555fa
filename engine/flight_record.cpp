#include "engine/flight_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/host/files.h"
#include "schedules/units.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;
using What = FlightEntry::What;

/// A backward that the plan splits is named after its first half, whose gradients are sent.
Action asInPlan(Action action, const Plan& plan) {
  if (action.kind != ActionKind::Backward) return action;
  const Action half{action.stage, ActionKind::BackwardInput, action.microbatch};
  const bool splits = std::ranges::any_of(plan.schedule.rows, [&](const auto& row) { return std::ranges::count(row, half) > 0; });
  return splits ? half : action;
}

std::string subjectOf(const FlightEntry& entry, const Plan& plan) {
  switch (entry.what) {
    case What::Compute: return toString(entry.action);
    case What::Value: return toString(asInPlan(entry.action, plan));
    case What::Number: return "a number for the sum over all ranks";
    case What::Log: return "step times";
    case What::Barrier: return "all ranks at a barrier";
    case What::Gradients:
    case What::NewValues: break;
  }
  const char* const what = entry.what == What::Gradients ? "gradients" : "new values";
  if (entry.shared && *entry.shared < plan.partition.shared.size())
    return fmt::format("{} of {}", what, plan.partition.shared[*entry.shared].name);
  return fmt::format("{} of stage {}", what, entry.action.stage.value);
}

std::string nameOf(const FlightEntry& entry, const Plan& plan) {
  std::string subject = subjectOf(entry, plan);
  if (entry.group != nullptr) {
    std::vector<int> ranks;
    for (const JobRank rank : *entry.group) ranks.push_back(rank.value);
    return fmt::format("{} with ranks {}", subject, fmt::join(ranks, " "));
  }
  if (entry.peer.value < 0) return subject;
  return entry.sending ? fmt::format("SEND {} to rank {}", subject, entry.peer.value)
                       : fmt::format("{} from rank {}", subject, entry.peer.value);
}

const char* kindOf(const FlightEntry& entry) {
  if (entry.what == What::Compute) return "compute";
  if (entry.what == What::Barrier) return "barrier";
  return entry.group != nullptr ? "collective" : entry.sending ? "send" : "receive";
}

const char* nameOf(MessageState state) {
  switch (state) {
    case MessageState::Waiting: return "waiting";
    case MessageState::Moving: return "moving";
    case MessageState::Done: return "done";
    case MessageState::Unknown: break;
  }
  return "unknown";
}

}  // namespace

void FlightRecord::begin(int step) {
  step_ = step;
  begin_ = monotonicNow();
  first_ = next_;
  longOpen_.clear();
  awaited_.reset();
}

FlightRecord::Id FlightRecord::add(const FlightEntry& entry, Ns posted) {
  Noted& place = last_[next_ % kMost];
  if (next_ - first_ >= kMost && place.ended == 0) longOpen_.emplace(place.id, place);
  place = {entry, next_, posted, 0};
  return next_++;
}

FlightRecord::Noted* FlightRecord::find(Id id) {
  if (id < first_ || id >= next_) return nullptr;  // of a step before
  if (next_ - id <= kMost) return &last_[id % kMost];
  const auto found = longOpen_.find(id);
  return found == longOpen_.end() ? nullptr : &found->second;
}

Ns FlightRecord::await(Communicator& communicator, Communicator::Request request, Id id) {
  awaits(id);
  communicator.wait(request);
  const Ns now = monotonicNow();
  end(id, now);
  return now;
}

void FlightRecord::end(Id id, Ns ended) {
  awaited_.reset();
  Noted* const noted = find(id);
  if (noted == nullptr) return;
  noted->ended = ended;
  if (next_ - id > kMost) longOpen_.erase(id);
}

std::vector<const FlightRecord::Noted*> FlightRecord::inOrder() const {
  std::vector<const Noted*> all;
  for (const auto& [id, noted] : longOpen_) all.push_back(&noted);
  for (Id id = next_ - std::min<Id>(kMost, next_ - first_); id < next_; ++id) all.push_back(&last_[id % kMost]);
  return all;
}

std::string FlightRecord::awaited(const Plan& plan, Communicator& communicator) const {
  const Noted* const noted = awaited_ ? find(*awaited_) : nullptr;
  if (noted == nullptr || noted->entry.what == What::Barrier) return {};  // a failure at a barrier names the missing ranks
  const MessageState state = noted->entry.request ? communicator.stateOf(*noted->entry.request) : MessageState::Unknown;
  const char* const far = state == MessageState::Waiting ? ", not begun" : state == MessageState::Moving ? ", in flight" : "";
  return fmt::format("waited for {} (posted {} ago{})", nameOf(noted->entry, plan), formatDuration(monotonicNow() - noted->posted), far);
}

std::string FlightRecord::toJson(const Plan& plan, Communicator& communicator, bool onDevice, const std::string& failure,
                                 const std::string& job) const {
  const Ns now = monotonicNow();
  const auto isAwaited = [&](const Noted& noted) { return awaited_ == noted.id; };
  const auto stateOf = [&](const Noted& noted) -> const char* {
    if (noted.ended > 0) return onDevice ? "queued" : "done";
    if (!noted.entry.request) return "begun";
    const MessageState state = communicator.stateOf(*noted.entry.request);
    return nameOf(isAwaited(noted) && state == MessageState::Done ? MessageState::Unknown : state);  // the wait for it failed
  };
  const auto describe = [&](const Noted& noted) {
    const FlightEntry& entry = noted.entry;
    Json j{{"what", nameOf(entry, plan)},
           {"kind", kindOf(entry)},
           {"state", stateOf(noted)},
           {"enqueued_ns", noted.posted - begin_},
           {"ended_ns", noted.ended > 0 ? Json(noted.ended - begin_) : Json(nullptr)}};
    if (entry.bytes > 0) j["bytes"] = entry.bytes;
    if (entry.peer.value >= 0) j["peer"] = entry.peer.value, j["tag"] = entry.tag;
    return j;
  };
  const std::vector<const Noted*> all = inOrder();
  const auto awaited = std::ranges::find_if(all, [&](const Noted* n) { return isAwaited(*n); });
  const auto oldest = std::ranges::find_if(all, [&](const Noted* n) { return n->ended == 0 && stateOf(*n) != std::string_view("done"); });
  Json j;
  j["awaited"] = awaited == all.end() ? Json(nullptr) : describe(**awaited);
  j["oldest_open"] = oldest == all.end() ? Json(nullptr) : describe(**oldest);
  j["rank"] = communicator.rank().value;
  j["ranks"] = communicator.size();
  if (!job.empty()) j["job"] = job;
  j["step"] = step_;
  j["failure"] = failure;
  j["failed_ns"] = now - begin_;
  j["entries_before"] = next_ - first_ - std::min<Id>(kMost, next_ - first_);
  j["entries"] = Json::array();
  for (const Noted* noted : all) j["entries"].push_back(describe(*noted));
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

bool writeWhole(const std::string& path, const std::string& text) noexcept {
  try {
    writeFile(path, text);
    return true;
  } catch (const std::exception&) {  // the rank is failing already, and that failure is the one to report
    return false;
  }
}

std::string flightFile(const std::string& prefix, JobRank rank) { return fmt::format("{}{}.json", prefix, rank.value); }

}  // namespace pw
