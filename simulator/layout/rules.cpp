#include "simulator/layout/rules.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "simulator/text/counted.h"

namespace pw {
namespace {

bool holds(const std::vector<LayoutLayer>& stage, LayoutLayer layer) { return std::ranges::find(stage, layer) != stage.end(); }

/// The first (or last) stage that has a layer at all; nothing: none has.
std::optional<std::size_t> firstFilled(const Layout& layout) {
  for (std::size_t s = 0; s < layout.stages.size(); ++s) {
    if (!layout.stages[s].empty()) return s;
  }
  return std::nullopt;
}
std::optional<std::size_t> lastFilled(const Layout& layout) {
  for (std::size_t s = layout.stages.size(); s-- > 0;) {
    if (!layout.stages[s].empty()) return s;
  }
  return std::nullopt;
}

std::string stageText(std::size_t stage, int ranks) {
  const auto r = static_cast<std::size_t>(ranks);
  return fmt::format("stage {} (rank {}, chunk {})", stage, stage % r, stage / r);
}

void checkEnds(const Layout& layout, std::vector<LayoutProblem>& problems) {
  const auto first = firstFilled(layout), last = lastFilled(layout);
  if (!first) {
    problems.push_back({{}, "the layout has no layers; begin with E and end with L"});
    return;
  }
  const auto once = [&](LayoutLayer layer) {
    if (const std::size_t n = layout.count(layer); n != 1)
      problems.push_back({{}, fmt::format("{} stands {} times in the layout; Megatron needs it exactly once", letterOf(layer), n)});
  };
  if (layout.stages[*first].front() != LayoutLayer::Embedding)
    problems.push_back({Stage(*first), fmt::format("the first layer is {}, and must be E", letterOf(layout.stages[*first].front()))});
  if (layout.stages[*last].back() != LayoutLayer::Loss)
    problems.push_back({Stage(*last), fmt::format("the last layer is {}, and must be L", letterOf(layout.stages[*last].back()))});
  once(LayoutLayer::Embedding);
  once(LayoutLayer::Loss);
}

void checkMtp(const Layout& layout, const LayoutSetting& setting, std::vector<LayoutProblem>& problems) {
  const std::size_t stages = layout.stages.size(), ranks = static_cast<std::size_t>(setting.ranks);
  bool seen = false, misplaced = false;
  std::vector<std::size_t> with;
  for (std::size_t s = 0; s < stages; ++s) {
    for (const LayoutLayer layer : layout.stages[s]) {
      seen = seen || layer == LayoutLayer::Mtp;
      if (!seen || layer != LayoutLayer::Transformer || misplaced) continue;
      misplaced = true;
      problems.push_back({Stage(s), "a t comes after an m; transformer layers come before MTP layers"});
    }
    if (holds(layout.stages[s], LayoutLayer::Mtp)) with.push_back(s);
  }
  if (with.size() > 1)
    problems.push_back({Stage(with[1]), fmt::format("MTP layers are in stages {}; all must be in one stage", fmt::join(with, ", "))});
  if (stages % ranks != 0) return;
  for (const std::size_t s : with) {
    if (s + ranks < stages) {
      problems.push_back({Stage(s), fmt::format("{} has MTP layers but is not the last stage of its rank; move them to stage {} or later",
                                                stageText(s, setting.ranks), stages - ranks)});
    }
  }
}

}  // namespace

std::vector<LayoutProblem> problemsOf(const Layout& layout, const LayoutSetting& setting) {
  std::vector<LayoutProblem> problems;
  const std::size_t stages = layout.stages.size(), ranks = static_cast<std::size_t>(setting.ranks);
  if (stages % ranks != 0) {
    problems.push_back({{},
                        fmt::format("{} cannot be shared out to {}; the number of stages (one more than there are |) must be a multiple "
                                    "of the ranks",
                                    counted(static_cast<std::int64_t>(stages), "stage"), counted(setting.ranks, "rank"))});
  } else if (ranks == 1 && stages > 1) {
    problems.push_back(
        {{}, fmt::format("several stages on a rank need two ranks or more; with 1 rank write one stage instead of {}", stages)});
  }
  checkEnds(layout, problems);
  const auto compare = [&](std::optional<std::int64_t> wanted, LayoutLayer layer, std::string_view flag) {
    const auto n = static_cast<std::int64_t>(layout.count(layer));
    if (wanted && n != *wanted)
      problems.push_back({{}, fmt::format("the layout has {} {}, and {} is {}; they must be equal", n, letterOf(layer), flag, *wanted)});
  };
  compare(setting.layers, LayoutLayer::Transformer, "--num-layers");
  compare(setting.mtp, LayoutLayer::Mtp, "--mtp-num-layers");
  checkMtp(layout, setting, problems);
  return problems;
}

std::vector<std::string> notesOf(const Layout& layout, int ranks) {
  std::vector<std::string> notes;
  std::vector<std::size_t> empty;
  const std::size_t stages = layout.stages.size();
  for (std::size_t s = 0; s < stages; ++s) {
    if (layout.stages[s].empty()) empty.push_back(s);
  }
  if (!empty.empty()) {
    notes.push_back(fmt::format(
        "{} {} empty: computes nothing, but receives and sends on every microbatch's values and gradients",
        empty.size() == 1 ? fmt::format("stage {}", empty[0]) : fmt::format("each of stages {}", fmt::join(empty, ", ")), "is"));
  }
  for (std::size_t s = 0; s < stages; ++s) {
    if (s > 0 && holds(layout.stages[s], LayoutLayer::Embedding))
      notes.push_back(fmt::format("E is in stage {}, but Megatron builds the embedding in stage 0", s));
    if (s + 1 < stages && holds(layout.stages[s], LayoutLayer::Loss))
      notes.push_back(fmt::format("L is in stage {}, but Megatron builds the output layer in the last stage, {}", s, stages - 1));
    if (holds(layout.stages[s], LayoutLayer::Mtp) && s % static_cast<std::size_t>(ranks) + 1 != static_cast<std::size_t>(ranks)) {
      notes.push_back(
          fmt::format("{} has the MTP layers, not the last rank: Megatron then holds the embedding there as well, and sends the "
                      "shape of every message before the message",
                      stageText(s, ranks)));
    }
  }
  return notes;
}

std::optional<std::string> refusalOfMicrobatches(int ranks, int chunks, int microbatches, int group) {
  if (chunks <= 1) return std::nullopt;
  if (group == 0) group = ranks;
  if (group < ranks || group > microbatches) {
    return fmt::format(
        "Megatron's interleaved schedule refuses groups of {} for {} on {}: they must be between the number of ranks and "
        "that of microbatches",
        counted(group, "microbatch"), counted(microbatches, "microbatch"), counted(ranks, "rank"));
  }
  if (const int rest = microbatches % group; rest > 0 && rest < ranks) {
    return fmt::format(
        "Megatron's interleaved schedule refuses {} in groups of {}: the {} that remain must be none, or as many as ranks "
        "({}); use {} microbatches",
        counted(microbatches, "microbatch"), group, rest, ranks, microbatches - rest);
  }
  return std::nullopt;
}

}  // namespace pw
