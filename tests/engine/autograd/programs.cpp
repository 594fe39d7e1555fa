#include "tests/engine/autograd/programs.h"

#include <random>

namespace pw::test {
namespace {

using List = RemoteValue::List;

Tensor in(const List& arguments, std::size_t index) { return tensorOf(arguments.at(index)); }

/// w · x + tanh(x), with this worker's parameter 0.
RemoteValue layer(Here& here, const List& a) { return valueOf(matmul(here.parameter(0), in(a, 0)) + tanh(in(a, 0))); }
RemoteValue add(Here&, const List& a) { return valueOf(in(a, 0) + in(a, 1)); }
RemoteValue multiply(Here&, const List& a) { return valueOf(in(a, 0) * in(a, 1)); }
RemoteValue parameter(Here& here, const List& a) { return valueOf(here.parameter(static_cast<std::uint64_t>(a.at(0).integer()))); }
RemoteValue fetchAndLayer(Here& here, const List& a) { return layer(here, {here.fetch(a.at(0))}); }
RemoteValue pair(Here& here, const List& a) {
  return RemoteValue::Dict{{"sum", valueOf(in(a, 0) + here.parameter(1))}, {"all", List{valueOf(in(a, 0) * here.parameter(2)), 7}}};
}
/// On to the next worker of the list, if there is one left, and through this one's layer.
RemoteValue route(Here& here, const List& a) {
  RemoteValue x = a.at(0);
  List way = a.at(1).list();
  if (!way.empty()) {
    const int next = static_cast<int>(way.front().integer());
    way.erase(way.begin());
    x = here.call(next, "route", {x, way});
  }
  return layer(here, {x});
}
/// Until the value is small, which only the data says.
RemoteValue shrink(Here& here, const List& a) {
  Tensor x = in(a, 0);
  int rounds = 0;
  while (item(sum(x * x)) > 0.05 && rounds++ < 10) x = tensorOf(here.call(here.worker == 1 ? 2 : 1, "half", {valueOf(x)}));
  return valueOf(x * here.parameter(3));
}
RemoteValue half(Here& here, const List& a) { return valueOf(scaled(in(a, 0), 0.5) * tanh(here.parameter(4))); }
RemoteValue fail(Here&, const List&) { throw std::runtime_error("no value today"); }
/// Its first argument only.
RemoteValue first(Here& here, const List& a) { return valueOf(in(a, 0) * here.parameter(5)); }
/// Has worker 2 compute from its own value twice, and uses one.
RemoteValue wasteful(Here& here, const List& a) {
  const RemoteValue y = valueOf(in(a, 0) * here.parameter(5));
  (void)here.call(2, "layer", {y});
  return here.call(2, "layer", {y});
}
RemoteValue plain(Here&, const List&) { return List{1, "two", valueOf(constant(9)), valueOf(integers())}; }

std::map<std::string, ProgramFunction> functions() {
  return {{"layer", layer}, {"add", add},     {"multiply", multiply}, {"parameter", parameter}, {"fetchAndLayer", fetchAndLayer},
          {"pair", pair},   {"route", route}, {"shrink", shrink},     {"half", half},           {"fail", fail},
          {"first", first}, {"plain", plain}, {"wasteful", wasteful}};
}

Program of(ProgramMain main, int workers = 3) { return {functions(), std::move(main), workers}; }

}  // namespace

std::map<std::string, Program> programs() {
  std::map<std::string, Program> all;
  const auto x = [](Here& here, std::uint64_t number = 10) { return valueOf(here.parameter(number)); };

  all["OneCall"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "layer", {x(here)}))); });
  all["NestedCalls"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "route", {x(here), List{2}}))); });
  all["CircleOfWorkers"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "route", {x(here), List{2, 0, 1, 2, 0}}))); });
  all["WorkerCallsItself"] = of([x](Here& here) { return sum(tensorOf(here.call(0, "layer", {x(here)}))); });
  all["CalleeCallsItself"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "route", {x(here), List{1, 1}}))); });
  all["OneTensorToTwoWorkersAndBack"] = of([x](Here& here) {
    const RemoteValue value = x(here);
    return sum(tensorOf(here.call(1, "layer", {value})) * tensorOf(here.call(2, "layer", {value})));
  });
  all["OneTensorTwiceInACall"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "multiply", {x(here), x(here)}))); });
  all["SharedParameters"] = of([x](Here& here) {
    RemoteValue value = x(here);
    for (int i = 0; i < 4; ++i) value = here.call(1, "layer", {value});
    return sum(tensorOf(value));
  });
  all["ParameterFetchedByTwo"] = of([](Here& here) {
    const RemoteValue reference = here.keep(1, "parameter", {0});
    return sum(tensorOf(here.fetch(reference)) * tensorOf(here.call(2, "fetchAndLayer", {reference})));
  });
  all["ReferenceThroughThreeWorkers"] = of([x](Here& here) {
    const RemoteValue a = here.keep(1, "layer", {x(here)}), b = here.keep(2, "fetchAndLayer", {a}), c = here.keep(0, "fetchAndLayer", {b});
    return sum(tensorOf(here.fetch(c)));
  });
  all["ReferenceOfItsOwnWorker"] = of([](Here& here) {
    const RemoteValue reference = here.keep(1, "parameter", {6});
    return sum(tensorOf(here.call(1, "fetchAndLayer", {reference})));
  });
  all["DictsAndLists"] = of([x](Here& here) {
    const RemoteValue both = here.call(1, "pair", {x(here)});
    return sum(tensorOf(both.at("sum")) * tensorOf(both.at("all").at(0)));
  });
  all["HalfOfADict"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "pair", {x(here)}).at("sum"))); });
  all["CallsAtTheSameTime"] = of([x](Here& here) {
    std::vector<std::function<RemoteValue()>> calls;
    for (int i = 0; i < 8; ++i) calls.push_back(here.start(i % 3, "layer", {x(here, 10 + static_cast<std::uint64_t>(i % 2))}));
    Tensor product = tensorOf(calls[0]());
    for (std::size_t i = 1; i < calls.size(); ++i) product = product * tensorOf(calls[i]());
    return sum(product);
  });
  all["LoopOfUnknownLength"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "shrink", {x(here)}))); });
  all["BranchByValue"] = of([x](Here& here) {
    const Tensor y = tensorOf(here.call(1, "layer", {x(here)}));
    return sum(item(sum(y)) > 0 ? tensorOf(here.call(2, "layer", {valueOf(y)})) : tanh(y));
  });
  all["TransposedTensors"] =
      of([x](Here& here) { return sum(transposed(tensorOf(here.call(1, "layer", {valueOf(transposed(tensorOf(x(here))))})))); });
  all["ExceptionThatIsCaught"] = of([x](Here& here) {
    RemoteValue value = here.call(1, "layer", {x(here)});
    try {
      (void)here.call(2, "fail", {value});
      ADD_FAILURE() << "the exception did not arrive";
    } catch (const std::exception& problem) {
      EXPECT_NE(std::string(problem.what()).find("no value today"), std::string::npos);
    }
    return sum(tensorOf(here.call(2, "layer", {value})));
  });
  all["NothingRemoteInTheLoss"] = of([x](Here& here) {
    const RemoteValue other = here.call(1, "plain", {});
    return sum(tensorOf(x(here)) * tensorOf(other.at(2)));
  });
  all["DetachedInBetween"] = of([x](Here& here) {
    const Tensor remote = tensorOf(here.call(1, "layer", {x(here)}));
    return sum(onlyFirstOf(tanh(tensorOf(x(here, 11))), remote));
  });
  all["UnusedResult"] = of([x](Here& here) {
    (void)here.call(1, "layer", {x(here)});
    return sum(tensorOf(here.call(1, "layer", {x(here)})));
  });
  // The note's: d = a + b and e = b · c on the peer, and only d is in the loss; b waits for both.
  all["UnusedProductOfTheNote"] = of([x](Here& here) {
    const RemoteValue d = here.call(1, "add", {x(here, 1), x(here, 2)}), e = here.call(1, "multiply", {x(here, 2), x(here, 3)});
    return sum(tensorOf(d));
  });
  all["UnusedArgument"] = of([x](Here& here) {
    const RemoteValue y = here.call(2, "layer", {x(here)});
    return sum(tensorOf(here.call(1, "first", {x(here), y})) * tensorOf(here.call(1, "first", {y, x(here)})));
  });
  all["UnusedDeepInAChain"] = of([x](Here& here) {
    const RemoteValue y = here.call(1, "route", {x(here), List{2, 0}});
    (void)here.call(2, "route", {y, List{1, 0, 1}});
    (void)here.keep(2, "layer", {y});
    return sum(tensorOf(y) + tensorOf(here.call(2, "layer", {y})));
  });
  all["UnusedOnTheCallee"] = of([x](Here& here) { return sum(tensorOf(here.call(1, "wasteful", {x(here)}))); });
  all["UnusedAfterUnused"] = of([x](Here& here) {
    const RemoteValue y = here.call(1, "layer", {x(here)}), z = here.call(2, "layer", {y}), w = here.call(1, "layer", {z});
    (void)here.call(0, "layer", {w});
    return sum(tensorOf(y) * tensorOf(z));
  });
  return all;
}

