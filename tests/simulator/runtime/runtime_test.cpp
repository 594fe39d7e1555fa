#include "simulator/runtime/runtime.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

using testing::HasSubstr;

CostTable costsOf(int stages, Ns forward, Ns backward, Ns transfer = 0, Ns latency = 0) {
  SyntheticCosts costs;
  costs.forward = {forward};
  costs.backward = {backward};
  costs.transfer = transfer;
  costs.latency = latency;
  return syntheticTable(costs, stages);
}

Ns makespan(const RuntimeRows& runtime, const CostTable& costs) {
  const PostedProgram posted = compile(runtime.rows, costs, runtime.posting);
  EXPECT_TRUE(posted.stuck.empty()) << runtime.rows.name << ": " << posted.stuck.front().message;
  if (!posted.stuck.empty()) return -1;
  Times times;
  execute(posted.program, times);
  return makespanOf(posted.program, posted.program.duration, times);
}

/// The rules again, one event after the other: everything that can be dated is dated until nothing changes. −1: a deadlock.
class Reference {
 public:
  Reference(const RuntimeRows& runtime, const CostTable& costs) : rows_(runtime.rows), posting_(runtime.posting), costs_(costs) {}

  Ns makespan() {
    const std::size_t ranks = rows_.rows.size();
    at_.assign(ranks, 0);
    clock_.assign(ranks, 0);
    waited_.assign(ranks, 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t r = 0; r < ranks; ++r) changed = advance(r) || changed;
      for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t p = 0; p < rows_.rows[r].size(); ++p) changed = (isSend(rows_.rows[r][p].kind) && transfer(r, p)) || changed;
      }
    }
    Ns end = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (at_[r] < rows_.rows[r].size() || waited_[r] < posting_.waits[r].size()) return -1;
      end = std::max(end, lastCompute_[r]);
    }
    return end;
  }

 private:
  using Place = std::pair<std::size_t, std::size_t>;

  Place placeOf(const Action& action) const {
    for (std::size_t r = 0; r < rows_.rows.size(); ++r) {
      for (std::size_t p = 0; p < rows_.rows[r].size(); ++p) {
        if (rows_.rows[r][p] == action) return {r, p};
      }
    }
    return {rows_.rows.size(), 0};
  }
  /// When a message's transfer ends and when it has arrived; nothing: not known yet.
  std::optional<std::pair<Ns, Ns>> over(Place end) const {
    const Action& action = rows_.rows[end.first][end.second];
    const auto found = moved_.find(isSend(action.kind) ? end : placeOf(counterpart(action)));
    return found == moved_.end() ? std::nullopt : std::optional(found->second);
  }

  bool advance(std::size_t r) {
    const std::vector<Action>& row = rows_.rows[r];
    const auto& waits = posting_.waits[r];
    if (waited_[r] < waits.size() && waits[waited_[r]].before <= at_[r]) {
      const Place message{r, waits[waited_[r]].message};
      const auto times = over(message);
      if (!times) return false;
      clock_[r] = std::max(clock_[r], isSend(row[message.second].kind) ? times->first : times->second);
      ++waited_[r];
      return true;
    }
    if (at_[r] == row.size()) return false;
    const Action& action = row[at_[r]];
    if (!isCompute(action.kind)) {
      if (isSend(action.kind) || isReceive(action.kind)) posted_[{r, at_[r]}] = clock_[r];
      ++at_[r];
      return true;
    }
    if (action.kind != ActionKind::BackwardWeight) {
      const Action receive{action.stage, action.kind == ActionKind::Forward ? ActionKind::RecvForward : ActionKind::RecvBackward,
                           action.microbatch};
      if (const Place place = placeOf(receive); place.first == r) {
        const auto times = over(place);
        if (!times) return false;
        clock_[r] = std::max(clock_[r], times->second);
      }
    }
    const StageCost& cost = costs_.stages[action.stage.index()];
    clock_[r] += action.kind == ActionKind::Forward ? cost.forward : cost.backward;
    lastCompute_[r] = clock_[r];
    ++at_[r];
    return true;
  }

  /// When everything that this end of a message comes after on its stream is over.
  std::optional<Ns> free(Place end) const {
    const std::vector<Action>& row = rows_.rows[end.first];
    const std::size_t peer = placeOf(counterpart(row[end.second])).first;
    std::size_t first = end.second;  // of the messages posted together with it
    while (posting_.grouped && first > 0 && posting_.joined[end.first][first - 1]) --first;
    Ns ready = 0;
    for (std::size_t p = 0; p < first; ++p) {
      if (!isSend(row[p].kind) && !isReceive(row[p].kind)) continue;
      const bool samePeer = placeOf(counterpart(row[p])).first == peer, sameWay = isSend(row[p].kind) == isSend(row[end.second].kind);
      const bool same = posting_.streams == Posting::Streams::All || (samePeer && (posting_.streams == Posting::Streams::Pair || sameWay));
      if (!same) continue;
      const auto times = over({end.first, p});
      if (!times) return std::nullopt;
      ready = std::max(ready, isSend(row[p].kind) ? times->first : times->second);
    }
    return ready;
  }

  bool transfer(std::size_t r, std::size_t p) {
    const Place send{r, p}, receive = placeOf(counterpart(rows_.rows[r][p]));
    if (moved_.contains(send) || !posted_.contains(send) || !posted_.contains(receive)) return false;
    const auto a = free(send), b = free(receive);
    if (!a || !b) return false;
    for (const MessageCost& m : costs_.messages) {
      const Action& action = rows_.rows[r][p];
      if (m.from != action.stage || m.backward != (action.kind == ActionKind::SendBackward)) continue;
      Ns start = std::max({posted_[send], posted_[receive], *a, *b});
      for (const auto& [other, times] : moved_) {  // a wire carries one message at a time, in the order of the sender's row
        const bool sameWire = other.first == r && placeOf(counterpart(rows_.rows[r][other.second])).first == receive.first;
        if (sameWire && other.second < p) start = std::max(start, times.first);
      }
      moved_[send] = {start + m.transfer, start + m.transfer + m.latency};
    }
    return true;
  }

  const Schedule& rows_;
  const Posting& posting_;
  const CostTable& costs_;
  std::vector<std::size_t> at_, waited_;
  std::vector<Ns> clock_;
  std::map<std::size_t, Ns> lastCompute_;
  std::map<Place, Ns> posted_;
  std::map<Place, std::pair<Ns, Ns>> moved_;
};

