#include "engine/planning/schedule_choice.h"

#include "simulator/order/find.h"

namespace pw {
namespace {

std::optional<std::string> refusalWith(const Generator& family, const PlanRequest& request, int chunks) {
  return family.refusal({request.ranks, request.ranks * chunks, request.microbatches});
}

}  // namespace

int chunksWith(std::string_view schedule, const PlanRequest& request) {
  if (madeSchedule(schedule) != nullptr) return request.chunks > 0 ? request.chunks : usualChunks(schedule);
  const Generator& family = generatorOf(schedule);
  return request.chunks > 1 && !refusalWith(family, request, request.chunks) ? request.chunks : family.chunks;
}

std::optional<std::string> refusalOf(const Generator& family, const PlanRequest& request) {
  if (request.chunks > 1 && !refusalWith(family, request, request.chunks)) return std::nullopt;
  return refusalWith(family, request, family.chunks);
}

}  // namespace pw
