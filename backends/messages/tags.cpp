#include "backends/messages/tags.h"

#include "schedules/error.h"

namespace pw {

void requireTags(const TagRange& range, std::uint64_t count) {
  if (count > range.count)
    throw UsageError("the plan has more messages between its ranks than can be told apart; use fewer replicas, stages or microbatches");
}

}  // namespace pw