// Without message times the published step of both: (M + R − 1)(F + B).
TEST(Runtime, RunsOneStagePerRankInTheTimeOfTheClosedForm) {
  for (const int ranks : {2, 3, 5}) {
    for (const int microbatches : {ranks, ranks + 1, 3 * ranks}) {
      const CostTable costs = costsOf(ranks, 3, 5);
      const Schedule plain = generate("1f1b", {ranks, ranks, microbatches});
      const Ns expected((microbatches + ranks - 1) * (3 + 5));
      EXPECT_EQ(makespan(megatronRows(plain), costs), expected);
      EXPECT_EQ(makespan(torchRows(plain, PendingReceives::Block, true), costs), expected);
      EXPECT_EQ(makespan(torchRows(plain, PendingReceives::Overlap), costs), expected);
      EXPECT_EQ(makespan(torchRows(generate("gpipe", {ranks, ranks, microbatches}), PendingReceives::Block, true), costs), expected);
    }
  }
}

// Narayanan et al. 2021: M V (f + b) and a bubble of (R − 1)(f + b).
TEST(Runtime, RunsMegatronsInterleavedStagesInTheTimeOfTheClosedForm) {
  for (const int ranks : {2, 3, 4, 6}) {
    for (const int chunks : {2, 3, 4}) {
      for (const int rounds : {1, 2, 3}) {
        const Schedule schedule = interleavedWithGroups({ranks, ranks * chunks, ranks * rounds}, ranks);
        const CostTable costs = costsOf(ranks * chunks, 1, 2);
        EXPECT_EQ(makespan(megatronRows(schedule), costs), ranks * rounds * chunks * 3 + (ranks - 1) * 3)
            << ranks << " ranks, " << chunks << " chunks, " << ranks * rounds << " microbatches";
      }
    }
  }
}

/// pytorch issue 172668: PP 2, two stages on each rank, as torch prints its order for four microbatches (without UNSHARD and the like).
const std::string kPrinted =
    "0F0,0SEND_F0,2RECV_F0,0F1,0SEND_F1,2RECV_F1,2F0,2SEND_F0,2F1,2SEND_F1,2RECV_B0,0F2,0SEND_F2,2B0,2SEND_B0,2RECV_B1,0F3,0SEND_F3,2RECV_"
    "F2,"
    "2B1,2SEND_B1,0RECV_B0,2F2,2SEND_F2,2RECV_F3,0B0,0RECV_B1,2F3,2SEND_F3,0B1,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,"
    "0RECV_B3,0B3\r\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3RECV_F1,3B0,3SEND_B0,1RECV_F2,3F1,1RECV_B0,3B1,3SEND_B1,1RECV_F3,1F2,1SEND_"
    "F2,"
    "1RECV_B1,1B0,1SEND_B0,3RECV_F2,1F3,1SEND_F3,1B1,1SEND_B1,3RECV_F3,3F2,3B2,3SEND_B2,1RECV_B2,3F3,3B3,3SEND_B3,1RECV_B3,1B2,1SEND_B2,"
    "1B3,"
    "1SEND_B3\r\n";

