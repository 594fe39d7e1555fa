#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "schedules/error.h"
#include "tests/support/tensors.h"

// Reverse-mode differentiation in its simplest form: 3 × 3 doubles, and functions that know their derivatives.

namespace pw::test {
namespace {

using Numbers = std::vector<double>;

struct Array;

struct Function {
  struct Edge {
    std::shared_ptr<Function> function;
    std::size_t input = 0;
  };
  std::size_t inputs = 1;
  std::vector<Edge> next;
  std::function<std::vector<Numbers>(const std::vector<Numbers>&)> apply;  ///< gradients of inputs to those of `next`; none: empty
  std::weak_ptr<Array> leaf;
  AutogradMessageId receives;
  std::string origin;
};

struct Array {
  Numbers values;
  bool isNumber = false;  ///< one
  bool needs = false;
  std::shared_ptr<Function> made;  ///< of a leaf: where its gradient ends
  std::size_t output = 0;
  Numbers grad;
};

Array& in(const TensorHandle& handle) { return *static_cast<Array*>(handle.get()); }
Array& in(const Tensor& tensor) { return in(tensor.handle); }
Function& functionIn(const NodeHandle& handle) { return *static_cast<Function*>(handle.get()); }

Tensor arrayOf(Numbers values) {
  auto array = std::make_shared<Array>();
  array->isNumber = values.size() == 1;
  array->values = std::move(values);
  return {array};
}

void add(Numbers& sum, const Numbers& more) {
  if (sum.empty()) sum.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

using Derivative = std::function<Numbers(const Numbers&)>;  ///< the result's gradient to an operand's

Tensor resultOf(Numbers values, const std::vector<std::pair<Tensor, Derivative>>& operands) {
  Tensor result = arrayOf(std::move(values));
  auto function = std::make_shared<Function>();
  std::vector<Derivative> derivatives;
  for (const auto& [operand, derivative] : operands) {
    if (!in(operand).needs) continue;
    function->next.push_back({in(operand).made, in(operand).output});
    derivatives.push_back(derivative);
  }
  if (derivatives.empty()) return result;
  function->apply = [derivatives](const std::vector<Numbers>& gradients) {
    std::vector<Numbers> out;
    for (const Derivative& derivative : derivatives) out.push_back(gradients[0].empty() ? Numbers() : derivative(gradients[0]));
    return out;
  };
  in(result).needs = true;
  in(result).made = function;
  return result;
}

template <class Each>
Numbers each(const Numbers& a, const Each& function) {
  Numbers out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(function(i));
  return out;
}

Numbers product(const Numbers& a, const Numbers& b, bool transposeA = false, bool transposeB = false) {
  Numbers out(9);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 3; ++k)
        out[3 * i + j] += (transposeA ? a[3 * k + i] : a[3 * i + k]) * (transposeB ? b[3 * j + k] : b[3 * k + j]);
    }
  }
  return out;
}

Numbers transposedNumbers(const Numbers& a) {
  return each(a, [&](std::size_t i) { return a[3 * (i % 3) + i / 3]; });
}

Numbers random(std::uint64_t seed) {
  Numbers values;
  std::uint64_t state = seed * 6364136223846793005ULL + 1442695040888963407ULL;
  for (int i = 0; i < 9; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    values.push_back(static_cast<double>(state >> 33U) / static_cast<double>(1U << 30U) - 1);
  }
  return values;
}

/// The rules of AutogradFunctions, written down as slowly as they are stated.
struct Pass {
  std::vector<TensorHandle> roots;
  std::map<Function*, int> expected;
  std::map<Function*, std::pair<std::vector<Numbers>, int>> waiting;
  std::vector<std::pair<Function*, std::vector<Numbers>>> ready;
  std::set<Function*> reached;
  std::vector<NodeHandle> kept;
  bool started = false;

