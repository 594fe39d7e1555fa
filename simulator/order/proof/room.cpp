#include "simulator/order/proof/room.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace pw {
namespace {

/// A stage and microbatch of a rank, and what it holds: from its F to its I, and from there to its W.
struct Pair {
  ActionId forward, input, weight;
  Bytes before, after;
};

/// What is surely held from a time to another.
struct Stretch {
  Ns from, to;
  Bytes bytes;
  std::int32_t live;
};

/// What a rank surely holds: each pair from the latest start of its F, all of it until the earliest end of its I, what W needs until the
/// earliest end of that.
struct TimeTable {
  std::vector<Pair> pairs;
  std::vector<Stretch> stretches;

  [[nodiscard]] auto firstFrom(Ns time) const {
    return std::upper_bound(stretches.begin(), stretches.end(), time, [](Ns t, const Stretch& stretch) { return t < stretch.to; });
  }
};

TimeTable timeTableOf(const Windows& windows, Rank rank) {
  const OrderModel& model = windows.model();
  TimeTable table;
  struct Change {
    Ns time;
    Bytes bytes;
    std::int32_t live;
  };
  std::vector<Change> changes;
  const auto hold = [&](Ns from, Ns to, Bytes bytes, std::int32_t live) {
    if (from >= to) return;
    changes.push_back({from, bytes, live});
    changes.push_back({to, -bytes, -live});
  };
  for (const ClassId forward : model.classesOf[rank.index()]) {
    if (!model.isForward(forward)) continue;
    for (Microbatch m(0); m.value < model.microbatches; ++m.value) {
      const ActionId action = model.actionOf(forward, m);
      hold(windows.latestStart(action), windows.earliestEnd(action), model.classes[forward.index()].use.peak, 0);
    }
    const ClassId input = model.inputOf(model.stageOf(forward)), weight = model.weightOf(model.stageOf(forward));
    for (const ClassId c : {input, weight}) {
      const Bytes peak = model.classes[c.index()].use.peak;
      for (Microbatch m(0); m.value < model.microbatches && peak > 0; ++m.value) {
        const ActionId action = model.actionOf(c, m);
        hold(windows.latestStart(action), windows.earliestEnd(action), peak, 0);
      }
    }
    const Bytes before = model.classes[forward.index()].use.gain, after = before - model.classes[input.index()].use.loss;
    for (Microbatch m(0); m.value < model.microbatches; ++m.value) {
      const Pair pair{model.actionOf(forward, m), model.actionOf(input, m), model.actionOf(weight, m), before, std::min(before, after)};
      const Ns start = windows.latestStart(pair.forward), middle = std::max(start, windows.earliestEnd(pair.input)),
               end = windows.earliestEnd(pair.weight);
      hold(start, std::min(middle, end), pair.before, 1);
      hold(middle, end, pair.after, 1);
      table.pairs.push_back(pair);
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  Bytes bytes = 0;
  std::int32_t live = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    bytes += changes[i].bytes;
    live += changes[i].live;
    if (i + 1 == changes.size() || changes[i + 1].time == changes[i].time) continue;
    table.stretches.push_back({changes[i].time, changes[i + 1].time, bytes, live});
  }
  return table;
}

bool keepTimeTable(Windows& windows, Rank rank) {
  const Bytes limit = windows.model().limit[rank.index()];
  const std::int32_t most = windows.model().liveLimit[rank.index()];
  const TimeTable table = timeTableOf(windows, rank);
  const auto& stretches = table.stretches;
  if (std::ranges::any_of(stretches, [&](const Stretch& stretch) { return stretch.bytes > limit || stretch.live > most; })) return false;
  for (const Pair& pair : table.pairs) {
    const Ns start = windows.latestStart(pair.forward), inputEnd = windows.earliestEnd(pair.input),
             weightEnd = windows.earliestEnd(pair.weight);
    Ns forward = windows.earliestStart(pair.forward);
    for (auto s = table.firstFrom(forward); s != stretches.end() && s->from < start; ++s) {  // its own bytes are not in there
      const Ns held = std::max(s->from, forward);
      const bool fits = held >= weightEnd || (s->live < most && s->bytes + (held < inputEnd ? pair.before : pair.after) <= limit);
      if (!fits) forward = std::min(s->to, start);
    }
    if (!windows.raise(Windows::Ahead, pair.forward, forward)) return false;
    const auto endBefore = [&](ActionId action, Ns from, Bytes holds) {
      for (auto s = table.firstFrom(from); s != stretches.end() && s->from < windows.latestEnd(action); ++s) {
        const Ns held = std::max(s->from, from);
        if (held < start) continue;
        const bool counted = held < weightEnd;  // its own, which W needs
        if (s->bytes + holds - (counted ? pair.after : 0) > limit || s->live + (counted ? 0 : 1) > most)
          return windows.raise(Windows::Back, action, -held);
      }
      return true;
    };
    if (!endBefore(pair.input, inputEnd, pair.before) || !endBefore(pair.weight, weightEnd, pair.after)) return false;
  }
  return true;
}

/// A stage and microbatch of a rank, and what it holds: after its F, and after its I.
struct HeldPair {
  ActionId forward, input, weight;
  Bytes afterForward = 0, afterInput = 0;
};

std::vector<HeldPair> pairsOf(const OrderModel& model, Rank rank) {
  std::vector<HeldPair> pairs;
  for (const ClassId forward : model.classesOf[rank.index()]) {
    if (!model.isForward(forward)) continue;
    const ClassId input = model.inputOf(model.stageOf(forward)), weight = model.weightOf(model.stageOf(forward));
    const Bytes held = model.classes[forward.index()].use.gain, after = held - model.classes[input.index()].use.loss;
    for (Microbatch m(0); m.value < model.microbatches; ++m.value)
      pairs.push_back({model.actionOf(forward, m), model.actionOf(input, m), model.actionOf(weight, m), held, after});
  }
  return pairs;
}

/// What a pair whose F has started holds at least when another action starts: if any of its ends may have come before; without its W; and
/// without its I, too.
struct Held {
  Bytes least = 0, withoutWeight = 0, withoutInput = 0;
  bool input = false, weight = false;  ///< whether they may, and need not, come before
  bool live = true;                    ///< at least
  ActionId at{-1};                     ///< that other action
};

Held heldAt(const Windows& windows, const HeldPair& pair, ActionId action) {
  const bool ended = windows.precedes(pair.input, action), died = windows.precedes(pair.weight, action);
  Held held;
  held.at = action;
  held.input = !ended && !windows.precedes(action, pair.input);
  held.weight = !died && !windows.precedes(action, pair.weight);
  held.withoutInput = pair.afterForward;
  held.withoutWeight = ended ? pair.afterInput : held.input ? std::min(pair.afterForward, pair.afterInput) : pair.afterForward;
  held.live = !died && !held.weight;
  held.least = held.live ? held.withoutWeight : 0;
  return held;
}

/// Keeps the room of one action of a pair: `bytes` are what its own pair holds when it starts, and its peak.
bool keepBalanceAt(Windows& windows, Rank rank, const std::vector<HeldPair>& pairs, std::vector<Held>& helds, const HeldPair& own,
                   ActionId start, Bytes bytes) {
  const Bytes limit = windows.model().limit[rank.index()];
  const std::int32_t most = windows.model().liveLimit[rank.index()];
  std::int32_t live = 1;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].forward == own.forward || !windows.precedes(pairs[p].forward, start)) continue;
    helds[p] = heldAt(windows, pairs[p], start);
    bytes += helds[p].least;
    live += helds[p].live ? 1 : 0;
  }
  if (bytes > limit || live > most) return false;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const HeldPair& pair = pairs[p];
    if (pair.forward == own.forward || windows.precedes(start, pair.forward)) continue;
    if (!windows.precedes(pair.forward, start)) {
      const Held held = heldAt(windows, pair, start);
      const bool room = bytes + held.least <= limit && live + (held.live ? 1 : 0) <= most;
      if (!room && !windows.decide(start, pair.forward)) return false;
      continue;
    }
    const Held& held = helds[p];
    if (held.at != start) continue;  // decided since the sum was made, and not in it
    const Bytes others = bytes - held.least;
    if (held.weight && (others + held.withoutWeight > limit || live + 1 > most)) {
      if (!windows.decide(pair.weight, start)) return false;
    } else if (held.input && others + held.withoutInput > limit) {
      if (!windows.decide(pair.input, start)) return false;
    }
  }
  return true;
}

