#include "engine/run/backward.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "backends/messages/channel/in_memory_link.h"
#include "backends/messages/transport.h"
#include "engine/dynamic/pipeline.h"
#include "engine/processes/connect.h"
#include "engine/run/settings.h"
#include "schedules/error.h"

namespace pw {

void refuseWhatIsNotDynamic(const RunSettings& o, const Plan& plan) {
  if (o.request.backward != Backward::Dynamic) return;
  const auto refuse = [](const std::string& why, const std::string& cure) {
    throw UsageError(fmt::format("--backward dynamic {}; {}.", why, cure));
  };
  if (o.request.synthetic) refuse("calls the stages of a model, and --synthetic has none", "omit one of them");
  if (o.request.evaluates) refuse("is about backward passes, and --eval runs none", "omit one of them");
  if (o.computing.onGpu) refuse("runs on CPUs", "use --backend " + hostTransports(" or "));
  if (o.computing.precision != DType::Unknown)
    refuse(fmt::format("computes as the model was traced, not in {}", precisionName(o.computing.precision)), "add --precision traced");
  if (o.request.order == Order::Ready) refuse("does not follow the plan's rows, in no order", "omit --order");
  if (o.request.lossOver == LossScope::WholeBatch)
    refuse("sends each microbatch back on its own, so there is no loss over the batch", "use --loss-over microbatch");
  if (o.request.findNan) refuse("does not look into backward passes", "omit --find-nan, or find the operator with --backward schedule");
  if (plan.schedule.placement.bidirectional())
    refuse(fmt::format("needs each stage on one rank, and {} has two of each", plan.schedule.name), "plan with another schedule");
  if (std::ranges::any_of(plan.partition.stages, [](const StageSpec& stage) { return !stage.checkpoints.empty(); }))
    refuse("keeps all values until their backward, and this plan recomputes some", "plan without --recompute");
}

void connectCalls(const RunSettings& o, const Plan& plan, const Rendezvous& rendezvous, const KeyValueStore& store,
                  const TorchBackend& torch, Communicator& communicator, TrainOptions& options) {
  if (o.request.backward != Backward::Dynamic) return;
  const LinkMaker link = communicator.size() > 1 ? linkRanks(o.transport, rendezvous, store, torch) : inMemoryLinks(1).front();
  const auto pipeline = std::make_shared<DynamicPipeline>(plan, link, torch, options.deadline);
  communicator.barrier();  // before it nobody stops serving addresses
  communicator.keep({{}, pipeline});
  options.stage.distributed = true;
  options.executor.instead = [&pipeline = *pipeline](const std::map<Stage, StageModule*>& stages, Communicator& ranks, StepLog& log) {
    pipeline.run(stages, ranks, log);
  };
}

}  // namespace pw