  void put(const Function::Edge& edge, const Numbers& gradient) {
    auto& [inputs, arrived] = waiting[edge.function.get()];
    inputs.resize(edge.function->inputs);
    if (!gradient.empty()) add(inputs[edge.input], gradient);
    ++arrived;
    check(edge.function.get());
  }
  void check(Function* function) {
    auto found = waiting.find(function);
    if (found == waiting.end() || found->second.second < expected[function]) return;
    ready.emplace_back(function, std::move(found->second.first));
    waiting.erase(found);
  }
};

Pass& passIn(const LocalPassHandle& handle) { return *static_cast<Pass*>(handle.get()); }

std::vector<Function*> startsOf(const std::vector<NodeHandle>& sends, const std::vector<TensorHandle>& roots) {
  std::vector<Function*> from;
  for (const NodeHandle& send : sends) from.push_back(&functionIn(send));
  for (const TensorHandle& root : roots) from.push_back(in(root).made.get());
  return from;
}

/// All that can be reached and is not in `seen` yet.
std::vector<Function*> reachable(std::vector<Function*> from, std::set<Function*>& seen) {
  std::vector<Function*> all;
  while (!from.empty()) {
    Function* function = from.back();
    from.pop_back();
    if (!seen.insert(function).second) continue;
    all.push_back(function);
    for (const Function::Edge& edge : function->next) from.push_back(edge.function.get());
  }
  return all;
}

