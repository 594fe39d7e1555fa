#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/dumps/fields.h"
#include "backends/dumps/formats.h"

namespace pw::dumps {
namespace {

namespace dom = simdjson::dom;
using hang::OpKind;
using hang::OpState;

constexpr std::size_t kMostText = 400;  ///< of a record that is kept

/// `1F3` at the front of a text.
std::optional<Action> actionIn(std::string_view text) {
  Action action;
  const char* const end = text.data() + text.size();
  const auto [letter, problem] = std::from_chars(text.data(), end, action.stage.value);
  if (problem != std::errc() || letter == end || action.stage.value < 0) return std::nullopt;
  switch (*letter) {
    case 'F': action.kind = ActionKind::Forward; break;
    case 'B': action.kind = ActionKind::Backward; break;
    case 'I': action.kind = ActionKind::BackwardInput; break;
    case 'W': action.kind = ActionKind::BackwardWeight; break;
    default: return std::nullopt;
  }
  const auto [rest, wrong] = std::from_chars(letter + 1, end, action.microbatch.value);
  const bool whole = wrong == std::errc() && (rest == end || *rest == ' ');
  return whole && action.microbatch.value >= 0 ? std::optional(action) : std::nullopt;
}

/// A message is named after the action whose result it is.
std::optional<Action> messageOf(std::string_view what, bool sends) {
  constexpr std::string_view kSend = "SEND ";
  if (sends && what.starts_with(kSend)) what.remove_prefix(kSend.size());
  std::optional<Action> action = actionIn(what);
  if (!action || action->kind == ActionKind::BackwardWeight || action->stage.value == std::numeric_limits<std::int32_t>::max())
    return std::nullopt;
  action->kind = action->kind == ActionKind::Forward ? ActionKind::SendForward : ActionKind::SendBackward;
  return sends ? *action : counterpart(*action);
}

}  // namespace

bool isFlightRecord(const dom::element& root) {
  dom::object object;
  dom::element any;
  if (root.get(object) != simdjson::SUCCESS) return false;
  return object["awaited"].get(any) == simdjson::SUCCESS && object["oldest_open"].get(any) == simdjson::SUCCESS &&
         object["entries"].get(any) == simdjson::SUCCESS;
}

void readFlightRecord(const dom::element& root, const Source& source) {
  dom::object object;
  dom::array entries;
  if (root.get(object) != simdjson::SUCCESS || object["entries"].get(entries) != simdjson::SUCCESS)
    source.refuse("it has no list of entries");
  hang::RankDump dump;
  dump.rank = source.rank(numberAt(object, "rank", -1), "its rank");
  dump.file = source.file;
  dump.complete = numberAt(object, "entries_before", 0) == 0;
  dump.step = static_cast<int>(std::clamp<std::int64_t>(numberAt(object, "step", 0), 0, std::numeric_limits<int>::max()));
  dump.failure = std::string(textAt(object, "failure").substr(0, kMostText));
  const std::int64_t ranks = numberAt(object, "ranks", dump.rank.value + 1);
  if (ranks <= dump.rank.value || ranks > kMostJobRanks) source.refuse(fmt::format("it is of rank {} of {}", dump.rank.value, ranks));
  const std::size_t group = source.group({"job", {}});
  dom::object awaited;
  const bool waits = object["awaited"].get(awaited) == simdjson::SUCCESS;
  for (const dom::element element : entries) {
    dom::object entry;
    if (element.get(entry) != simdjson::SUCCESS) source.refuse("an entry is not an object");
    if (dump.ops.size() >= kMostOps) source.refuse(fmt::format("it has more than {} entries", kMostOps));
    hang::RecordedOp op;
    const std::string_view what = textAt(entry, "what"), kind = textAt(entry, "kind"), state = textAt(entry, "state");
    op.name = std::string(what.substr(0, kMostText));
    op.group = group;
    op.state = state == "done" || state == "queued"    ? OpState::Done
               : state == "moving" || state == "begun" ? OpState::Started
                                                       : OpState::Posted;
    op.posted = Ns(std::max<std::int64_t>(0, numberAt(entry, "enqueued_ns", 0)));
    op.bytes = Bytes(std::max<std::int64_t>(0, numberAt(entry, "bytes", 0)));
    op.kind = kind == "send"      ? OpKind::Send
              : kind == "receive" ? OpKind::Receive
              : kind == "compute" ? OpKind::Compute
                                  : OpKind::Collective;
    if (hang::isMessage(op.kind)) {
      op.peer = source.rank(numberAt(entry, "peer", -1), "the peer of a message");
      if (op.peer.value >= ranks) source.refuse("a message names a rank that the job does not have");
      op.action = messageOf(what, op.kind == OpKind::Send);
    } else if (op.kind == OpKind::Compute) {
      op.action = actionIn(what);
    }
    op.awaited = waits && op.state != OpState::Done && textAt(awaited, "what") == what && numberAt(awaited, "enqueued_ns", -1) == op.posted;
    dump.ops.push_back(std::move(op));
  }
  source.dumps.ranks = std::max(source.dumps.ranks, static_cast<int>(ranks));
  source.add(std::move(dump));
}

}  // namespace pw::dumps
