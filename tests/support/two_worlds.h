#pragma once

// Programs of remote calls, run twice: over workers, and as plain calls in one thread with LibTorch's own autograd.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/remote_job.h"
#include "tests/support/tensors.h"

namespace pw::test {

/// What a function of a program sees of its worker.
struct Here {
  int worker = 0;
  std::function<Tensor(std::uint64_t)> parameter;  ///< of this worker, by number: the same in both worlds
  std::function<RemoteValue(int worker, const std::string& function, const RemoteValue::List& arguments)> call;
  std::function<std::function<RemoteValue()>(int worker, const std::string& function, const RemoteValue::List& arguments)> start;
  std::function<RemoteValue(int worker, const std::string& function, const RemoteValue::List& arguments)> keep;  ///< a reference
  std::function<RemoteValue(const RemoteValue&)> fetch;
};

using ProgramFunction = std::function<RemoteValue(Here&, const RemoteValue::List& arguments)>;
/// The loss, on worker 0.
using ProgramMain = std::function<Tensor(Here&)>;

struct Program {
  std::map<std::string, ProgramFunction> functions;
  ProgramMain main;
  int workers = 3;
};

inline Tensor tensorOf(const RemoteValue& value) { return {value.tensor()}; }
inline RemoteValue valueOf(const Tensor& tensor) { return tensor.handle; }

/// Parameters of all workers, made on first access.
class Parameters {
 public:
  Tensor get(int worker, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto [entry, isNew] = all_.try_emplace({worker, number});
    if (isNew) entry->second = leaf(static_cast<std::uint64_t>(worker) * 1000 + number + 1);
    return entry->second;
  }
  [[nodiscard]] std::map<std::pair<int, std::uint64_t>, Tensor> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<int, std::uint64_t>, Tensor> all_;
};

/// Gradients by worker and parameter, and the loss.
struct Outcome {
  double loss = 0;
  std::map<std::pair<int, std::uint64_t>, std::vector<double>> gradients;
};

inline Outcome runInOneThread(const Program& program) {
  Parameters parameters;
  std::function<Here(int)> hereOf = [&](int worker) {
    Here here;
    here.worker = worker;
    here.parameter = [&parameters, worker](std::uint64_t number) { return parameters.get(worker, number); };
    here.call = [&](int to, const std::string& function, const RemoteValue::List& arguments) {
      Here there = hereOf(to);
      return program.functions.at(function)(there, arguments);
    };
    here.start = [call = here.call](int to, const std::string& function, const RemoteValue::List& arguments) {
      return [value = call(to, function, arguments)] { return value; };
    };
    here.keep = here.call;
    here.fetch = [](const RemoteValue& value) { return value; };
    return here;
  };
  Here main = hereOf(0);
  const Tensor loss = program.main(main);
  localBackward({loss});
  Outcome outcome{item(loss), {}};
  for (const auto& [key, tensor] : parameters.all()) outcome.gradients[key] = gradOf(tensor);
  return outcome;
}

inline Here hereOn(Remote& remote, Parameters& parameters) {
  Here here;
  here.worker = remote.settings().self.value;
  here.parameter = [&parameters, worker = here.worker](std::uint64_t number) { return parameters.get(worker, number); };
  const auto name = [&remote](int worker) { return remote.nameOf(JobRank(worker)); };
  here.call = [&remote, name](int to, const std::string& function, const RemoteValue::List& arguments) {
    return remote.rpcSync(name(to), function, arguments);
  };
  here.start = [&remote, name](int to, const std::string& function, const RemoteValue::List& arguments) -> std::function<RemoteValue()> {
    const RemoteFuture future = remote.rpcAsync(name(to), function, arguments);
    return [future] { return future.wait(); };
  };
  here.keep = [&remote, name](int to, const std::string& function, const RemoteValue::List& arguments) -> RemoteValue {
    return remote.remote(name(to), function, arguments);
  };
  here.fetch = [&remote](const RemoteValue& value) { return remote.toHere(value.reference()); };
  return here;
}

inline void define(Remote& on, const Program& program, Parameters& parameters) {
  for (const auto& [name, function] : program.functions) {
    on.define(name, [&parameters, function = function](Remote& remote, const RemoteValue& arguments) {
      Here here = hereOn(remote, parameters);
      return function(here, arguments.list());
    });
  }
}

inline void define(RemoteJob& job, const Program& program, Parameters& parameters) {
  for (int worker = 0; worker < job.size(); ++worker) define(job.remote(worker), program, parameters);
}

/// Runs it in a context of its own; the gradients of all workers are those of that context.
inline Outcome runOverWorkers(RemoteJob& job, const Program& program, Parameters& parameters, BackwardMode mode) {
  Here main = hereOn(job.remote(0), parameters);
  const OpenContext context(job.autograd(0));
  const Tensor loss = program.main(main);
  job.autograd(0).backward(context.id(), {loss.handle}, {.mode = mode, .keepGraph = false, .deadline = {}});
  Outcome outcome{item(loss), {}};
  for (const auto& [key, tensor] : parameters.all()) {
    std::vector<double>& gradient = outcome.gradients[key];
    try {
      gradient = numbers(job.autograd(key.first).gradient(context.id(), tensor.handle));
    } catch (const UsageError&) {  // the context was never there, so that there is no gradient
    }
  }
  return outcome;
}

inline void expectEqual(const Outcome& one, const Outcome& other) {
  EXPECT_NEAR(one.loss, other.loss, 1e-6 * std::abs(other.loss) + 1e-12);
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  for (const auto& [key, expected] : other.gradients) {
    const std::vector<double>& gradient = one.gradients.at(key);
    ASSERT_EQ(gradient.size(), expected.size()) << "worker " << key.first << ", parameter " << key.second;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(gradient[i], expected[i], 1e-6 * std::abs(expected[i]) + 1e-12) << "worker " << key.first << ", parameter " << key.second;
    }
  }
}

/// What has to be left when nothing is in flight: waits for messages that are still on their way, with a deadline.
inline void expectNothingLeft(RemoteJob& job) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto isEmpty = [&] {
    for (int i = 0; i < job.size(); ++i) {
      if (job.remote(i).counts() != RemoteCounts{} || job.autograd(i).counts() != AutogradCounts{}) return false;
    }
    return true;
  };
  while (!isEmpty() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  for (int i = 0; i < job.size(); ++i) {
    const RemoteCounts calls = job.remote(i).counts();
    const AutogradCounts autograd = job.autograd(i).counts();
    EXPECT_EQ(calls, RemoteCounts{}) << "worker " << i << ": " << calls.calls << " calls, " << calls.executing << " executing, "
                                     << calls.owned << " owned, " << calls.held << " held, " << calls.deadlines << " deadlines";
    EXPECT_EQ(autograd, AutogradCounts{}) << "worker " << i << ": " << autograd.contexts << " contexts";
  }
}

}  // namespace pw::test