TEST(Runtime, ShowsTheBubbleOfAPendingReceive) {
  const Schedule printed = parseCsv(kPrinted, "printed", "printed");
  EXPECT_EQ(lower(generate("interleaved-1f1b", {2, 4, 4}), Lowering::Torch).rows, printed.rows);
  const CostTable costs = costsOf(4, 1, 2);
  const Ns without = 4 * 2 * 3 + 3;  // M V (f + b) + (R − 1)(f + b)
  EXPECT_EQ(makespan(torchRows(printed, PendingReceives::Overlap), costs), without);
  const RuntimeRows blocking = torchRows(printed, PendingReceives::Block);
  EXPECT_EQ(makespan(blocking, costs), Reference(blocking, costs).makespan());
  EXPECT_GT(makespan(blocking, costs), without);

  // As the issue says, 2RECV_F0 is in the way of 0F1: rank 1 sends it only after 1F0, from 1 to 2.
  const PostedProgram posted = compile(blocking.rows, costs, blocking.posting);
  Times times;
  execute(posted.program, times);
  const std::vector<BlockedBy> blocked = blockedReceives(blocking.rows, posted.program, times);
  ASSERT_FALSE(blocked.empty());
  EXPECT_EQ(blocked.front(),
            (BlockedBy{Rank(0), {Stage(2), ActionKind::RecvForward, Microbatch(0)}, {Stage(0), ActionKind::Forward, Microbatch(1)}, 1, 2}));
}

TEST(Runtime, IsWhatItsRulesSay) {
  std::mt19937 random(5);
  const auto up = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  int deadlocks = 0;
  for (int i = 0; i < 150; ++i) {
    const int ranks = up(2, 4), chunks = up(1, 3), microbatches = ranks * up(1, 2);
    const Schedule schedule =
        chunks == 1 ? generate("1f1b", {ranks, ranks, microbatches}) : interleavedWithGroups({ranks, ranks * chunks, microbatches}, ranks);
    CostTable costs = costsOf(ranks * chunks, 1, 1);
    for (StageCost& cost : costs.stages) cost.forward = Ns(up(1, 9)), cost.backward = Ns(up(1, 9));
    for (MessageCost& message : costs.messages) message.transfer = Ns(up(0, 3)), message.latency = Ns(up(0, 3));
    std::vector<RuntimeRows> all{megatronRows(schedule), torchRows(schedule, PendingReceives::Block),
                                 torchRows(schedule, PendingReceives::Overlap), torchRows(lower(schedule), PendingReceives::Block)};
    if (chunks == 1) all.push_back(torchRows(schedule, PendingReceives::Block, true));
    if (chunks == 1 || ranks > 2) all.push_back(megatronRows(schedule, MegatronMessages::Block));
    all.push_back(torchRows(messagesWhenDue(schedule, costs), PendingReceives::Block));
    for (const RuntimeRows& runtime : all) {
      const Ns expected = Reference(runtime, costs).makespan();
      const PostedProgram posted = compile(runtime.rows, costs, runtime.posting);
      ASSERT_EQ(posted.stuck.empty(), expected >= 0) << runtime.how;
      deadlocks += expected < 0 ? 1 : 0;
      if (expected < 0) continue;
      ASSERT_EQ(makespan(runtime, costs), expected) << runtime.how << ", " << ranks << " ranks, " << chunks << " chunks, " << microbatches;
    }
  }
  EXPECT_EQ(deadlocks, 0);
}

