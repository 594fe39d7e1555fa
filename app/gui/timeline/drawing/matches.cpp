#include <algorithm>
#include <optional>
#include <unordered_map>

#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {
namespace {

/// A number for each action of a rank, from 0; small ones, as a rank has few stages.
class ActionNumbers {
 public:
  ActionNumbers(const SpanTrack& a, const SpanTrack& b) {
    for (const SpanTrack* const track : {&a, &b}) {
      for (const SpanTag& tag : track->tags) {
        const std::size_t stage = placeOf(tag);
        if (stage >= stages_.size()) stages_.resize(stage + 1, -1);
        if (stages_[stage] < 0) stages_[stage] = used_++;
        microbatches_ = std::max<std::int64_t>(microbatches_, tag.microbatch.value + 2);
      }
    }
  }
  [[nodiscard]] std::int64_t count() const { return used_ * microbatches_ * static_cast<std::int64_t>(kSpanKinds); }
  [[nodiscard]] std::int64_t of(const SpanTag& tag) const {
    const std::int64_t stage = stages_[placeOf(tag)];
    return (stage * microbatches_ + tag.microbatch.value + 1) * static_cast<std::int64_t>(kSpanKinds) + static_cast<std::int64_t>(tag.kind);
  }

 private:
  /// 0 for what is of no stage.
  static std::size_t placeOf(const SpanTag& tag) { return static_cast<std::size_t>(std::int64_t{tag.stage.value} + 1); }

  std::vector<std::int64_t> stages_;  ///< by stage + 1: its number here, −1 if not seen
  std::int64_t used_ = 0, microbatches_ = 0;
};

/// The first measured span of each action that has none yet; −1: none. A table where numbers are dense, else hashed.
class Heads {
 public:
  Heads(std::int64_t numbers, std::size_t spans) {
    if (numbers <= 32 * static_cast<std::int64_t>(spans) + 4096) table_.assign(static_cast<std::size_t>(numbers), -1);
  }
  std::int32_t& operator[](std::int64_t number) {
    return table_.empty() ? hashed_.try_emplace(number, -1).first->second : table_[static_cast<std::size_t>(number)];
  }

 private:
  std::vector<std::int32_t> table_;
  std::unordered_map<std::int64_t, std::int32_t> hashed_;
};

/// The kind that a backward has where it is whole in one timeline and split in the other; nothing for other kinds.
std::optional<SpanKind> otherBackward(SpanKind kind) {
  if (kind == SpanKind::Backward) return SpanKind::BackwardInput;
  if (kind == SpanKind::BackwardInput) return SpanKind::Backward;
  return std::nullopt;
}

}  // namespace

Matches matchSpans(const Timeline& predicted, const Timeline& measured) {
  Matches matches;
  const std::size_t ranks = std::max(predicted.ranks.size(), measured.ranks.size());
  matches.measuredOf.resize(ranks);
  matches.predictedOf.resize(ranks);
  const SpanTrack none;
  for (std::size_t r = 0; r < ranks; ++r) {
    const SpanTrack& p = r < predicted.ranks.size() ? predicted.ranks[r].compute : none;
    const SpanTrack& m = r < measured.ranks.size() ? measured.ranks[r].compute : none;
    matches.measuredOf[r].assign(p.size(), -1);
    matches.predictedOf[r].assign(m.size(), -1);
    const ActionNumbers numbers(p, m);
    Heads heads(numbers.count(), p.size() + m.size());
    std::vector<std::int32_t> later(m.size());  // the next measured span of the same action
    for (std::size_t i = m.size(); i-- > 0;) {
      std::int32_t& head = heads[numbers.of(m.tags[i])];
      later[i] = head;
      head = static_cast<std::int32_t>(i);
    }
    const auto matchWith = [&](std::size_t i, const SpanTag& tag) {
      std::int32_t& head = heads[numbers.of(tag)];
      if (head < 0) return;
      matches.measuredOf[r][i] = head;
      matches.predictedOf[r][static_cast<std::size_t>(head)] = static_cast<std::int32_t>(i);
      head = later[static_cast<std::size_t>(head)];
    };
    for (std::size_t i = 0; i < p.size(); ++i) matchWith(i, p.tags[i]);
    for (std::size_t i = 0; i < p.size(); ++i) {  // of what has no other of its own kind
      const auto kind = otherBackward(p.tags[i].kind);
      if (!kind || matches.measuredOf[r][i] >= 0) continue;
      SpanTag tag = p.tags[i];
      tag.kind = *kind;
      matchWith(i, tag);
    }
  }
  return matches;
}

}  // namespace pw::gui