bool needs(const TensorHandle& tensor) { return in(tensor).needs; }
TensorImage imageOf(const TensorHandle& tensor) {
  auto copy = std::make_shared<Numbers>(in(tensor).values);
  TensorImage image{DType::Float64, {}, false, {{reinterpret_cast<std::byte*>(copy->data()), copy->size() * sizeof(double)}, copy}};
  if (!in(tensor).isNumber) image.shape = {static_cast<std::int64_t>(copy->size())};
  return image;
}
TensorHandle tensorOf(const TensorImage& image) {
  const std::size_t count = image.shape.empty() ? 1 : static_cast<std::size_t>(image.shape[0]);
  if (image.memory.buffer.bytes != count * sizeof(double)) throw Error("the size is wrong");
  Numbers values(count);
  if (count > 0) std::memcpy(values.data(), image.memory.buffer.data, image.memory.buffer.bytes);
  return arrayOf(std::move(values)).handle;
}
const void* identityOf(const TensorHandle& tensor) { return tensor.get(); }
TensorHandle sumOf(const TensorHandle& one, const TensorHandle& other) {
  Numbers sum = in(one).values;
  add(sum, in(other).values);
  return arrayOf(std::move(sum)).handle;
}
Bytes bytesOf(const TensorHandle& tensor) { return tensor == nullptr ? 0 : static_cast<Bytes>(in(tensor).values.size() * sizeof(double)); }
NodeHandle attachSend(const std::vector<TensorHandle>& tensors) {
  auto function = std::make_shared<Function>();
  function->inputs = tensors.size();
  for (const TensorHandle& tensor : tensors) function->next.push_back({in(tensor).made, in(tensor).output});
  function->apply = [](const std::vector<Numbers>& gradients) { return gradients; };
  return function;
}
NodeHandle attachReceive(const std::vector<TensorHandle>& tensors, AutogradMessageId message, const std::string& origin) {
  auto function = std::make_shared<Function>();
  function->inputs = tensors.size();
  function->receives = message;
  function->origin = origin;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Array& array = in(tensors[i]);
    array.needs = true, array.made = function, array.output = i;
  }
  return function;
}
LocalPassHandle makePass(const std::vector<TensorHandle>& roots, bool) {
  for (const TensorHandle& root : roots) {
    if (!in(root).needs) throw UsageError("Root 0 of the backward pass needs no gradient.");
    if (in(root).values.size() != 1)
      throw UsageError("Root 0 of the backward pass has " + std::to_string(in(root).values.size()) + " elements.");
  }
  auto pass = std::make_shared<Pass>();
  pass->roots = roots;
  return pass;
}
std::vector<AutogradMessageId> reach(const LocalPassHandle& handle, const std::vector<NodeHandle>& sends, bool fromRoots) {
  Pass& pass = passIn(handle);
  pass.kept.insert(pass.kept.end(), sends.begin(), sends.end());
  std::vector<AutogradMessageId> found;
  for (const Function* function : reachable(startsOf(sends, fromRoots ? pass.roots : std::vector<TensorHandle>()), pass.reached)) {
    if (function->receives) found.push_back(function->receives);
  }
  return found;
}
void expect(const LocalPassHandle& handle, const std::vector<NodeHandle>& sends) {
  Pass& pass = passIn(handle);
  pass.kept.insert(pass.kept.end(), sends.begin(), sends.end());
  pass.expected.clear();
  std::set<Function*> seen;
  for (const TensorHandle& root : pass.roots) ++pass.expected[in(root).made.get()];
  for (const Function* function : reachable(startsOf(sends, pass.roots), seen)) {
    for (const Function::Edge& edge : function->next) ++pass.expected[edge.function.get()];
  }
  if (!std::exchange(pass.started, true)) {
    for (const TensorHandle& root : pass.roots) pass.put({in(root).made, in(root).output}, {1.0});
  }
  std::vector<Function*> waiting;
  for (const auto& [function, inputs] : pass.waiting) waiting.push_back(function);
  for (Function* function : waiting) pass.check(function);
}
void run(const LocalPassHandle& handle, const NodeHandle& send, const std::vector<TensorHandle>& gradients, const GradientSink& sink) {
  Pass& pass = passIn(handle);
  if (send != nullptr) {
    std::vector<Numbers> inputs;
    for (const TensorHandle& gradient : gradients) inputs.push_back(gradient == nullptr ? Numbers() : in(gradient).values);
    if (inputs.size() != functionIn(send).inputs) throw Error("the number of gradients is wrong");
    pass.ready.emplace_back(&functionIn(send), std::move(inputs));
  }
  while (!pass.ready.empty()) {
    const auto [function, inputs] = std::move(pass.ready.back());
    pass.ready.pop_back();
    if (function->receives) {
      std::vector<TensorHandle> out;
      for (const Numbers& gradient : inputs) out.push_back(gradient.empty() ? nullptr : arrayOf(gradient).handle);
      sink.received(function->receives, std::move(out));
    } else if (function->apply == nullptr) {
      if (!inputs[0].empty()) sink.leaf(function->leaf.lock(), arrayOf(inputs[0]).handle);
    } else {
      const std::vector<Numbers> outputs = function->apply(inputs);
      for (std::size_t i = 0; i < outputs.size(); ++i) pass.put(function->next[i], outputs[i]);
    }
  }
}
bool waits(const LocalPassHandle& pass) { return !passIn(pass).waiting.empty(); }
bool waitsFor(const LocalPassHandle& pass, const NodeHandle& send) {
  std::set<Function*> seen;
  for (Function* function : reachable({&functionIn(send)}, seen)) {
    if (passIn(pass).waiting.contains(function)) return true;
  }
  return false;
}
OptimizerHandle makeOptimizer(const OptimizerSpec&) { throw UsageError("Plain numbers have no optimizers."); }
void stepOptimizer(const OptimizerHandle&, std::size_t, const TensorHandle&, const TensorHandle&) {}

}  // namespace

const AutogradFunctions& testFunctions() {
  static const AutogradFunctions functions{&needs,    &imageOf, &tensorOf, &identityOf, &sumOf, &bytesOf,  &attachSend,    &attachReceive,
                                           &makePass, &reach,   &expect,   &run,        &waits, &waitsFor, &makeOptimizer, &stepOptimizer};
  return functions;
}

