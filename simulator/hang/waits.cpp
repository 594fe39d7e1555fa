#include "simulator/hang/waits.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace pw::hang {
namespace {

constexpr std::size_t kMostOpen = 256;  ///< operations of a dump

/// One message: by the order in its pair, or by its action.
struct MessageKey {
  std::size_t group = 0;
  JobRank from, to;
  std::int64_t number = 0;  ///< in its pair, or the step of the action
  Action action = kIdle;

  auto operator<=>(const MessageKey&) const = default;
};

struct HashKey {
  std::size_t operator()(const MessageKey& key) const noexcept {
    std::size_t hash = key.group;
    const auto mix = [&](std::int64_t value) { hash = hash * 0x9E3779B97F4A7C15U + static_cast<std::size_t>(value) + (hash >> 32U); };
    mix(key.from.value);
    mix(key.to.value);
    mix(key.number);
    mix(key.action.stage.value);
    mix(static_cast<std::int64_t>(key.action.kind));
    mix(key.action.microbatch.value);
    return hash ^ (hash >> 29U);
  }
};

struct End {
  std::size_t dump = 0, op = 0;
};

struct Ends {
  std::optional<End> sender{}, receiver{};
};

using CollectiveKey = std::tuple<std::size_t, std::int64_t, std::string>;

/// Messages and collectives of all dumps, found from each end.
class Matches {
 public:
  Matches(const Dumps& dumps, const Rows* rows) : dumps_(dumps), rows_(rows) {
    for (std::size_t d = 0; d < dumps.dumps.size(); ++d) {
      index_[dumps.dumps[d].rank] = d;
      isWhole_ = isWhole_ && dumps.dumps[d].complete;
      named_.push_back(std::ranges::any_of(dumps.dumps[d].ops, [](const RecordedOp& op) { return op.action.has_value(); }));
    }
    keys_.resize(dumps.dumps.size());
    collectiveKeys_.resize(dumps.dumps.size());
    for (std::size_t d = 0; d < dumps.dumps.size(); ++d) addDump(d);
  }

  using Messages = std::unordered_map<MessageKey, Ends, HashKey>;
  [[nodiscard]] const Messages& messages() const { return messages_; }
  /// `all`: each member that a collective waits for; else the first.
  void addWaits(std::size_t dump, std::size_t op, bool all, std::vector<Wait>& waits) const;

 private:
  using Pair = std::tuple<std::size_t, JobRank, JobRank, bool>;  ///< of the set-up, or not
  [[nodiscard]] bool byAction(std::size_t a, JobRank peer) const;
  [[nodiscard]] MessageKey keyOf(std::size_t dump, std::size_t op, std::map<Pair, std::int64_t>& next,
                                 const std::map<Pair, std::int64_t>& done) const;
  void addDump(std::size_t dump);
  void addMessage(const Wait& base, std::size_t dump, std::vector<Wait>& waits) const;
  void addCollective(const Wait& base, std::size_t dump, bool all, std::vector<Wait>& waits) const;
  [[nodiscard]] bool isWhole(std::size_t dump, JobRank peer) const {
    const auto other = index_.find(peer);
    return dumps_.dumps[dump].complete && (other == index_.end() || dumps_.dumps[other->second].complete);
  }

