#include "simulator/report/memory_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "simulator/step/lanes.h"
#include "simulator/step/recost.h"

namespace pw {
namespace {

constexpr std::array<std::string_view, kMemoryKinds> kNames{"activations", "working",         "received", "sent",  "parameters",
                                                            "gradients",   "optimizer state", "buffers",  "inputs"};

/// What a rank holds while it goes along its row.
class Holdings {
 public:
  Holdings(const Schedule& rows, const CostTable& costs, const CrossingBytes& crossing)
      : rows_(rows),
        costs_(costs),
        crossing_(crossing),
        trains_(trains(rows)),
        buffers_(4 * costs.stages.size(), 0),
        handed_(costs.messages.size(), 0) {}

  void start(const Action& action) {
    if (action.kind == ActionKind::Forward) kept_[{action.stage, action.microbatch}] = costOf(action).activationBytes;
  }
  void end(const Action& action) {
    if (action.kind == ActionKind::BackwardInput) {
      kept_[{action.stage, action.microbatch}] = heldForWeight(costOf(action));
    } else if (action.kind != ActionKind::Forward || !trains_) {
      kept_.erase({action.stage, action.microbatch});
    }
  }
  void change(const BufferChange& change) {
    const std::size_t stage = change.stage.index(), in = endOf(change.stage, change.backward);
    switch (change.what) {
      case BufferChange::What::Posted: buffers_[in] += crossing_.in[in]; break;
      case BufferChange::What::Used: buffers_[in] -= crossing_.in[in]; break;
      case BufferChange::What::Kept: sent(stage) += crossing_.out[stage]; break;
      case BufferChange::What::Sent: sent(stage) -= crossing_.out[stage]; break;
      case BufferChange::What::Held: held(stage) += costs_.stages[stage].sharedForWeight; break;
      case BufferChange::What::Freed: held(stage) -= costs_.stages[stage].sharedForWeight; break;
      case BufferChange::What::Handed: handed(change.message) += costs_.messages[static_cast<std::size_t>(change.message)].bytes; break;
      case BufferChange::What::Taken: handed(change.message) -= costs_.messages[static_cast<std::size_t>(change.message)].bytes; break;
    }
  }

  /// All of it, and what is always there.
  [[nodiscard]] std::vector<MemoryPart> parts(Rank rank) const {
    std::vector<MemoryPart> parts;
    const auto add = [&](MemoryKind kind, std::size_t stage, Bytes bytes) {
      if (bytes != 0) parts.push_back({kind, Stage(stage), {}, bytes});
    };
    for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
      add(MemoryKind::Received, s, buffers_[endOf(Stage(s), false)] + buffers_[endOf(Stage(s), true)]);
      add(MemoryKind::Sent, s, buffers_[2 * costs_.stages.size() + s]);
      if (!rows_.placement.holds(rank, Stage(s))) continue;
      const StageCost& cost = costs_.stages[s];
      add(MemoryKind::Parameters, s, cost.parameterBytes);
      add(MemoryKind::Gradients, s, cost.gradientBytes);
      add(MemoryKind::OptimizerState, s, cost.optimizerBytes);
      add(MemoryKind::Buffers, s, cost.fixedBytes);
      add(MemoryKind::Inputs, s, cost.dataBytes * rows_.microbatches);
    }
    for (std::size_t m = 0; m < handed_.size(); ++m) add(MemoryKind::Received, costs_.messages[m].to.index(), handed_[m]);
    std::map<Stage, MemoryPart> activations;
    for (const auto& [of, bytes] : kept_) {
      const Bytes alone = buffers_[3 * costs_.stages.size() + of.first.index()];
      if (bytes == 0 && alone == 0) continue;
      MemoryPart& part = activations.try_emplace(of.first, MemoryPart{MemoryKind::Activations, of.first, {}, 0}).first->second;
      part.microbatches.push_back(of.second);
      part.bytes += bytes;
    }
    for (auto& [stage, part] : activations) part.bytes += buffers_[3 * costs_.stages.size() + stage.index()];
    for (const auto& [stage, part] : activations) parts.push_back(part);
    return parts;
  }

 private:
  [[nodiscard]] const StageCost& costOf(const Action& action) const { return costs_.stages[action.stage.index()]; }
  Bytes& sent(std::size_t stage) { return buffers_[2 * costs_.stages.size() + stage]; }
  Bytes& handed(std::int32_t message) { return handed_[static_cast<std::size_t>(message)]; }
  Bytes& held(std::size_t stage) { return buffers_[3 * costs_.stages.size() + stage]; }