Tensor constant(std::uint64_t seed) { return arrayOf(random(seed)); }
Tensor leaf(std::uint64_t seed) {
  const auto array = std::static_pointer_cast<Array>(constant(seed).handle);
  array->needs = true;
  array->made = std::make_shared<Function>();
  array->made->leaf = array;
  return {array};
}
Tensor integers() { return arrayOf({0, 1, 2}); }
Tensor operator+(const Tensor& a, const Tensor& b) {
  const auto same = [](const Numbers& g) { return g; };
  return resultOf(each(in(a).values, [&](std::size_t i) { return in(a).values[i] + in(b).values[i]; }), {{a, same}, {b, same}});
}
Tensor operator*(const Tensor& a, const Tensor& b) {
  const Numbers x = in(a).values, y = in(b).values;
  return resultOf(each(x, [&](std::size_t i) { return x[i] * y[i]; }),
                  {{a, [y](const Numbers& g) { return each(g, [&](std::size_t i) { return g[i] * y[i]; }); }},
                   {b, [x](const Numbers& g) { return each(g, [&](std::size_t i) { return g[i] * x[i]; }); }}});
}
Tensor matmul(const Tensor& a, const Tensor& b) {
  const Numbers x = in(a).values, y = in(b).values;
  return resultOf(product(x, y), {{a, [y](const Numbers& g) { return product(g, y, false, true); }},
                                  {b, [x](const Numbers& g) { return product(x, g, true, false); }}});
}
Tensor tanh(const Tensor& a) {
  const Numbers y = each(in(a).values, [&](std::size_t i) { return std::tanh(in(a).values[i]); });
  return resultOf(y, {{a, [y](const Numbers& g) { return each(g, [&](std::size_t i) { return g[i] * (1 - y[i] * y[i]); }); }}});
}
Tensor scaled(const Tensor& a, double factor) {
  const auto times = [factor](const Numbers& g) { return each(g, [&](std::size_t i) { return g[i] * factor; }); };
  return resultOf(times(in(a).values), {{a, times}});
}
Tensor transposed(const Tensor& a) { return resultOf(transposedNumbers(in(a).values), {{a, &transposedNumbers}}); }
Tensor sum(const Tensor& a) {
  double total = 0;
  for (const double value : in(a).values) total += value;
  const std::size_t count = in(a).values.size();
  return resultOf({total}, {{a, [count](const Numbers& g) { return Numbers(count, g[0]); }}});
}
Tensor onlyFirstOf(const Tensor& a, const Tensor&) { return scaled(a, 1); }
Tensor brokenBackward(const Tensor& a) {
  return resultOf(in(a).values, {{a, [](const Numbers&) -> Numbers { throw std::domain_error("this backward is broken"); }}});
}

double item(const Tensor& a) { return in(a).values.at(0); }
std::vector<double> numbers(const TensorHandle& a) { return a == nullptr ? Numbers() : in(a).values; }
bool needsGradient(const Tensor& a) { return in(a).needs; }
bool hasGradFn(const Tensor& a) { return in(a).made != nullptr && in(a).made->leaf.expired(); }
void localBackward(const std::vector<Tensor>& roots) {
  std::vector<TensorHandle> handles;
  for (const Tensor& root : roots) handles.push_back(root.handle);
  const LocalPassHandle pass = makePass(handles, false);
  for (const TensorHandle& root : handles) {
    std::set<Function*> seen;
    for (const Function* function : reachable({in(root).made.get()}, seen)) {
      if (function->receives) throw Error("A local backward reached a tensor that came from " + function->origin + ".");
    }
  }
  expect(pass, {});
  run(pass, nullptr, {},
      {[](AutogradMessageId, std::vector<TensorHandle>) {},
       [](const TensorHandle& variable, const TensorHandle& gradient) { add(in(variable).grad, in(gradient).values); }});
}
std::vector<double> gradOf(const Tensor& a) { return in(a).grad; }

}  // namespace pw::test
