#pragma once

#include <cstdint>
#include <vector>

#include "simulator/step/lanes.h"
#include "simulator/step/messages_by_end.h"
#include "simulator/step/posting.h"

namespace pw {

/// What `compile` knows of a posting's rows when their messages have steps; for use there only.
struct PostingLinks {
  /// A step that waits for the message of an action.
  struct Waiting {
    std::int32_t step = 0;
    Action message;
  };
  const Schedule& rows;
  const CostTable& costs;
  const MessagesByEnd& leaving;
  const MessagesByEnd& arriving;
  const std::vector<std::int32_t>& transferOf;  ///< the step, by message and microbatch; negative: within a rank
  const std::vector<Waiting>& waiting;
};

/// Adds what waits for what beyond the two ends of each message: on the streams of the ranks, and ranks for messages. Cost: linear.
void addPostingLinks(const PostingLinks& of, const Posting& posting, std::vector<Lanes::Link>& links);

}  // namespace pw
