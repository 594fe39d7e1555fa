#pragma once

#include <optional>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// What one stage sends to another for a microbatch, forward.
struct StageMessage {
  Stage from, to;
  Rank fromRank, toRank;
  Bytes bytes = 0;
  std::optional<Ns> sent;  ///< what it takes over any link, where the model's layer table says so

  bool operator==(const StageMessage&) const = default;
};

/// The messages of the document's splits, in the order of their stages: all values that go from one stage to another are one message, as in
/// the prediction. Empty without a model. Cost: linear, of the model where the splits are not predicted yet.
[[nodiscard]] std::vector<StageMessage> messagesOf(const Document& document);

/// From its start to its arrival on a link that is free.
[[nodiscard]] Ns timeOn(const LinkSpec& link, Bytes bytes);

}  // namespace pw::gui