// Without time to wait for, the order of the messages alone delays nothing.
TEST(Runtime, LetsMegatronWaitForItsMessages) {
  for (const auto& [ranks, chunks, microbatches] : {std::tuple{3, 2, 6}, {4, 2, 4}, {4, 3, 8}, {5, 2, 10}}) {
    const Schedule schedule = interleavedWithGroups({ranks, ranks * chunks, microbatches}, ranks);
    for (const Ns latency : {Ns{0}, Ns{2}}) {
      const CostTable costs = costsOf(ranks * chunks, 1, 2, 0, latency);
      const RuntimeRows waits = megatronRows(schedule, MegatronMessages::Block);
      EXPECT_EQ(makespan(waits, costs), Reference(waits, costs).makespan());
      const Ns overlapped = makespan(megatronRows(schedule), costs);
      EXPECT_EQ(makespan(waits, costs) > overlapped, latency > 0) << ranks << " ranks: only what takes time delays";
    }
    // Every message is in a group that its rank waits for at once.
    const RuntimeRows rows = megatronRows(schedule, MegatronMessages::Block);
    for (std::size_t r = 0; r < rows.rows.rows.size(); ++r) {
      const std::vector<Action>& row = rows.rows.rows[r];
      EXPECT_EQ(std::ssize(rows.posting.waits[r]), std::ranges::count_if(row, [](const Action& a) { return !isCompute(a.kind); }));
      for (const Posting::Wait& wait : rows.posting.waits[r]) {
        for (std::size_t at = wait.message; at < wait.before; ++at) EXPECT_FALSE(isCompute(row[at].kind));
      }
    }
  }
  // 1F1B is as it is.
  const Schedule plain = generate("1f1b", {3, 3, 6});
  EXPECT_EQ(megatronRows(plain, MegatronMessages::Block).posting, megatronRows(plain).posting);
}

ActionTimes timesOf(const CostTable& costs) {
  ActionTimes times;
  for (const StageCost& cost : costs.stages) {
    times.forward.push_back(cost.forward);
    times.backward.push_back(cost.backward);
    times.input.push_back(cost.backwardInput);
    times.weight.push_back(cost.backwardWeight);
  }
  return times;
}

TEST(Runtime, PlacesMessagesByWhenTheyArrive) {
  int faster = 0;
  for (const auto& [name, shape] : {std::pair{"1f1b", Shape{4, 4, 8}},
                                    {"interleaved-1f1b", {2, 4, 4}},
                                    {"interleaved-1f1b", {4, 8, 8}},
                                    {"zb-h1", {4, 4, 8}},
                                    {"zbv", {4, 8, 8}}}) {
    for (const Ns latency : {Ns{0}, Ns{1}, Ns{3}}) {
      CostTable costs = costsOf(shape.stages, 10, 20, 0, latency);
      for (StageCost& cost : costs.stages) cost.backwardInput = cost.backwardWeight = 10;
      const Schedule schedule = generate(name, shape), placed = messagesWhenDue(schedule, costs);
      EXPECT_EQ(computeOnly(placed).rows, computeOnly(lower(schedule)).rows);
      const Ns makes = makespan(torchRows(placed, PendingReceives::Block), costs);
      const Ns without = makespan(torchRows(lower(schedule, timesOf(costs)), PendingReceives::Block), costs);
      EXPECT_LE(makes, without) << name << ", latency " << latency;
      if (latency == 0) {
        EXPECT_EQ(placed, lower(schedule, timesOf(costs))) << name;
      }
      faster += makes < without ? 1 : 0;
    }
  }
  EXPECT_GT(faster, 0);
}

// The two ranks of the later comment: both wait for a message that the other would send after its own wait.
TEST(Runtime, FindsADeadlock) {
  const Schedule rows =
      parseCsv("0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n", "x", "x");
  const CostTable costs = costsOf(2, 1, 1);
  const RuntimeRows blocking = torchRows(rows, PendingReceives::Block);
  EXPECT_EQ(Reference(blocking, costs).makespan(), -1);
  const PostedProgram posted = compile(blocking.rows, costs, blocking.posting);
  ASSERT_EQ(posted.stuck.size(), 2U);
  EXPECT_EQ(posted.stuck[0].message, "rank 0 waits for ever at 0RECV_B0");
  EXPECT_EQ(posted.stuck[1].message, "rank 1 waits for ever at 1RECV_F1");
}

TEST(Runtime, RefusesWhatARuntimeDoesNotHave) {
  const auto refusal = [](const auto& make) {
    try {
      (void)make();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal([] { return megatronRows(generate("zbv", {2, 4, 4})); }), HasSubstr("zbv is neither"));
  EXPECT_THAT(refusal([] { return megatronRows(generate("gpipe", {2, 2, 4})); }), HasSubstr("gpipe is neither"));
  EXPECT_THAT(refusal([] {
                return torchRows(generate("zb-h1", {2, 2, 4}), PendingReceives::Block, true);
              }),
              HasSubstr("neither torch's GPipe"));
}

}  // namespace
}  // namespace pw