bool usesAll(const std::string& program) { return program.find("Unused") == std::string::npos && program != "ExceptionThatIsCaught"; }

Program randomProgram(std::uint64_t seed, bool dropsSome) {
  constexpr int kWorkers = 4;
  Program program;
  program.workers = kWorkers;
  // Mixes its arguments with a parameter, asks others for more, keeps some of it as references.
  program.functions["mix"] = [dropsSome](Here& here, const List& a) -> RemoteValue {
    std::mt19937_64 random(static_cast<std::uint64_t>(a.at(0).integer()));
    const std::int64_t depth = a.at(1).integer();
    Tensor x = here.parameter(random() % 3);
    for (std::size_t i = 2; i < a.size(); ++i) x = random() % 2 == 0 ? x * in(a, i) : x + in(a, i);
    std::vector<Tensor> parts{x};
    for (auto calls = depth > 0 ? random() % 3 : 0; calls > 0; --calls) {
      const int to = static_cast<int>(random() % kWorkers);
      const List arguments{static_cast<std::int64_t>(random() >> 2U), depth - 1, valueOf(parts[random() % parts.size()]), valueOf(x)};
      const auto how = random() % 4;
      const bool isDropped = dropsSome && random() % 3 == 0;
      const RemoteValue result = how == 0   ? here.fetch(here.keep(to, "mix", arguments))
                                 : how == 1 ? here.start(to, "mix", arguments)()
                                            : here.call(to, "mix", arguments);
      if (!isDropped) parts.push_back(tensorOf(result));
    }
    Tensor all = tanh(parts[0]);
    for (std::size_t i = 1; i < parts.size(); ++i) all = random() % 2 == 0 ? all + scaled(parts[i], 0.5) : all * tanh(parts[i]);
    return valueOf(all);
  };
  program.main = [seed, dropsSome](Here& here) {
    std::mt19937_64 random(seed);
    std::vector<Tensor> parts{tanh(here.parameter(7))};
    const auto calls = 1 + random() % 3;
    for (std::uint64_t i = 0; i < calls; ++i) {
      const List arguments{static_cast<std::int64_t>(random() >> 2U), static_cast<std::int64_t>(random() % 3),
                           valueOf(parts[random() % parts.size()])};
      const RemoteValue result = here.call(static_cast<int>(random() % kWorkers), "mix", arguments);
      if (!dropsSome || i == 0 || random() % 3 != 0) parts.push_back(tensorOf(result));
    }
    Tensor all = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) all = all + parts[i];
    return sum(all);
  };
  return program;
}

}  // namespace pw::test
