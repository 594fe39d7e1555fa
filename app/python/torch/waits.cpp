#include "app/python/torch/waits.h"

#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>
#include <utility>

#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

/// How soon after Ctrl-C, or the worker's end, a wait ends.
constexpr std::chrono::milliseconds kSignals{100};

/// Python runs what handles signals there only.
bool isMainThread() {
  const py::module_ threading = py::module_::import("threading");
  return threading.attr("main_thread")().attr("ident").cast<unsigned long>() == PyThread_get_thread_ident();
}

}  // namespace

RemoteValue waitFor(const RemoteFuture& result, std::optional<std::chrono::steady_clock::time_point> until) {
  const bool handlesSignals = !result.isDone() && isMainThread();
  const auto isOver = [&] {
    const py::gil_scoped_release released;
    do {
      if (result.waitFor(kSignals)) return true;
      if (CallThreads::areEnding()) throw Error("This worker has ended, and nobody set the future that this call waits for.");
      if (until && std::chrono::steady_clock::now() >= *until)
        throw Error("Nobody set this call's future before its caller stopped waiting.");
    } while (!handlesSignals);
    return false;
  };
  while (!result.isDone() && !isOver()) {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  const py::gil_scoped_release released;
  return result.wait();
}

std::shared_ptr<void> promise(const RemoteFuture& result) {
  return {nullptr, [result](void*) { result.fail(std::make_exception_ptr(Error("This worker has ended, and what it was still to do."))); }};
}

RemoteValue runApart(std::function<RemoteValue()> run) {
  const RemoteFuture result;
  std::thread([result, run = std::move(run)] {
    try {
      result.set(run());
    } catch (...) {
      result.fail(std::current_exception());  // for who waits
    }
  }).detach();
  return waitFor(result);
}

RemoteValue runWaiting(CallThreads& threads, std::function<RemoteValue()> run) {
  if (!isMainThread()) {
    const py::gil_scoped_release released;
    return run();
  }
  const RemoteFuture result;
  const auto task = [result, run = std::move(run), promised = promise(result)] {
    try {
      result.set(run());
    } catch (...) {
      result.fail(std::current_exception());  // for whoever waits
    }
  };
  const auto refuse = [result] { result.fail(std::make_exception_ptr(Error("this process cannot start another thread; end some"))); };
  {
    const py::gil_scoped_release released;
    threads.post(task, refuse);
  }
  return waitFor(result);
}

}  // namespace pw::python
