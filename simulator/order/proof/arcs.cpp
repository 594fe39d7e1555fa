#include "simulator/order/proof/arcs.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

namespace pw {
namespace {

void addMessages(const OrderModel& model, Microbatch smallest, std::vector<WindowArc>& arcs) {
  for (std::size_t c = 0; c < model.classes.size(); ++c) {
    const ClassId from(c);
    const OrderModel::ActionClass& of = model.classes[c];
    for (Microbatch m(0); m.value < model.microbatches; ++m.value) {
      const ActionId action = model.actionOf(from, m);
      for (const ClassId to : of.after) arcs.push_back({action, model.actionOf(to, m), 0});
      for (const OrderModel::Hop& hop : of.hops) {
        if (hop.exchanges) arcs.push_back({action, model.actionOf(hop.to, m), hop.latency + model.scaled(hop.transfer, smallest)});
      }
      if (m.value > 0) arcs.push_back({model.actionOf(from, Microbatch(m.value - 1)), action, 0});
    }
  }
}

/// Stages of the rank in the order of the chain. When F of microbatch m of stage s starts, its rank has started m + 1 of s and of each
/// stage before it, and ended at most m I and W of these; what later stages hold is at least nothing.
void addRoom(const OrderModel& model, Rank rank, std::vector<WindowArc>& arcs) {
  std::vector<Stage> stages;
  for (const ClassId c : model.classesOf[rank.index()]) {
    if (model.isForward(c)) stages.push_back(model.stageOf(c));
  }
  const auto useOf = [&](ClassId c) -> const MemoryUse& { return model.classes[c.index()].use; };
  for (std::size_t own = 0; own < stages.size(); ++own) {
    for (std::int32_t m = 1; m < model.microbatches; ++m) {
      /// Whether it fits when I of the stage at `t` has ended `inputs` times, W `weights` times, and all else as often as it can.
      const auto fits = [&](std::size_t t, std::int32_t inputs, std::int32_t weights) {
        Bytes held = useOf(model.forwardOf(stages[own])).peak;
        std::int64_t live = 0;
        for (std::size_t i = 0; i <= own; ++i) {
          const Stage s = stages[i];
          const std::int32_t ended = i <= t ? std::min(m, inputs) : m;  // I of earlier stages comes after that of later ones
          const std::int32_t died = i == t ? std::min(ended, weights) : ended;
          const Bytes freed = useOf(model.inputOf(s)).loss;  // less than 0 where I adds what W needs
          held += useOf(model.forwardOf(s)).gain * (m + 1) - freed * (freed < 0 ? died : ended) - useOf(model.weightOf(s)).loss * died;
          live += m + 1 - died;
        }
        return held <= model.limit[rank.index()] && live <= model.liveLimit[rank.index()];
      };
      const ActionId forward = model.actionOf(model.forwardOf(stages[own]), Microbatch(m));
      for (std::size_t t = 0; t <= own; ++t) {
        std::int32_t inputs = 0, weights = 0;
        while (inputs < m && !fits(t, inputs, inputs)) ++inputs;
        while (weights < m && !fits(t, m, weights)) ++weights;
        if (inputs > 0) arcs.push_back({model.actionOf(model.inputOf(stages[t]), Microbatch(inputs - 1)), forward, 0});
        if (weights > 0) arcs.push_back({model.actionOf(model.weightOf(stages[t]), Microbatch(weights - 1)), forward, 0});
      }
    }
  }
}

}  // namespace

std::vector<WindowArc> windowArcs(const OrderModel& model, Microbatch smallest) {
  std::vector<WindowArc> arcs;
  addMessages(model, smallest, arcs);
  for (Rank rank(0); rank.value < model.ranks; ++rank.value) addRoom(model, rank, arcs);
  // The order of one microbatch after the other keeps all of them.
  const auto placeOf = [&](ActionId action) {
    const ClassId c = model.classOf(action);
    const std::int32_t s = model.stageOf(c).value, back = model.stages + 2 * (model.stages - 1 - s);
    const std::int32_t inChain = model.isForward(c) ? s : model.kindOf(c) == ActionKind::BackwardInput ? back : back + 1;
    return std::int64_t{model.microbatchOf(action).value} * 3 * model.stages + inChain;
  };
  std::stable_sort(arcs.begin(), arcs.end(), [&](const WindowArc& a, const WindowArc& b) { return placeOf(a.to) < placeOf(b.to); });
  return arcs;
}

WindowAncestors windowAncestors(const OrderModel& model, const std::vector<WindowArc>& arcs) {
  const std::size_t classes = model.classes.size();
  const auto counted = [&](bool before) {
    std::vector<std::int32_t> counts(model.actions() * classes, 0);
    const auto follow = [&](ActionId from, ActionId to) {
      std::int32_t* const of = &counts[to.index() * classes];
      const std::int32_t* const others = &counts[from.index() * classes];
      for (std::size_t c = 0; c < classes; ++c) of[c] = std::max(of[c], others[c]);
      const std::int32_t m = model.microbatchOf(from).value;
      std::int32_t& own = of[model.classOf(from).index()];
      own = std::max(own, before ? m + 1 : model.microbatches - m);
    };
    if (before) {
      for (const WindowArc& arc : arcs) follow(arc.from, arc.to);
    } else {
      for (const WindowArc& arc : std::views::reverse(arcs)) follow(arc.to, arc.from);
    }
    std::vector<std::vector<std::int32_t>> ofRank(model.actions());
    for (std::size_t a = 0; a < model.actions(); ++a) {
      for (const ClassId c : model.classesOf[model.rankOf(ActionId(a)).index()]) ofRank[a].push_back(counts[a * classes + c.index()]);
    }
    return ofRank;
  };
  return {counted(true), counted(false)};
}

}  // namespace pw
