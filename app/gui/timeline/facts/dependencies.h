#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// The data flow between stages: by stage, those it receives from and those it sends to; for values and for gradients.
struct StageLinks {
  struct Ends {
    std::vector<Stage> sources, targets;
  };
  std::array<std::vector<Ends>, 2> ends;  ///< [0] forward, [1] gradients; by stage
};
[[nodiscard]] StageLinks linksOf(const CostTable& costs);
[[nodiscard]] StageLinks chainLinks(int stages);  ///< each stage to the next one

/// The dependencies between the spans of a timeline, by rule: the forward of a stage needs that of the stages before it, through a message
/// if there is one; a backward needs its own forward and the backwards of the stages after it; W needs its I; a message the action whose
/// result it carries. Copies of a pipeline (`copiesIn`) depend on nothing of each other. Refers to the timeline. Made in linear time; every
/// question is answered in constant time for a chain of stages.
class Dependencies {
 public:
  Dependencies(const Timeline& timeline, StageLinks links);

  /// The span of an action or message (of one with several receivers the first) of this rank; the first, where it is there more than once.
  [[nodiscard]] std::optional<SpanRef> find(Rank rank, SpanKind kind, Stage stage, Microbatch microbatch) const;
  /// The same message or action: equal in all its tag says.
  [[nodiscard]] std::optional<SpanRef> find(Rank rank, const SpanTag& tag) const;

  /// What a span directly needs, the latest end first (ties: the lowest rank). Nothing for what only follows its rank's row.
  [[nodiscard]] std::vector<SpanRef> inputs(const SpanRef& span) const;
  /// What directly needs a span, the earliest start first (ties: the lowest rank).
  [[nodiscard]] std::vector<SpanRef> outputs(const SpanRef& span) const;
  /// The compute span before (after) it on its rank; of a message: none.
  [[nodiscard]] std::optional<SpanRef> beside(const SpanRef& span, int direction) const;
  /// What a span waited for last: the input, or the previous span on its rank (which wins ties), with the latest end.
  [[nodiscard]] std::optional<SpanRef> awaited(const SpanRef& span) const;

 private:
  static constexpr std::int32_t kNone = -1;
  [[nodiscard]] std::size_t bucketOf(SpanKind kind, Stage stage, Microbatch microbatch) const;
  template <class Visit>
  void each(SpanKind kind, Stage stage, Microbatch microbatch, Visit visit) const;
  [[nodiscard]] bool isOfOneCopy(Rank one, Rank other) const { return one.index() / ranksOfCopy_ == other.index() / ranksOfCopy_; }
  [[nodiscard]] SpanRef refOf(std::int32_t number) const;
  [[nodiscard]] std::optional<SpanRef> producer(SpanKind kind, Stage stage, Microbatch microbatch, Rank rank, Ns before) const;
  void addInputs(std::vector<SpanRef>& found, const SpanTag& tag, Rank rank, Ns start, bool gradients) const;
  void addOutputs(std::vector<SpanRef>& found, const SpanTag& tag, Rank rank, bool gradients) const;
  [[nodiscard]] const StageLinks::Ends& endsOf(Stage stage, bool gradients) const;

  const Timeline& timeline_;
  StageLinks links_;
  std::vector<std::int32_t> head_, next_;  ///< chains of spans of equal hash, in the order of their numbers
  std::vector<std::int32_t> first_;        ///< by track (compute and communication of rank 0, …), and one more: its first span's number
  std::size_t mask_ = 0;
  std::size_t ranksOfCopy_ = 1;
};

/// What goes from one action to another, on the same rank or through a message.
struct Flow {
  SpanRef from, to;                ///< actions
  std::optional<SpanRef> message;  ///< nothing: the timeline has none for it

  bool operator==(const Flow&) const = default;
};
/// What an action receives from other ranks and sends to them, incoming ones first; of a message its own way. Cost: of `inputs` and
/// `outputs` of the span and of its messages.
[[nodiscard]] std::vector<Flow> flowsOf(const Dependencies& dependencies, const SpanRef& span);

}  // namespace pw::gui