  const Dumps& dumps_;
  const Rows* rows_;
  std::map<JobRank, std::size_t> index_{};
  bool isWhole_ = true;  ///< no dump lost its beginning
  Messages messages_{};
  std::map<CollectiveKey, std::map<JobRank, End>> collectives_{};
  std::vector<bool> named_{};  ///< by dump: its recorder names actions
  /// By dump and operation: of what is not done.
  std::vector<std::map<std::size_t, MessageKey>> keys_{};
  std::vector<std::map<std::size_t, CollectiveKey>> collectiveKeys_{};
};

/// Whether both ranks' messages have actions that can be compared.
bool Matches::byAction(std::size_t a, JobRank peer) const {
  const auto other = index_.find(peer);
  if (other == index_.end()) return false;
  return named_[a] && named_[other->second];
}

MessageKey Matches::keyOf(std::size_t d, std::size_t op, std::map<Pair, std::int64_t>& next,
                          const std::map<Pair, std::int64_t>& done) const {
  const RankDump& dump = dumps_.dumps[d];
  const RecordedOp& recorded = dump.ops[op];
  const bool sends = recorded.kind == OpKind::Send;
  MessageKey key{recorded.group, sends ? dump.rank : recorded.peer, sends ? recorded.peer : dump.rank, 0, kIdle};
  const Pair pair{key.group, key.from, key.to, recorded.setsUp};
  const std::int64_t number = next[pair]++;
  key.number = number;
  if (recorded.setsUp) key.action = {Stage{-3}, ActionKind::SendForward, Microbatch{-1}};
  if (!recorded.setsUp && byAction(d, recorded.peer)) {
    if (const std::optional<Action>& action = recorded.action) {
      key.action = sends ? *action : counterpart(*action);
      key.action.overlapsNext = false;
      key.number = rows_ != nullptr && rows_->ranks[d].places[op] ? rows_->ranks[d].places[op]->step : std::max(0, dump.step);
      return key;
    }
    key.number = -1 - number;  // of no action: it has no other end
    key.action = {Stage{-2}, sends ? ActionKind::SendForward : ActionKind::RecvForward, Microbatch{-1}};
    return key;
  }
  if (!isWhole(d, recorded.peer)) {
    const auto all = done.find(pair);
    key.number -= all == done.end() ? 0 : all->second;
  }
  return key;
}

void Matches::addDump(std::size_t d) {
  const RankDump& dump = dumps_.dumps[d];
  std::map<Pair, std::int64_t> next, done;
  std::map<std::pair<std::size_t, std::string>, std::int64_t> nextCollective;
  struct Launch {
    std::int64_t sequence = -1, number = -1;
  };
  std::map<std::size_t, Launch> launches;  // the last collective of each group
  for (const RecordedOp& op : dump.ops) {
    if (isMessage(op.kind) && op.state == OpState::Done) {
      const bool sends = op.kind == OpKind::Send;
      ++done[{op.group, sends ? dump.rank : op.peer, sends ? op.peer : dump.rank, op.setsUp}];
    }
  }
  for (std::size_t i = 0; i < dump.ops.size(); ++i) {
    const RecordedOp& op = dump.ops[i];
    if (op.kind == OpKind::Collective) {
      Launch& launch = launches[op.group];
      if (op.sequence >= 0 && op.sequence != launch.sequence) launch = {op.sequence, launch.number + 1};
      const std::int64_t number = op.sequence < 0 ? nextCollective[{op.group, op.name}]++ : isWhole_ ? launch.number : op.sequence;
      const CollectiveKey key{op.group, number, op.sequence >= 0 ? std::string() : op.name};
      collectives_[key].emplace(dump.rank, End{d, i});
      if (op.state != OpState::Done) collectiveKeys_[d].emplace(i, key);
    }
    if (!isMessage(op.kind)) continue;
    const MessageKey key = keyOf(d, i, next, done);
    Ends& ends = messages_[key];
    std::optional<End>& mine = op.kind == OpKind::Send ? ends.sender : ends.receiver;
    if (!mine) mine = End{d, i};
    if (op.state != OpState::Done) keys_[d].emplace(i, key);
  }
}

void Matches::addMessage(const Wait& base, std::size_t d, std::vector<Wait>& waits) const {
  const RecordedOp& op = dumps_.dumps[d].ops[base.op];
  Wait wait = base;
  wait.on = op.peer;
  const auto peer = index_.find(op.peer);
  const Ends& ends = messages_.at(keys_[d].at(base.op));
  const std::optional<End>& other = op.kind == OpKind::Send ? ends.receiver : ends.sender;
  if (peer == index_.end()) {
    wait.reason = Reason::NoDump;
  } else if (other) {
    const RecordedOp& theirs = dumps_.dumps[other->dump].ops[other->op];
    wait.other = other->op;
    const bool differ = op.bytes > 0 && theirs.bytes > 0 && op.bytes != theirs.bytes;
    // It has arrived; a recorder on the host learns of a send's end only when the host waits for it.
    if (op.kind == OpKind::Send && theirs.state == OpState::Done && !differ) return;
    wait.reason = differ ? Reason::SizesDiffer : theirs.state == OpState::Done ? Reason::TheyAreDone : Reason::Unfinished;
  }
  waits.push_back(wait);
}

/// Whether no rank ends such a collective before all have begun it.
bool needsAll(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return has("barrier") || has("all_reduce") || has("allreduce") || has("all_gather") || has("allgather") || has("reduce_scatter") ||
         has("all_to_all") || has("alltoall");
}

void Matches::addCollective(const Wait& base, std::size_t d, bool all, std::vector<Wait>& waits) const {
  const RecordedOp& op = dumps_.dumps[d].ops[base.op];
  const std::map<JobRank, End>& posts = collectives_.at(collectiveKeys_[d].at(base.op));
  const auto isOver = [&](const auto& post) {
    const RecordedOp& other = dumps_.dumps[post.second.dump].ops[post.second.op];
    return other.state == OpState::Done && other.name == op.name && other.bytes == op.bytes;
  };
  // Another's end proves that this rank's began; a recorder on the host learns of the end of its own later.
  if (op.state == OpState::Posted && needsAll(op.name) && std::ranges::any_of(posts, isOver)) return;
  const std::size_t before = waits.size();
  std::optional<Wait> unfinished;  // on a member that waits in something before, else on the first
  bool isHeld = false;
  for (std::size_t place = 0; place < dumps_.sizeOf(op.group); ++place) {
    const JobRank member = dumps_.memberAt(op.group, place);
    if (member == base.rank) continue;
    Wait wait = base;
    wait.on = member;
    const auto theirs = posts.find(member);
    if (!index_.contains(member)) {
      wait.reason = Reason::NoDump;
    } else if (theirs != posts.end()) {
      const RecordedOp& other = dumps_.dumps[theirs->second.dump].ops[theirs->second.op];
      wait.other = theirs->second.op;
      const bool differ = op.bytes > 0 && other.bytes > 0 && op.bytes != other.bytes && op.name.find("reduce") != std::string::npos;
      wait.reason = op.name != other.name ? Reason::Unalike
                    : differ              ? Reason::SizesDiffer
                                          : (other.state == OpState::Done ? Reason::TheyAreDone : Reason::Unfinished);
      if (wait.reason == Reason::Unfinished || wait.reason == Reason::TheyAreDone) {
        const std::vector<RecordedOp>& theirOps = dumps_.dumps[theirs->second.dump].ops;
        const bool waitsBefore = std::ranges::any_of(theirOps.begin(), theirOps.begin() + static_cast<std::ptrdiff_t>(theirs->second.op),
                                                     [](const RecordedOp& o) { return o.state != OpState::Done; });
        if (!unfinished || (waitsBefore && !isHeld)) unfinished = wait, isHeld = waitsBefore;
        continue;
      }
    }
    waits.push_back(wait);
    if (!all) return;
  }
  if (waits.size() == before && unfinished) waits.push_back(*unfinished);
}

void Matches::addWaits(std::size_t d, std::size_t op, bool all, std::vector<Wait>& waits) const {
  const RankDump& dump = dumps_.dumps[d];
  const Wait base{dump.rank, op, JobRank{-1}};
  switch (dump.ops[op].kind) {
    case OpKind::Send:
    case OpKind::Receive: return addMessage(base, d, waits);
    case OpKind::Collective: return addCollective(base, d, all, waits);
    case OpKind::Compute: return;
  }
}

/// The first operations that are not done; what the rank waited for comes first.
std::vector<std::size_t> openOf(const RankDump& dump) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < dump.ops.size() && open.size() < kMostOpen; ++i) {
    if (dump.ops[i].state != OpState::Done) open.push_back(i);
  }
  std::ranges::stable_sort(open, std::greater<>{}, [&](std::size_t op) { return dump.ops[op].awaited; });
  return open;
}

}  // namespace

