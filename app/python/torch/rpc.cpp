#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "app/python/torch/bindings.h"
#include "app/python/torch/tensors.h"
#include "app/python/torch/values.h"
#include "app/python/torch/waits.h"
#include "app/python/torch/worker.h"
#include "engine/remote/current_context.h"
#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

std::chrono::milliseconds inMilliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

Remote::Deadline deadlineOf(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return inMilliseconds(*seconds);
}

RankEnvironment placeOf(const Variables& variables) {
  const auto environment = rankEnvironment(variables);
  if (!environment) throw UsageError("init_rpc needs rank and world_size; give them, or set RANK and WORLD_SIZE.");
  return *environment;
}

/// The worker, when it has met the others. Ctrl-C ends the wait; the attempt then ends by itself.
std::shared_ptr<Worker> makeWorker(const Variables& variables, const RemoteWorkerSettings& settings, const py::object& call,
                                   const py::object& evaluate, const py::object& pickle, const py::object& describe) {
  const RankEnvironment environment = placeOf(variables);
  const ValueFunctions functions{held(call), held(evaluate), held(pickle), held(describe)};
  const RemoteValue made = runApart([=]() -> RemoteValue { return Local{std::make_shared<Worker>(environment, settings, functions)}; });
  return std::static_pointer_cast<Worker>(made.object());
}

RemoteFuture call(Worker& worker, const std::string& to, const py::tuple& pickled, std::optional<double> timeout) {
  const RemoteValue value = sentValue(pickled);
  const py::gil_scoped_release released;
  return worker.remote().rpcAsync(to, kCall, value, deadlineOf(timeout));
}

Reference keep(Worker& worker, const std::string& to, const py::tuple& pickled, std::optional<double> timeout) {
  const RemoteValue value = sentValue(pickled);
  const py::gil_scoped_release released;
  return worker.remote().remote(to, kKeep, value, deadlineOf(timeout));
}

RemoteFuture fetch(Worker& worker, const Reference& reference, std::optional<double> timeout) {
  const py::gil_scoped_release released;
  Remote& remote = worker.remote();
  if (reference.owner() == remote.settings().self) return remote.toHereAsync(reference, deadlineOf(timeout));
  return remote.rpcAsync(remote.nameOf(reference.owner()), kFetch, reference, deadlineOf(timeout));
}

Reference share(Worker& worker, const py::object& object) {
  RemoteValue value = keptValue(object);
  const py::gil_scoped_release released;
  return worker.remote().share(std::move(value));
}

/// Calls back in the autograd context of the thread that registers the callback. The callback sets `following`, which ends with an error
/// where it is not called.
void whenDone(Worker& worker, const RemoteFuture& result, const RemoteFuture& following, const py::function& callback) {
  auto task = std::make_shared<std::function<void()>>([promised = promise(following), kept = held(callback), context = currentContext()] {
    const WithContext within(context);
    const py::gil_scoped_acquire acquired;
    try {
      heldObject(kept)();
    } catch (py::error_already_set& problem) {
      problem.discard_as_unraisable("a callback of a future");  // there is nobody to catch it
    }
  });
  const py::gil_scoped_release released;
  result.whenDone([tasks = worker.tasks(), task = std::move(task)](const RemoteFuture&) mutable {
    std::function<void()> run = [kept = std::move(task)] { (*kept)(); };  // moved on: this thread must not wait for Python to drop it
    std::function<void()> refuse = run;
    tasks->post(std::move(run), std::move(refuse));
  });
}

void shutDown(Worker& worker, double timeout) {
  try {
    runWaiting(*worker.tasks(), [&worker, timeout]() -> RemoteValue {
      worker.shutdown(inMilliseconds(timeout));
      return {};
    });
  } catch (...) {  // also Ctrl-C, during which it still runs
    const py::gil_scoped_release released;
    worker.leave();
    throw;
  }
  const py::gil_scoped_release released;
  worker.leave();
}

RemoteWorkerSettings settingsOf(const std::string& name, const std::string& transport, double startDeadline, double deadline,
                                double lostAfter, int threads) {
  RemoteWorkerSettings settings;
  settings.name = name;
  const auto known = valueNamed<Transport>(transport);
  if (!known) throw UsageError("There is no transport '" + transport + "'; remote calls go over " + hostTransports(" or ") + ".");
  settings.transport = *known;
  settings.startDeadline = inMilliseconds(startDeadline);
  settings.deadline = inMilliseconds(deadline);
  settings.lostAfter = inMilliseconds(lostAfter);
  settings.runningCalls = threads;
  return settings;
}

}  // namespace

void bindResults(py::module_& m) {
  const auto drops = py::release_gil_before_calling_cpp_dtor();  // what goes may wait for threads that wait for Python
  py::class_<Reference>(m, "Reference", drops)
      .def_property_readonly("owner", [](const Reference& reference) { return reference.owner().value; })
      .def_property_readonly("id", [](const Reference& reference) { return reference.id().value; });
  py::class_<RemoteFuture>(m, "Result", drops)
      .def(py::init<>())
      .def("is_done", &RemoteFuture::isDone)
      .def("wait", [](const RemoteFuture& result) { return toPython(waitFor(result)); })
      .def("wait_within_call", [](const RemoteFuture& result) { return toPython(waitFor(result, currentCallDeadline())); })
      .def(
          "set",
          [](const RemoteFuture& result, py::object value) {
            const Local kept{held(std::move(value))};
            const py::gil_scoped_release released;
            return result.set(kept);
          },
          py::arg("value"));
}

void bindWorker(py::module_& m) {
  py::class_<RemoteWorkerSettings>(m, "WorkerSettings")
      .def(py::init(&settingsOf), py::kw_only(), py::arg("name"), py::arg("transport"), py::arg("start_deadline"), py::arg("deadline"),
           py::arg("lost_after"), py::arg("threads"));
  py::class_<Worker, std::shared_ptr<Worker>>(m, "Worker", py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&makeWorker), py::arg("variables"), py::arg("settings"), py::kw_only(), py::arg("call"), py::arg("evaluate"),
           py::arg("pickle"), py::arg("describe"))
      .def_property_readonly("rank", [](Worker& worker) { return worker.remote().settings().self.value; })
      .def_property_readonly("names", [](Worker& worker) { return worker.remote().settings().names; })
      .def("call", &call, py::arg("to"), py::arg("pickled"), py::arg("timeout"))
      .def("keep", &keep, py::arg("to"), py::arg("pickled"), py::arg("timeout"))
      .def("fetch", &fetch, py::arg("reference"), py::arg("timeout"))
      .def("share", &share, py::arg("value"))
      .def("when_done", &whenDone, py::arg("result"), py::arg("following"), py::arg("callback"))
      .def("shutdown", &shutDown, py::arg("timeout"))
      .def("leave", &Worker::leave, py::call_guard<py::gil_scoped_release>())
      .def("counts", [](Worker& worker) {
        const RemoteCounts counts = worker.remote().counts();
        py::dict all;
        all["calls"] = counts.calls, all["executing"] = counts.executing, all["owned"] = counts.owned, all["held"] = counts.held;
        return all;
      });
}

}  // namespace pw::python
