#include "backends/messages/tags.h"

#include "schedules/error.h"

namespace pw {

void requirePlanTags(std::uint64_t end) {
  if (end > kPlanTags.end())
    throw UsageError("the plan has more messages between its ranks than can be told apart; use fewer replicas, stages or microbatches");
}

}  // namespace pw