  const Schedule& rows_;
  const CostTable& costs_;
  const CrossingBytes& crossing_;
  bool trains_ = false;
  std::map<std::pair<Stage, Microbatch>, Bytes> kept_;
  std::vector<Bytes> buffers_;  ///< received by end (`endOf`), then by stage sent ones, and what its W holds of the stage before
  std::vector<Bytes> handed_;   ///< by message: gradients for another stage of the rank
};

/// The position in the rank's steps where it needs the most; −1: it has none.
std::ptrdiff_t peakStep(const Program& program, Rank rank) {
  Bytes level = program.atStart[rank.index()], most = level;
  std::ptrdiff_t at = -1;
  const auto steps = program.stepsOf(rank.value);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const MemoryUse& use = program.uses[static_cast<std::size_t>(program.useOf[static_cast<std::size_t>(steps[i])])];
    level += use.gain;
    if (at < 0 || level + use.peak > most) {
      most = level + use.peak;
      at = static_cast<std::ptrdiff_t>(i);
    }
    level -= use.loss;
  }
  return at;
}

RankMemory memoryOfRank(const Schedule& rows, const CostTable& costs, const CrossingBytes& crossing, const Program& program, Rank rank) {
  RankMemory memory{rank, program.peakBytes[rank.index()], kIdle, {}};
  Holdings holdings(rows, costs, crossing);
  const std::ptrdiff_t peak = peakStep(program, rank);
  const auto steps = program.stepsOf(rank.value);
  const std::vector<Action>& row = rows.rows[rank.index()];
  Bytes working = 0;
  for (std::ptrdiff_t i = 0; i <= peak; ++i) {
    const auto step = static_cast<std::size_t>(steps[static_cast<std::size_t>(i)]);
    const auto use = static_cast<std::size_t>(program.useOf[step]);
    const UseSource& source = program.sources[use];
    std::vector<Action> actions;
    if (const std::int32_t index = program.origin[step].index; index >= 0 && source.action != 0) {
      actions.push_back(row[static_cast<std::size_t>(index)]);
      if (source.partner != 0) actions.push_back(row[static_cast<std::size_t>(index) + 1]);
    }
    const auto changeBuffers = [&](bool atStart) {
      for (std::int32_t b = source.firstBuffer; b < program.sources[use + 1].firstBuffer; ++b) {
        const BufferChange& change = program.buffers[static_cast<std::size_t>(b)];
        const bool starts = change.what == BufferChange::What::Posted || change.what == BufferChange::What::Used ||
                            change.what == BufferChange::What::Taken;
        if (starts == atStart) holdings.change(change);
      }
    };
    for (const Action& action : actions) holdings.start(action);
    changeBuffers(true);
    if (i == peak) {
      working = program.uses[use].peak;
      if (!actions.empty()) memory.at = actions.front();
      break;
    }
    for (const Action& action : actions) holdings.end(action);
    changeBuffers(false);
  }
  memory.parts = holdings.parts(rank);
  if (working != 0) memory.parts.push_back({MemoryKind::Working, memory.at.stage, {memory.at.microbatch}, working});
  std::stable_sort(memory.parts.begin(), memory.parts.end(), [](const MemoryPart& a, const MemoryPart& b) {
    return std::tuple(-a.bytes, a.kind, a.stage) < std::tuple(-b.bytes, b.kind, b.stage);
  });
  return memory;
}

}  // namespace

std::string_view nameOf(MemoryKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::vector<RankMemory> memoryOf(const Schedule& schedule, const CostTable& costs, Sending sending) {
  const Schedule rows = rowsOf(schedule, sending);
  const Program program = compile(rows, costs, sending);
  const CrossingBytes crossing(rows.placement, costs);
  std::vector<RankMemory> all;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) all.push_back(memoryOfRank(rows, costs, crossing, program, Rank(r)));
  return all;
}

std::string rangesOf(const std::vector<Microbatch>& microbatches) {
  std::string text;
  for (std::size_t i = 0; i < microbatches.size();) {
    std::size_t last = i;
    while (last + 1 < microbatches.size() && microbatches[last + 1].value == microbatches[last].value + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", microbatches[i].value);
    if (last > i) text += fmt::format("–{}", microbatches[last].value);
    i = last + 1;
  }
  return text;
}

}  // namespace pw
