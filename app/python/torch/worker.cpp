#include "app/python/torch/worker.h"

#include "app/python/torch/values.h"

namespace py = pybind11;

namespace pw::python {
namespace {

constexpr int kRunningTasks = 4;  // after results; waiting ones do not count
constexpr int kMostTasks = 4096;

void defineFunctions(Remote& remote, const ValueFunctions& functions) {
  const std::string here = remote.nameOf(remote.settings().self);
  remote.define(kCall, [functions, here](Remote&, const RemoteValue& call) {
    return inPython(here, functions.describe, [&] { return sentValue(heldObject(functions.call)(*toPython(call)).cast<py::tuple>()); });
  });
  remote.define(kKeep, [functions, here](Remote&, const RemoteValue& call) {
    return inPython(here, functions.describe, [&] { return keptValue(heldObject(functions.evaluate)(*toPython(call))); });
  });
  remote.define(kFetch, [functions, here](Remote& worker, const RemoteValue& reference) {
    const RemoteValue kept = worker.localValue(reference.reference());
    return inPython(here, functions.describe, [&] { return sentValue(heldObject(functions.pickle)(toPython(kept)).cast<py::tuple>()); });
  });
}

}  // namespace

Worker::Worker(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const ValueFunctions& functions)
    : worker_(std::make_unique<RemoteWorker>(environment, settings,
                                             [&](Remote& remote, DistributedAutograd&) { defineFunctions(remote, functions); })),
      tasks_(std::make_shared<CallThreads>(kRunningTasks, kMostTasks)) {}

Worker::~Worker() { leave(); }

void Worker::shutdown(std::chrono::milliseconds deadline) { worker_->shutdown(deadline); }

void Worker::leave() {
  worker_->leave();
  tasks_->stop();
}

}  // namespace pw::python
