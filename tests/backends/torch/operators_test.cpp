// The table of operators against LibTorch's own schemas and tags.
#include "simulator/operators/operators.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/torch/program/operators.h"
#include "simulator/model/tensor_meta.h"

namespace pw {
namespace {

/// All overloads of an ATen operator, in place ones included.
std::vector<c10::OperatorHandle> overloadsOf(const std::string& name) {
  static const std::multimap<std::string, c10::OperatorHandle> byName = [] {
    std::multimap<std::string, c10::OperatorHandle> all;
    for (const c10::OperatorName& one : c10::Dispatcher::singleton().getAllOpNames()) {
      if (const auto handle = c10::Dispatcher::singleton().findSchema(one)) all.emplace(one.name, *handle);
    }
    return all;
  }();
  std::vector<c10::OperatorHandle> found;
  for (const char* ending : {"", "_"}) {
    const auto [begin, end] = byName.equal_range("aten::" + name + ending);
    for (auto at = begin; at != end; ++at) found.push_back(at->second);
  }
  return found;
}

template <class Work>
void forRows(const Work& work) {
  for (const auto family : operators::families()) {
    for (const Operator& row : family) {
      if (!row.name.starts_with("torch.ops.")) work(row, overloadsOf(std::string(row.name)));
    }
  }
}

bool anyHas(const std::vector<c10::OperatorHandle>& overloads, at::Tag tag) {
  return std::ranges::any_of(overloads, [&](const c10::OperatorHandle& op) { return op.hasTag(tag); });
}

/// Whether a result shows an argument's memory without writing it.
bool isAlias(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().returns(),
                             [](const c10::Argument& r) { return r.alias_info() != nullptr && !r.alias_info()->isWrite(); });
}

TEST(OperatorTable, NamesOperatorsOfLibTorch) {
  forRows([](const Operator& row, const auto& overloads) { EXPECT_FALSE(overloads.empty()) << row.name; });
}

TEST(OperatorTable, HasNoneThatTouchesFiles) {
  EXPECT_TRUE(touchesFiles(operatorNamed("torch.ops.aten.from_file.default").value()));
  EXPECT_FALSE(operatorNamed("torch.ops.aten.nothing.default"));
  EXPECT_FALSE(operatorNamed("aten.add.Tensor"));
  forRows([](const Operator& row, const auto& overloads) { EXPECT_TRUE(std::ranges::none_of(overloads, touchesFiles)) << row.name; });
}

TEST(OperatorTable, CallsAViewWhatSchemasCallAnAlias) {
  forRows([](const Operator& row, const auto& overloads) {
    if (row.result == Result::ViewWhenOff) return;
    EXPECT_EQ(row.result == Result::View, std::ranges::any_of(overloads, isAlias)) << row.name;
  });
}

TEST(OperatorTable, CallsRandomWhatTagsCallRandom) {
  forRows([](const Operator& row, const auto& overloads) {
    if (anyHas(overloads, at::Tag::nondeterministic_seeded)) {
      EXPECT_NE(row.draws, Draws::Never) << row.name;
    }
  });
}

TEST(OperatorTable, CallsElementwiseWhatTagsCallPointwise) {
  // `max` and `min` of two tensors are, of one they reduce; `equal` is one number of all elements.
  forRows([](const Operator& row, const auto& overloads) {
    if (row.name == "max" || row.name == "min" || row.name == "equal" || !anyHas(overloads, at::Tag::pointwise)) return;
    EXPECT_EQ(row.dimensions, DimensionRule::Each) << row.name;
  });
}

TEST(OperatorTable, WaitsForTheDeviceWhereTagsSaySizesOrResultsDependOnData) {
  const std::set<std::string_view> byArguments{"repeat_interleave", "one_hot"};  // with a size given they do not wait
  forRows([&](const Operator& row, const auto& overloads) {
    const bool depends = anyHas(overloads, at::Tag::data_dependent_output) || anyHas(overloads, at::Tag::dynamic_output_shape);
    if (depends && !byArguments.contains(row.name)) {
      EXPECT_NE(row.waits, Waits::Never) << row.name;
    }
  });
}

/// What an operator of one tensor keeps for its backward: its input, its result. Nothing where it cannot be called so, or has no backward.
std::optional<std::pair<bool, bool>> keptBy(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  if (arguments.empty() || op.schema().is_mutable() || arguments[0].type()->kind() != c10::TypeKind::TensorType) return std::nullopt;
  const bool fourDimensions = op.schema().name().find("2d") != std::string::npos || op.schema().name().find("pixel") != std::string::npos;
  at::Tensor leaf = at::rand(fourDimensions ? at::IntArrayRef({1, 4, 4, 4}) : at::IntArrayRef({4, 4}));
  leaf.set_requires_grad(true);
  const at::Tensor x = leaf * 0.5 + 0.25;  // to a leaf all gradients refer
  const auto references = [&x] { return x.use_count() + x.storage().use_count(); };
  const std::size_t before = references();
  torch::jit::Stack stack{x};
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].default_value()) return std::nullopt;
    stack.push_back(*arguments[i].default_value());
  }
  try {
    op.callBoxed(stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (stack.size() != 1 || !stack[0].isTensor()) return std::nullopt;
  const at::Tensor y = stack[0].toTensor();
  stack.clear();
  if (!y.requires_grad() || y.is_alias_of(x)) return std::nullopt;
  return std::pair(references() > before, y.storage().use_count() > 1);  // which is y's
}

/// By whether LibTorch's autograd refers to the input and the result of an operator of one tensor after its forward.
TEST(OperatorTable, KeepsWhatAutogradKeeps) {
  int checked = 0;
  forRows([&](const Operator& row, const auto& overloads) {
    if (row.keeps != Keeps::Nothing && row.keeps != Keeps::Inputs && row.keeps != Keeps::Result && row.keeps != Keeps::InputsAndResult)
      return;
    for (const c10::OperatorHandle& op : overloads) {
      const auto kept = keptBy(op);
      if (!kept) continue;
      ++checked;
      EXPECT_EQ(kept->first, row.keeps == Keeps::Inputs || row.keeps == Keeps::InputsAndResult) << op.schema() << ": its input";
      EXPECT_EQ(kept->second, row.keeps == Keeps::Result || row.keeps == Keeps::InputsAndResult) << op.schema() << ": its result";
    }
  });
  EXPECT_GT(checked, 60);
}

TEST(OperatorTable, NamesArgumentsThatSchemasHave) {
  const auto has = [](const std::vector<c10::OperatorHandle>& overloads, std::string_view name) {
    return std::ranges::any_of(overloads, [&](const c10::OperatorHandle& op) {
      return std::ranges::any_of(op.schema().arguments(), [&](const c10::Argument& a) { return a.name() == name; });
    });
  };
  forRows([&](const Operator& row, const auto& overloads) {
    for (const std::string_view weight : row.weights) EXPECT_TRUE(weight.empty() || has(overloads, weight)) << row.name << " " << weight;
    if (row.work == Work::Product) {
      EXPECT_TRUE(has(overloads, row.left)) << row.name;
    }
    if (row.statistics != Statistics::None) {
      EXPECT_TRUE(has(overloads, "training") || has(overloads, "train") || has(overloads, "use_input_stats") ||
                  row.name.find("_with_update") != std::string_view::npos)
          << row.name;
    }
  });
}

/// Random operators fill what `empty_like` makes.
TEST(MemoryOrder, IsThatOfEmptyLikeForAllViews) {
  const unsigned seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::int64_t> sizes(1 + random() % 4);
    for (std::int64_t& size : sizes) size = 2 + static_cast<std::int64_t>(random() % 3);
    at::Tensor view = at::empty(sizes);
    for (int k = 0; k < 3; ++k) {
      const auto a = static_cast<std::int64_t>(random() % sizes.size()), b = static_cast<std::int64_t>(random() % sizes.size());
      view = view.transpose(a, b);
      if (random() % 3 == 0 && view.size(a) > 2) view = view.narrow(a, 0, view.size(a) - 1);
      if (random() % 4 == 0) view = view.select(b, 0).unsqueeze(b).expand(view.sizes());
    }
    const at::Tensor made = at::empty_like(view);
    std::vector<std::int64_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](std::int64_t d) { return made.stride(d); });
    if (std::ranges::is_sorted(order)) order.clear();
    EXPECT_EQ(memoryOrderOf(view.sizes().vec(), view.strides().vec()), order) << "sizes " << view.sizes() << ", strides " << view.strides();
  }
}

}  // namespace
}  // namespace pw
