#pragma once

#include <QString>
#include <vector>

#include "app/gui/timeline/drawing/flow_arrows.h"
#include "app/gui/timeline/facts/dependencies.h"
#include "app/gui/timeline/facts/find_query.h"
#include "simulator/report/explain.h"

namespace pw::gui {

/// torch's notation of an action, `3B5`; others in words: `message 3F5`, `optimizer`, `sum of shared gradients`.
[[nodiscard]] QString nameOf(const SpanTag& tag);
[[nodiscard]] QString nameOf(const Action& action);

/// One of a chain of causes as it is said, and its span, if the timeline has one.
struct CauseStep {
  QString text;
  std::optional<SourcedSpan> span;
};

/// Why a rank is idle: a sentence, the chain of causes, and their spans.
struct Cause {
  QString headline;  ///< `Rank 2 waits 1.8 ms for 3B5 of rank 3, which comes after 3F6`
  QString chain;  ///< `3F6 of rank 3 until 5.1 ms → 3B5 of rank 3 until 7 ms → message to rank 2 until 7.2 ms`; the middle of long ones
                  ///< left out
  std::vector<CauseStep> steps;    ///< which `chain` consists of
  std::vector<SourcedSpan> spans;  ///< of the causes, in their order
};

/// From the explanation of a prediction, whose timeline and dependencies these are.
[[nodiscard]] Cause causeOf(const Bubble& bubble, const Timeline& timeline, const Dependencies& dependencies);
/// By rule alone: what the next action waited for, and so on back to where the gap begins. For measured timelines, and for predicted ones
/// until they are explained.
[[nodiscard]] Cause simpleCause(const BubbleRef& bubble, const Timeline& timeline, const Dependencies& dependencies);

/// The explained bubble of a rank that covers most of [from, to); null: none of it is explained. O(log n).
[[nodiscard]] const Bubble* bubbleIn(const Explanation& explanation, Rank rank, Ns from, Ns to);
/// The spans of causes or of a critical path, in their order, each once.
[[nodiscard]] std::vector<SourcedSpan> spansOf(const std::vector<Segment>& segments, const Timeline& timeline,
                                               const Dependencies& dependencies);

/// What a block receives from other ranks and sends to them, or the way of a message, as arrows.
[[nodiscard]] std::vector<FlowArrow> arrowsOf(const SourcedSpan& span, const Timeline& timeline, const Dependencies& dependencies);

}  // namespace pw::gui