Waits waitsOf(const Dumps& dumps, const Rows* rows) {
  const Matches matches(dumps, rows);
  Waits waits;
  waits.open.resize(dumps.dumps.size());
  std::size_t total = 0;
  for (std::size_t d = 0; d < dumps.dumps.size(); ++d) {
    const std::vector<RecordedOp>& ops = dumps.dumps[d].ops;
    std::vector<Wait>& open = waits.open[d];
    for (const std::size_t i : openOf(dumps.dumps[d])) {
      const bool first = open.empty() || (ops[i].batch > 0 && ops[i].batch == ops[open.front().op].batch);
      matches.addWaits(d, i, first && total + open.size() < kMostWaits, open);
    }
    total += open.size();
  }
  for (const auto& [key, ends] : matches.messages()) {
    if (!ends.sender || !ends.receiver) continue;
    const RecordedOp& sent = dumps.dumps[ends.sender->dump].ops[ends.sender->op];
    const RecordedOp& received = dumps.dumps[ends.receiver->dump].ops[ends.receiver->op];
    if (sent.bytes == 0 || received.bytes == 0 || sent.bytes == received.bytes) continue;
    waits.mismatched.push_back({key.to, ends.receiver->op, key.from, Reason::SizesDiffer, ends.sender->op});
  }
  std::ranges::sort(waits.mismatched, {}, [](const Wait& wait) { return std::tuple(wait.rank, wait.on, wait.op); });
  const auto again = std::ranges::unique(waits.mismatched, {}, [](const Wait& wait) { return std::pair(wait.rank, wait.on); });
  waits.mismatched.erase(again.begin(), again.end());
  return waits;
}

}  // namespace pw::hang
