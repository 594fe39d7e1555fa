#include "simulator/order/proof/arcs.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

namespace pw {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

void addMessages(const OrderModel& model, std::int32_t smallest, std::vector<WindowArc>& arcs) {
  for (std::size_t c = 0; c < model.classes.size(); ++c) {
    const auto from = static_cast<std::int32_t>(c);
    const OrderModel::ActionClass& of = model.classes[c];
    for (std::int32_t m = 0; m < model.microbatches; ++m) {
      const ActionId action = model.actionOf(from, m);
      for (const std::int32_t to : of.after) arcs.push_back({action, model.actionOf(to, m), 0});
      for (const OrderModel::Hop& hop : of.hops) {
        if (hop.exchanges) arcs.push_back({action, model.actionOf(hop.to, m), hop.latency + model.scaled(hop.transfer, smallest)});
      }
      if (m > 0) arcs.push_back({model.actionOf(from, m - 1), action, 0});
    }
  }
}

/// Stages of the rank in the order of the chain. When F of microbatch m of stage s starts, its rank has started m + 1 of s and of each
/// stage before it, and ended at most m I and W of these; what later stages hold is at least nothing.
void addRoom(const OrderModel& model, std::int32_t rank, std::vector<WindowArc>& arcs) {
  std::vector<std::int32_t> stages;
  for (const std::int32_t c : model.classesOf[at(rank)]) {
    if (c < model.stages) stages.push_back(c);
  }
  const auto input = [&](std::int32_t s) { return s + model.stages; };
  const auto weight = [&](std::int32_t s) { return s + 2 * model.stages; };
  for (std::size_t own = 0; own < stages.size(); ++own) {
    for (std::int32_t m = 1; m < model.microbatches; ++m) {
      /// Whether it fits when I of the stage at `t` has ended `inputs` times, W `weights` times, and all else as often as it can.
      const auto fits = [&](std::size_t t, std::int32_t inputs, std::int32_t weights) {
        Bytes held = model.classes[at(stages[own])].peak;
        std::int64_t live = 0;
        for (std::size_t i = 0; i <= own; ++i) {
          const std::int32_t s = stages[i];
          const std::int32_t ended = i <= t ? std::min(m, inputs) : m;  // I of earlier stages comes after that of later ones
          const std::int32_t died = i == t ? std::min(ended, weights) : ended;
          const Bytes freed = model.classes[at(input(s))].loss;  // less than 0 where I adds what W needs
          held += model.classes[at(s)].gain * (m + 1) - freed * (freed < 0 ? died : ended) - model.classes[at(weight(s))].loss * died;
          live += m + 1 - died;
        }
        return held <= model.limit[at(rank)] && live <= model.liveLimit[at(rank)];
      };
      const ActionId forward = model.actionOf(stages[own], m);
      for (std::size_t t = 0; t <= own; ++t) {
        std::int32_t inputs = 0, weights = 0;
        while (inputs < m && !fits(t, inputs, inputs)) ++inputs;
        while (weights < m && !fits(t, m, weights)) ++weights;
        if (inputs > 0) arcs.push_back({model.actionOf(input(stages[t]), inputs - 1), forward, 0});
        if (weights > 0) arcs.push_back({model.actionOf(weight(stages[t]), weights - 1), forward, 0});
      }
    }
  }
}

}  // namespace

std::vector<WindowArc> windowArcs(const OrderModel& model, std::int32_t smallest) {
  std::vector<WindowArc> arcs;
  addMessages(model, smallest, arcs);
  for (std::int32_t rank = 0; rank < model.ranks; ++rank) addRoom(model, rank, arcs);
  // The order of one microbatch after the other keeps all of them.
  const auto placeOf = [&](ActionId action) {
    const std::int32_t c = model.classOf(action), kind = c / model.stages, s = c % model.stages;
    const std::int32_t inChain = kind == 0 ? s : model.stages + 2 * (model.stages - 1 - s) + (kind - 1);
    return std::int64_t{model.microbatchOf(action)} * 3 * model.stages + inChain;
  };
  std::stable_sort(arcs.begin(), arcs.end(), [&](const WindowArc& a, const WindowArc& b) { return placeOf(a.to) < placeOf(b.to); });
  return arcs;
}

WindowAncestors windowAncestors(const OrderModel& model, const std::vector<WindowArc>& arcs) {
  const std::size_t classes = model.classes.size();
  const auto counted = [&](bool before) {
    std::vector<std::int32_t> counts(model.actions() * classes, 0);
    const auto follow = [&](ActionId from, ActionId to) {
      std::int32_t* const of = &counts[at(to) * classes];
      const std::int32_t* const others = &counts[at(from) * classes];
      for (std::size_t c = 0; c < classes; ++c) of[c] = std::max(of[c], others[c]);
      const std::int32_t m = model.microbatchOf(from);
      std::int32_t& own = of[model.classOf(from)];
      own = std::max(own, before ? m + 1 : model.microbatches - m);
    };
    if (before) {
      for (const WindowArc& arc : arcs) follow(arc.from, arc.to);
    } else {
      for (const WindowArc& arc : std::views::reverse(arcs)) follow(arc.to, arc.from);
    }
    std::vector<std::vector<std::int32_t>> ofRank(model.actions());
    for (std::size_t a = 0; a < model.actions(); ++a) {
      const OrderModel::ActionClass& of = model.classes[at(model.classOf(static_cast<ActionId>(a)))];
      for (const std::int32_t c : model.classesOf[at(of.rank)]) ofRank[a].push_back(counts[a * classes + at(c)]);
    }
    return ofRank;
  };
  return {counted(true), counted(false)};
}

}  // namespace pw
