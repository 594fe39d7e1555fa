// The table of operators against LibTorch's own schemas and tags.
#include "simulator/operators/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

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

}  // namespace
}  // namespace pw
