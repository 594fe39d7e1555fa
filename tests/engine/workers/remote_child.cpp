// A worker of a job of remote calls, as the tests of processes need it:
//
//   remote_child note TRANSPORT                      the two examples of PyTorch's note on distributed autograd, by each worker with the
//   next remote_child programs TRANSPORT MODE FIRST COUNT the programs of tests/engine/autograd, then random ones of these seeds, by worker
//   0
//
// Prints lines of a name and numbers: `OneCall/loss 3.5`, `OneCall/1/0 0.25 …` for the gradient of worker 1's parameter 0, which is
// `parameter/1/0`.

#include <fmt/format.h>

#include <cstdlib>
#include <iostream>

#include "engine/autograd/optimizer.h"
#include "engine/processes/rank_environment.h"
#include "engine/workers/remote_worker.h"
#include "tests/engine/autograd/programs.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;

void print(const std::string& name, const std::vector<double>& values) {
  std::string line = name;
  for (const double value : values) line += fmt::format(" {:.17g}", value);
  std::cout << line + '\n';
}

RemoteValue::List listOf(const std::vector<double>& values) {
  RemoteValue::List list;
  for (const double value : values) list.emplace_back(value);
  return list;
}

/// This process's parameters, and what others ask about them.
struct World {
  explicit World(const RankEnvironment& environment, Transport transport, const Program& program)
      : worker(environment, {.transport = transport, .deadline = 60s}, [&](Remote& remote, DistributedAutograd& autograd) {
          define(remote, program, parameters);
          remote.define("leaf", [](Remote&, const RemoteValue& a) { return valueOf(leaf(static_cast<std::uint64_t>(a.integer()))); });
          remote.define("gradients", [this, &autograd](Remote&, const RemoteValue& context) {
            return gradients(autograd, ContextId(static_cast<std::uint64_t>(context.integer())));
          });
          remote.define("left", [&autograd](Remote& here, const RemoteValue&) { return left(here, autograd); });
        }) {}

  /// `worker/number` of each parameter: it and its gradient.
  RemoteValue gradients(DistributedAutograd& autograd, ContextId context) const {
    RemoteValue::Dict found;
    for (const auto& [key, tensor] : parameters.all()) {
      std::vector<double> gradient;
      try {
        gradient = numbers(autograd.gradient(context, tensor.handle));
      } catch (const UsageError&) {  // the context was never here, so that there is no gradient
      }
      found.emplace_back(fmt::format("{}/{}", key.first, key.second), RemoteValue::List{listOf(numbers(tensor.handle)), listOf(gradient)});
    }
    return found;
  }

  /// What this worker still has, the question itself not counted.
  static RemoteValue left(const Remote& remote, const DistributedAutograd& autograd) {
    const RemoteCounts calls = remote.counts();
    const AutogradCounts passes = autograd.counts();
    return static_cast<std::int64_t>(calls.calls + calls.executing - 1 + calls.owned + calls.held + passes.contexts + passes.sends +
                                     passes.receives + passes.gradients + passes.parts + passes.passes);
  }

  Parameters parameters;
  RemoteWorker worker;
};

std::vector<double> numbersOf(const RemoteValue& list) {
  std::vector<double> values;
  for (const RemoteValue& value : list.list()) values.push_back(value.number());
  return values;
}

/// Messages that give something back may still be on their way.
void requireNothingLeft(World& world) {
  Remote& remote = world.worker.remote();
  const auto until = std::chrono::steady_clock::now() + 20s;
  for (const std::string& name : remote.settings().names) {
    const bool asksItself = name == remote.nameOf(remote.settings().self);
    while (true) {
      const std::int64_t left = remote.rpcSync(name, "left").integer() - (asksItself ? 1 : 0);  // its call has no result yet
      if (left == 0) break;
      if (std::chrono::steady_clock::now() > until) throw Error(fmt::format("{} things are left on {}", left, name));
    }
  }
}

void runProgram(World& world, const std::string& name, const Program& program, BackwardMode mode, RemoteValue::Dict& parameters) {
  Remote& remote = world.worker.remote();
  Here here = hereOn(remote, world.parameters);
  const OpenContext context(world.worker.autograd());
  const Tensor loss = program.main(here);
  world.worker.autograd().backward(context.id(), {loss.handle}, {.mode = mode, .keepGraph = false, .deadline = {}});
  print(name + "/loss", {item(loss)});
  const WithContext outside{ContextId()};
  for (const std::string& worker : remote.settings().names) {
    const RemoteValue found = remote.rpcSync(worker, "gradients", static_cast<std::int64_t>(context.id().value));
    for (const auto& [key, both] : found.dict()) {
      if (!both.at(1).list().empty()) print(fmt::format("{}/{}", name, key), numbersOf(both.at(1)));
      parameters.emplace_back(key, both.at(0));
    }
  }
}