bool keepBalance(Windows& windows, Rank rank) {
  const OrderModel& model = windows.model();
  const auto peakOf = [&](ActionId action) { return model.classes[model.classOf(action).index()].use.peak; };
  const std::vector<HeldPair> pairs = pairsOf(model, rank);
  std::vector<Held> helds(pairs.size());
  return std::ranges::all_of(pairs, [&](const HeldPair& own) {
    const Bytes atInput = peakOf(own.input), atWeight = peakOf(own.weight);
    const auto keep = [&](ActionId start, Bytes bytes) { return keepBalanceAt(windows, rank, pairs, helds, own, start, bytes); };
    return keep(own.forward, own.afterForward + peakOf(own.forward)) && (atInput <= 0 || keep(own.input, own.afterForward + atInput)) &&
           (atWeight <= 0 || keep(own.weight, own.afterInput + atWeight));
  });
}

}  // namespace

bool keepRoom(Windows& windows, Rank rank) {
  const OrderModel& model = windows.model();
  const bool limited = model.limit[rank.index()] != std::numeric_limits<Bytes>::max() ||
                       model.liveLimit[rank.index()] != std::numeric_limits<std::int32_t>::max();
  return !limited || (keepTimeTable(windows, rank) && keepBalance(windows, rank));
}

}  // namespace pw
