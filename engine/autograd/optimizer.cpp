#include "engine/autograd/optimizer.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "engine/autograd/autograd.h"
#include "schedules/error.h"

namespace pw {
namespace {

const char* const kMake = "pw.optimizer.make";
const char* const kStep = "pw.optimizer.step";

struct LocalOptimizer {
  OptimizerHandle optimizer;
  std::vector<TensorHandle> parameters;
};

RemoteValue valueOf(const OptimizerSpec& spec) {
  return RemoteValue::Dict{{"kind", std::string(nameOf(spec.kind))},
                           {"learningRate", spec.learningRate},
                           {"momentum", spec.momentum},
                           {"nesterov", spec.nesterov},
                           {"beta1", spec.beta1},
                           {"beta2", spec.beta2},
                           {"epsilon", spec.epsilon},
                           {"alpha", spec.alpha},
                           {"weightDecay", spec.weightDecay},
                           {"warmupSteps", spec.warmupSteps},
                           {"decaySteps", spec.decaySteps},
                           {"finalRate", spec.finalRate}};
}

OptimizerSpec specOf(const RemoteValue& value) {
  OptimizerSpec spec;
  spec.kind = parseOptimizer(value.at("kind").text());
  spec.learningRate = value.at("learningRate").number();
  spec.momentum = value.at("momentum").number();
  spec.nesterov = value.at("nesterov").boolean();
  spec.beta1 = value.at("beta1").number();
  spec.beta2 = value.at("beta2").number();
  spec.epsilon = value.at("epsilon").number();
  spec.alpha = value.at("alpha").number();
  spec.weightDecay = value.at("weightDecay").number();
  spec.warmupSteps = static_cast<int>(value.at("warmupSteps").integer());
  spec.decaySteps = static_cast<int>(value.at("decaySteps").integer());
  spec.finalRate = value.at("finalRate").number();
  return spec;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(Remote& remote, const OptimizerSpec& spec, const std::vector<Reference>& parameters,
                                           Remote::Deadline deadline)
    : remote_(remote) {
  if (parameters.empty()) throw UsageError("A distributed optimizer needs parameters; give references to them.");
  requireConsistent(spec);
  std::map<JobRank, RemoteValue::List> byOwner;
  std::set<ReferenceId> seen;
  for (const Reference& parameter : parameters) {
    if (seen.insert(parameter.id()).second) byOwner[parameter.owner()].emplace_back(parameter);
  }
  std::vector<std::pair<JobRank, RemoteFuture>> made;
  for (auto& [owner, own] : byOwner) {
    made.emplace_back(owner, remote.rpcAsync(remote.nameOf(owner), kMake, RemoteValue::List{valueOf(spec), std::move(own)}, deadline));
  }
  for (auto& [owner, reference] : made) local_[owner] = reference.wait().reference();
}

void DistributedOptimizer::step(ContextId context, Remote::Deadline deadline) {
  std::vector<RemoteFuture> steps;
  for (const auto& [owner, optimizer] : local_) {
    steps.push_back(
        remote_.rpcAsync(remote_.nameOf(owner), kStep, RemoteValue::List{optimizer, static_cast<std::int64_t>(context.value)}, deadline));
  }
  std::exception_ptr problem;
  for (const RemoteFuture& step : steps) {
    try {
      (void)step.wait();
    } catch (...) {
      if (problem == nullptr) problem = std::current_exception();  // after the others have ended, too
    }
  }
  if (problem != nullptr) std::rethrow_exception(problem);
}

void defineOptimizers(DistributedAutograd& autograd) {
  const AutogradFunctions& functions = *autograd.remote().settings().functions;
  autograd.remote().define(kMake, [&functions](Remote& here, const RemoteValue& arguments) -> RemoteValue {
    auto local = std::make_shared<LocalOptimizer>();
    local->optimizer = functions.makeOptimizer(specOf(arguments.at(0)));
    std::set<const void*> seen;
    for (const RemoteValue& parameter : arguments.at(1).list()) {
      TensorHandle tensor = here.localValue(parameter.reference()).tensor();
      if (seen.insert(functions.identityOf(tensor)).second) local->parameters.push_back(std::move(tensor));
    }
    return here.share(Local{local});
  });
  autograd.remote().define(kStep, [&functions, &autograd](Remote& here, const RemoteValue& arguments) -> RemoteValue {
    auto& local = *std::static_pointer_cast<LocalOptimizer>(here.localValue(arguments.at(0).reference()).object());
    const ContextId context(static_cast<std::uint64_t>(arguments.at(1).integer()));
    const std::lock_guard lock(autograd.optimizerTurns());
    for (std::size_t i = 0; i < local.parameters.size(); ++i) {
      const TensorHandle gradient = autograd.gradient(context, local.parameters[i]);
      if (gradient != nullptr) functions.stepOptimizer(local.optimizer, i, local.parameters[i], gradient);
    }
    return {};
  });
}

}  // namespace pw