BackwardMode modeOf(const std::string& name) {
  return name == "fast" ? BackwardMode::Fast : name == "smart" ? BackwardMode::Smart : BackwardMode::Auto;
}

void runPrograms(const RankEnvironment& environment, Transport transport, BackwardMode mode, std::uint64_t first, std::uint64_t count) {
  const bool dropsSome = mode != BackwardMode::Fast;
  Program all = programs().begin()->second;  // they share their functions
  all.functions.merge(randomProgram(first, dropsSome).functions);
  World world(environment, transport, all);
  if (environment.rank == JobRank(0)) {
    RemoteValue::Dict parameters;
    for (const auto& [name, program] : programs()) {
      if (dropsSome || usesAll(name)) runProgram(world, name, program, mode, parameters);
    }
    for (std::uint64_t seed = first; seed < first + count; ++seed)
      runProgram(world, fmt::format("seed{}", seed), randomProgram(seed, dropsSome), mode, parameters);
    const std::map<std::string, RemoteValue> each(parameters.begin(), parameters.end());
    for (const auto& [key, values] : each) print("parameter/" + key, numbersOf(values));
    requireNothingLeft(world);
  }
  world.worker.shutdown();
}

/// t3 = next.add(t1, t2) and t5 = t3 · t4; then two parameters that the next worker makes, their sum as the loss, and a step on them.
void runNote(const RankEnvironment& environment, Transport transport) {
  World world(environment, transport, programs().begin()->second);
  Remote& remote = world.worker.remote();
  DistributedAutograd& autograd = world.worker.autograd();
  const int self = environment.rank.value;
  const std::string& next = remote.nameOf(JobRank((self + 1) % environment.worldSize));
  const auto seed = [self](int number) { return static_cast<std::uint64_t>(100 * self + number); };
  {
    const OpenContext context(autograd);
    const Tensor t1 = leaf(seed(1)), t2 = leaf(seed(2)), t4 = leaf(seed(4));
    const Tensor t3 = tensorOf(remote.rpcSync(next, "add", RemoteValue::List{valueOf(t1), valueOf(t2)}));
    autograd.backward(context.id(), {sum(t3 * t4).handle});
    for (const auto& [number, tensor] : {std::pair(1, t1), std::pair(2, t2), std::pair(4, t4)})
      print(fmt::format("add/{}/{}", self, number), numbers(autograd.gradient(context.id(), tensor.handle)));
  }
  {
    const OpenContext context(autograd);
    const Reference one = remote.remote(next, "leaf", static_cast<std::int64_t>(seed(5))),
                    two = remote.remote(next, "leaf", static_cast<std::int64_t>(seed(6)));
    const Tensor loss = sum(tensorOf(remote.toHere(one)) + tensorOf(remote.toHere(two)));
    autograd.backward(context.id(), {loss.handle});
    OptimizerSpec sgd;
    sgd.learningRate = 0.05;
    DistributedOptimizer(remote, sgd, {one, two}).step(context.id());
    for (const auto& [number, reference] : {std::pair(5, one), std::pair(6, two)})
      print(fmt::format("step/{}/{}", self, number), numbers(remote.toHere(reference).tensor()));
  }
  world.worker.shutdown();
}

int run(const RankEnvironment& environment, const std::vector<std::string>& words) {
  try {
    const Transport transport = words.at(1) == "gloo" ? Transport::Gloo : Transport::Ucx;
    if (words.at(0) == "note") {
      runNote(environment, transport);
    } else {
      runPrograms(environment, transport, modeOf(words.at(2)), std::stoull(words.at(3)), std::stoull(words.at(4)));
    }
    std::cout << std::flush;
    return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  } catch (const std::exception& problem) {
    reportFailure(environment, problem.what());
    std::cerr << problem.what() << '\n';
    return 1;
  }
}

}  // namespace
}  // namespace pw::test

int main(int count, char** words) {
  const auto environment = pw::rankEnvironment();
  if (!environment || count < 3) return 2;
  return pw::test::run(*environment, {words + 1, words + count});
}
