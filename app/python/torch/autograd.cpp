#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/python/torch/bindings.h"
#include "app/python/torch/tensors.h"
#include "app/python/torch/waits.h"
#include "app/python/torch/worker.h"
#include "engine/autograd/optimizer.h"
#include "schedules/error.h"
#include "schedules/named_values.h"

namespace py = pybind11;

namespace pw::python {
namespace {

/// A context that is open in the thread that made it, until `close`.
struct Opened {
  std::optional<OpenContext> context;
};

BackwardMode modeOf(const std::string& name) {
  if (const auto mode = valueNamed<BackwardMode>(name)) return *mode;
  throw UsageError("There is no mode '" + name + "' of backward passes; use one of " + namesOf<BackwardMode>(", ") + ".");
}

void backward(Worker& worker, std::uint64_t context, const py::list& roots, bool retainGraph, const std::string& mode) {
  std::vector<TensorHandle> tensors;
  for (const py::handle root : roots) tensors.push_back(tensorOf(root));
  const BackwardSettings settings{.mode = modeOf(mode), .keepGraph = retainGraph};
  runWaiting(*worker.tasks(), [&autograd = worker.autograd(), context, tensors, settings]() -> RemoteValue {
    autograd.backward(ContextId(context), tensors, settings);
    return {};
  });
}

py::dict gradients(Worker& worker, std::uint64_t context) {
  py::dict all;
  std::vector<std::pair<TensorHandle, TensorHandle>> found;
  {
    const py::gil_scoped_release released;
    found = worker.autograd().gradients(ContextId(context));
  }
  for (const auto& [tensor, gradient] : found) all[toPython(tensor)] = toPython(gradient);
  return all;
}

/// Steps of all optimizers of this worker take turns.
py::object inTurn(Worker& worker, const py::function& step) {
  std::unique_lock<std::mutex> turn;
  {
    const py::gil_scoped_release released;
    turn = std::unique_lock(worker.autograd().optimizerTurns());
  }
  return step();
}

OptimizerSpec specOf(const std::string& kind, const std::map<std::string, double>& numbers, bool nesterov) {
  OptimizerSpec spec;
  spec.kind = parseOptimizer(kind);
  spec.nesterov = nesterov;
  const auto take = [&](const char* name, double& member) {
    if (const auto found = numbers.find(name); found != numbers.end()) member = found->second;
  };
  take("lr", spec.learningRate), take("momentum", spec.momentum), take("weight_decay", spec.weightDecay);
  take("beta1", spec.beta1), take("beta2", spec.beta2), take("eps", spec.epsilon), take("alpha", spec.alpha);
  return spec;
}

std::shared_ptr<DistributedOptimizer> makeOptimizer(Worker& worker, const OptimizerSpec& spec, const std::vector<Reference>& parameters) {
  const RemoteValue made = runWaiting(*worker.tasks(), [&worker, spec, parameters]() -> RemoteValue {
    return Local{std::make_shared<DistributedOptimizer>(worker.remote(), spec, parameters)};
  });
  return std::static_pointer_cast<DistributedOptimizer>(made.object());
}

void stepOptimizer(const std::shared_ptr<DistributedOptimizer>& optimizer, Worker& worker, std::uint64_t context) {
  runWaiting(*worker.tasks(), [optimizer, context]() -> RemoteValue {
    optimizer->step(ContextId(context));
    return {};
  });
}

}  // namespace

void bindAutograd(py::module_& m) {
  const auto drops = py::release_gil_before_calling_cpp_dtor();
  const auto released = py::call_guard<py::gil_scoped_release>();
  py::class_<Opened>(m, "Context", drops)
      .def(py::init([](Worker& worker) {
             const py::gil_scoped_release notHeld;
             auto opened = std::make_unique<Opened>();
             opened->context.emplace(worker.autograd());
             return opened;
           }),
           py::arg("worker"), py::keep_alive<1, 2>())
      .def_property_readonly("id", [](const Opened& opened) { return opened.context.value().id().value; })
      .def(
          "close", [](Opened& opened) { opened.context.reset(); }, released);
  m.def("backward", &backward, py::arg("worker"), py::arg("context"), py::arg("roots"), py::arg("retain_graph"), py::arg("mode"));
  m.def("gradients", &gradients, py::arg("worker"), py::arg("context"));
  m.def("in_turn", &inTurn, py::arg("worker"), py::arg("step"));
  py::class_<OptimizerSpec>(m, "OptimizerSpec").def(py::init(&specOf), py::arg("kind"), py::arg("numbers"), py::arg("nesterov"));
  py::class_<DistributedOptimizer, std::shared_ptr<DistributedOptimizer>>(m, "Optimizer", drops)
      .def(py::init(&makeOptimizer), py::arg("worker"), py::arg("spec"), py::arg("parameters"), py::keep_alive<1, 2>())
      .def("step", &stepOptimizer, py::arg("worker"), py::arg("context"));
}

}  // namespace pw::python
