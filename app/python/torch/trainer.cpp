#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "app/python/torch/bindings.h"
#include "app/python/torch/tensors.h"
#include "app/python/torch/waits.h"
#include "backends/torch/backend.h"
#include "engine/planning/inputs/limits.h"
#include "engine/run/session.h"
#include "schedules/error.h"

namespace py = pybind11;

namespace pw::python {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;

/// Sentences for the user, which may come from any thread, until Python fetches them.
class Sentences {
 public:
  void add(const std::string& sentence) {
    const std::scoped_lock lock(mutex_);
    waiting_.push_back(sentence);
  }
  std::vector<std::string> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(waiting_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> waiting_;
};

/// A session with the batch that Python gave last.
struct Trainer {
  std::shared_ptr<Sentences> sentences = std::make_shared<Sentences>();
  std::shared_ptr<NamedTensors> batch = std::make_shared<NamedTensors>();
  std::unique_ptr<TrainingSession> session;
};

/// The optimizer's numbers by torch.optim's names. Its kind is that of the session.
OptimizerSpec optimizerOf(const py::dict& numbers, const std::string& kind) {
  OptimizerSpec spec;
  spec.kind = parseOptimizer(kind);
  const auto take = [&](const char* name, auto& member) {
    if (numbers.contains(name)) member = numbers[name].cast<std::decay_t<decltype(member)>>();
  };
  take("lr", spec.learningRate);
  take("momentum", spec.momentum);
  take("nesterov", spec.nesterov);
  take("beta1", spec.beta1);
  take("beta2", spec.beta2);
  take("eps", spec.epsilon);
  take("alpha", spec.alpha);
  take("weight_decay", spec.weightDecay);
  if (!numbers.contains("groups")) return spec;
  for (const py::handle group : numbers["groups"]) {
    auto [rate, decay, names] = group.cast<std::tuple<double, double, std::vector<std::string>>>();
    spec.groups.push_back({rate, decay, std::move(names)});
  }
  return spec;
}

std::chrono::milliseconds timeoutOf(const char* argument, double seconds) {
  requireNumber(argument, seconds, kShortestTimeout, kLongestTimeout);
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

/// Options of `run` by their names in Python; None and missing ones stay as they are.
RunRequest requestOf(const py::dict& options) {
  RunRequest request;
  const auto take = [&](const char* name, auto& member) {
    if (options.contains(name) && !options[name].is_none()) member = options[name].cast<std::decay_t<decltype(member)>>();
  };
  take("plan", request.plan);
  take("models", request.models);
  take("libraries", request.libraries);
  take("loss", request.loss);
  take("loss_count", request.lossCount);
  std::string precision;
  take("precision", precision);
  if (!precision.empty()) {
    request.precision = precisionNamed(precision);
    if (!request.precision) throw UsageError("precision is \"" + precision + "\"; use traced, bf16 or fp16");
  }
  take("tf32", request.tf32);
  take("graphs", request.graphs);
  take("threads", request.threads);
  take("seed", request.seed);
  std::optional<double> seconds;
  take("timeout", seconds);
  if (seconds) request.timeout = timeoutOf("timeout", *seconds);
  take("clip_norm", request.clipNorm);
  if (request.clipNorm != 0) requireNumber("clip_norm", request.clipNorm, kLeastNorm, kMostNorm);
  take("zero1", request.zero1);
  take("skip_nonfinite", request.skipNonFinite);
  take("store", request.store);
  take("log", request.log);
  take("resume", request.resume);
  std::string backend, lossOver;
  take("backend", backend);
  take("loss_over", lossOver);
  if (!backend.empty()) {
    request.transport = valueNamed<Transport>(backend);
    if (!request.transport) throw UsageError("Unknown backend " + backend + "; use " + namesOf<Transport>(", ") + ".");
  }
  if (lossOver == nameOf(LossScope::WholeBatch)) request.lossOver = LossScope::WholeBatch;
  request.update = optimizerOf(options["numbers"].cast<py::dict>(), options["optimizer"].cast<std::string>());
  request.optimizer = request.update.kind;
  return request;
}

/// Ctrl-C ends these waits for other ranks; the attempt then ends by itself.
JobPlace joinOthers(double seconds) {
  const std::chrono::milliseconds deadline = timeoutOf("start_timeout", seconds);
  const RemoteValue place = runApart([deadline]() -> RemoteValue { return Local{std::make_shared<JobPlace>(joinJob(deadline))}; });
  return *std::static_pointer_cast<JobPlace>(place.object());
}
std::string hear(const JobPlace& place) {
  const RemoteValue text = runApart([place]() -> RemoteValue { return Local{std::make_shared<std::string>(hearRankZero(place))}; });
  return *std::static_pointer_cast<std::string>(text.object());
}

std::unique_ptr<Trainer> makeTrainer(const py::dict& options, const JobPlace& place) {
  auto trainer = std::make_unique<Trainer>();
  RunRequest request = requestOf(options);
  request.feed = std::make_shared<BatchFeed>(BatchFeed{"", [batch = trainer->batch](int) { return *batch; }});
  const py::gil_scoped_release released;
  trainer->session =
      std::make_unique<TrainingSession>(request, place, [sentences = trainer->sentences](const std::string& s) { sentences->add(s); });
  return trainer;
}

/// The figures of a step: all of them on the rank that watches.
py::dict stepTrainer(Trainer& trainer, const std::string& kind, const py::dict& numbers, const py::dict& batch, bool watches) {
  const OptimizerSpec optimizer = optimizerOf(numbers, kind);
  NamedTensors tensors;
  for (const auto& [name, tensor] : batch) tensors[name.cast<std::string>()] = tensorOf(tensor);
  *trainer.batch = std::move(tensors);
  std::optional<std::pair<Trace, Metrics>> seen;
  StepWatcher watch;
  if (watches) watch = [&](int, const Trace& trace, const Metrics& metrics) { seen = {trace, metrics}; };
  SessionStep done;
  {
    const py::gil_scoped_release released;
    done = trainer.session->step(optimizer, watch);
  }
  trainer.batch->clear();
  py::dict figures;
  figures["number"] = done.number;
  figures["loss"] = done.loss;
  figures["gradient_norm"] = done.gradientNorm;
  figures["skipped"] = done.skipped;
  if (seen) {
    figures["trace"] = py::cast(std::move(seen->first));
    figures["step_ns"] = seen->second.step.value;
    figures["bubble"] = seen->second.bubbleFraction;
  }
  return figures;
}

py::dict weights(Trainer& trainer) {
  std::vector<StateTensorCopy> tensors;
  {
    const py::gil_scoped_release released;
    tensors = trainer.session->weights();
  }
  py::dict all;
  for (const StateTensorCopy& tensor : tensors)
    all[py::str(tensor.name)] = toPython(torchBackend().autograd().tensorOf({tensor.dtype, tensor.shape, false, tensor.memory}));
  return all;
}

}  // namespace

void bindTrainer(py::module_& m) {
  py::class_<JobPlace>(m, "JobPlace")
      .def_property_readonly("rank", [](const JobPlace& p) { return p.environment.rank.value; })
      .def_property_readonly("size", [](const JobPlace& p) { return p.environment.worldSize; })
      .def_property_readonly("local_size", [](const JobPlace& p) { return p.environment.localSize; })
      .def("training", &forTraining, py::arg("number"))
      .def("tell", &tellRanks, py::arg("text"), Released())
      .def("refuse", &refuseRanks, py::arg("sentence"), py::arg("unusable"), Released())
      .def("hear", &hear);
  m.def("join_job", &joinOthers, py::arg("timeout"));
  py::class_<Trainer>(m, "Trainer", py::release_gil_before_calling_cpp_dtor())
      .def(py::init(&makeTrainer), py::arg("options"), py::arg("place"))
      .def("step", &stepTrainer, py::arg("kind"), py::arg("numbers"), py::arg("batch"), py::arg("watches"))
      .def("weights", &weights)
      .def("inputs", [](const Trainer& t) { return t.session->inputs(); })
      .def("next_step", [](const Trainer& t) { return t.session->nextStep(); })
      .def("plan", [](const Trainer& t) { return toJson(t.session->plan()); })
      .def("sentences", [](const Trainer& t) { return t.sentences->take(); })
      .def(
          "save", [](Trainer& t, const std::string& path) { t.session->save(path); }, py::arg("path"), Released())
      .def(
          "load", [](Trainer& t, const std::string& path, bool onlyWeights) { t.session->load(path, onlyWeights); }, py::arg("path"),
          py::arg("only_weights"), Released())
      .def(
          "close", [](Trainer& t, bool inOrder) { t.session->close(inOrder); }, py::arg("in_order"), Released());
}

}  // namespace pw::python
