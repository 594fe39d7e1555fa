// A pair of processes with remote calls and distributed autograd over UCX, for remote.py: remote_calls_bench PORT. Each line from stdin
// gives a line of JSON with times [us]:
//
//   call BYTES COUNT   a function on the other process gives back the tensor that it gets
//   round COUNT        in a context of its own: a 3 x 3 sum on the other process, a product here, a backward pass, the gradients
//   contexts COUNT     such rounds, too: resident memory [bytes] of both processes before and after, and how many things are left on both

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/workers/remote_worker.h"
#include "schedules/error.h"
#include "tests/support/rank_threads.h"
#include "tests/support/tensors.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::int64_t residentBytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

Tensor tensorOf(const RemoteValue& value) { return {value.tensor()}; }

void define(Remote& remote, DistributedAutograd& autograd) {
  remote.define("identity", [](Remote&, const RemoteValue& value) { return value; });
  remote.define("add", [](Remote&, const RemoteValue& a) -> RemoteValue { return (tensorOf(a.at(0)) + tensorOf(a.at(1))).handle; });
  remote.define("memory", [](Remote&, const RemoteValue&) -> RemoteValue { return residentBytes(); });
  remote.define("left", [&autograd](Remote& here, const RemoteValue&) -> RemoteValue {
    const RemoteCounts calls = here.counts();
    const AutogradCounts passes = autograd.counts();
    return calls.owned + calls.held + passes.contexts + passes.sends + passes.receives + passes.gradients + passes.parts + passes.passes;
  });
}

class Caller {
 public:
  explicit Caller(int port) : worker_(environmentOf(0, 2, port), {}, define) {}

  nlohmann::json call(std::size_t bytes, int count) {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes, std::byte{1});
    const TensorHandle tensor =
        testFunctions().tensorOf({DType::Float32, {static_cast<std::int64_t>(bytes / 4)}, false, {{memory->data(), bytes}, memory}});
    return times(count, [&] { (void)worker_.remote().rpcSync("worker1", "identity", tensor); });
  }

  nlohmann::json rounds(int count) {
    return times(count, [&] { round(); });
  }

  nlohmann::json contexts(int count) {
    const auto both = [&](const char* what) {
      return worker_.remote().rpcSync("worker0", what).integer() + worker_.remote().rpcSync("worker1", what).integer();
    };
    const std::int64_t before = both("memory");
    for (int i = 0; i < count; ++i) round();
    const auto until = Clock::now() + 10s;
    while (both("left") != 0 && Clock::now() < until) {}  // what ends the last context is on its way
    return {before, both("memory"), both("left")};
  }

  void end() { worker_.shutdown(); }

 private:
  template <class Action>
  static nlohmann::json times(int count, const Action& action) {
    nlohmann::json all = nlohmann::json::array();
    for (int i = 0; i < count; ++i) {
      const auto start = Clock::now();
      action();
      all.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
    return all;
  }

  void round() {
    DistributedAutograd& autograd = worker_.autograd();
    const OpenContext context(autograd);
    const Tensor t3 = tensorOf(worker_.remote().rpcSync("worker1", "add", RemoteValue::List{t1_.handle, t2_.handle}));
    autograd.backward(context.id(), {sum(t3 * t4_).handle});
    if (autograd.gradients(context.id()).size() != 3) throw Error("a round has other gradients");
  }

  RemoteWorker worker_;
  const Tensor t1_ = leaf(1), t2_ = leaf(2), t4_ = leaf(4);
};

void run(int port) {
  Caller caller(port);
  for (std::string what; std::cin >> what;) {
    std::size_t bytes = 0;
    int count = 0;
    if (what == "call") std::cin >> bytes;
    std::cin >> count;
    std::cout << (what == "call"    ? caller.call(bytes, count)
                  : what == "round" ? caller.rounds(count)
                                    : caller.contexts(count))
                     .dump()
              << std::endl;
  }
  caller.end();
}

}  // namespace
}  // namespace pw::test

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "remote_calls_bench PORT\n";
    return 2;
  }
  const int port = std::atoi(arguments[1]);
  const pid_t peer = ::fork();
  try {
    if (peer == 0) {
      pw::RemoteWorker(pw::test::environmentOf(1, 2, port), {}, pw::test::define).shutdown(std::chrono::hours(1));
      return 0;
    }
    pw::test::run(port);
    int status = 0;
    ::waitpid(peer, &status, 0);
    return status == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
