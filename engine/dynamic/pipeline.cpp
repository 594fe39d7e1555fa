#include "engine/dynamic/pipeline.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/autograd/linked_worker.h"
#include "engine/dynamic/step.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// A rank is not lost before it has been silent for so long, however short the waits may be.
constexpr std::chrono::milliseconds kShortestLoss{10'000};

std::vector<std::string> namesOf(const LinkMaker& link) {
  std::vector<std::string> names;
  for (int rank = 0; rank < link.size; ++rank) names.push_back(fmt::format("rank {}", rank));
  return names;
}

}  // namespace

struct DynamicPipeline::Impl {
  Impl(const Plan& of, const LinkMaker& link, const TorchBackend& torch, std::chrono::milliseconds longest)
      : plan(of),
        deadline(longest),
        passes(of.schedule.microbatches + 1, of.schedule.microbatches + 1),
        calls({.self = link.rank, .names = namesOf(link), .deadline = longest, .functions = &torch.autograd()}, link,
              std::max(kShortestLoss, longest), [this](Remote& remote, DistributedAutograd& autograd) { define(remote, autograd); }),
        rank{plan, replicasOf(plan.schedule), link.rank, torch.stages(), calls.remote(), calls.autograd(), lane, passes, longest} {}
  ~Impl() {  // first what passes still wait for, then they, then what they use
    lane.close();
    calls.leave();
    passes.stop();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void define(Remote& remote, DistributedAutograd& autograd);
  [[nodiscard]] AutogradWatch watch();
  [[nodiscard]] AutogradMessageId messageOf(const TensorHandle& value);

  const Plan& plan;
  std::chrono::milliseconds deadline;
  Lane lane;
  std::optional<DynamicStep> step;  ///< of the lane's thread
  std::mutex mutex;
  std::unordered_map<const void*, AutogradMessageId> arrived;  ///< values that came and are not taken yet
  CallThreads passes;
  LinkedWorker calls;
  DynamicRank rank;
};

AutogradMessageId DynamicPipeline::Impl::messageOf(const TensorHandle& value) {
  const std::lock_guard lock(mutex);
  const auto found = arrived.extract(value.get());
  return found.empty() ? AutogradMessageId() : found.mapped();
}

/// What came waits in the lane, also for a rank that has not begun the step yet.
void DynamicPipeline::Impl::define(Remote& remote, DistributedAutograd& autograd) {
  const auto microbatch = [](const RemoteValue& number) { return Microbatch(static_cast<std::int32_t>(number.integer())); };
  remote.define("start", [this, microbatch](Remote&, const RemoteValue& given) {
    const Stage stage(static_cast<std::int32_t>(given.at(std::size_t{0}).integer()));
    lane.post([=, this, context = currentContext(), m = microbatch(given.at(1)), came = monotonicNow()] {
      step->start(context, stage, m, came);
    });
    return RemoteValue();
  });
  remote.define("values", [this, microbatch](Remote&, const RemoteValue& given) {
    std::map<std::size_t, TensorHandle> values;
    AutogradMessageId message;
    for (const RemoteValue& value : given.at(1).list()) {
      const TensorHandle& tensor = values[static_cast<std::size_t>(value.at(std::size_t{0}).integer())] = value.at(1).tensor();
      if (const AutogradMessageId found = messageOf(tensor)) message = found;
    }
    const Microbatch m = microbatch(given.at(std::size_t{0}));
    lane.post([this, m, message, values = std::move(values), context = currentContext(), came = monotonicNow()] {
      step->take(context, m, values, message, came);
    });
    return RemoteValue();
  });
  remote.define("collect", [this, microbatch](Remote&, const RemoteValue& given) {
    lane.post([this, context = currentContext(), m = microbatch(given)] { step->collect(context, m); });
    return RemoteValue();
  });
  remote.define("collected", [this, microbatch](Remote&, const RemoteValue& given) {
    lane.post([this, m = microbatch(given)] { step->collected(m); });
    return RemoteValue();
  });
  autograd.watch(watch());
}

AutogradWatch DynamicPipeline::Impl::watch() {
  AutogradWatch watch;
  watch.sent = [this](ContextId, AutogradMessageId message, JobRank) { step->noteSent(message); };  // the lane's thread sends all values
  watch.received = [this](ContextId, AutogradMessageId message, JobRank, const std::vector<TensorHandle>& tensors) {
    const std::lock_guard lock(mutex);
    for (const TensorHandle& tensor : tensors) arrived[tensor.get()] = message;
  };
  watch.piece = [this](ContextId context, AutogradMessageId message, const std::function<void()>& piece) {
    lane.call([&, came = monotonicNow()] { step->runPiece(context, message, piece, came); }, deadline);
  };
  watch.gradient = [this](ContextId, AutogradMessageId message, JobRank, const std::vector<TensorHandle>& gradients) {
    step->noteGradient(message, gradients);
  };
  watch.lost = [this](JobRank worker, const std::string& why) {
    lane.post([text = fmt::format("rank {} is lost: {}", worker.value, why)] { throw Error(text); });
  };
  return watch;
}

DynamicPipeline::DynamicPipeline(const Plan& plan, const LinkMaker& link, const TorchBackend& torch, std::chrono::milliseconds deadline)
    : impl_(std::make_unique<Impl>(plan, link, torch, deadline)) {}

DynamicPipeline::~DynamicPipeline() = default;

void DynamicPipeline::run(const std::map<Stage, StageModule*>& stages, Communicator& communicator, StepLog& log) {
  Impl& d = *impl_;
  d.step.emplace(d.rank, stages, log);
  d.step->begin();
  d.lane.work([&] { return d.step->isDone(); }, d.deadline,
              [&] {
                communicator.progress();
                communicator.requireAlive();
              });
}

}  // namespace pw
