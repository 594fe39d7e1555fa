#include "backends/pt2/read.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "schedules/error.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

std::string sample(const std::string& name) { return std::string(PW_SOURCE_DIR) + "/resources/models/" + name + ".pt2"; }

std::int64_t parameterCount(const ModelGraph& graph) {
  return std::accumulate(graph.parameters.begin(), graph.parameters.end(), std::int64_t{0},
                         [&](std::int64_t sum, const StateTensor& state) {
                           const TensorMeta& meta = *graph.value(state.value).tensor;
                           return sum + bytesOf(meta, {}) / bytesPerElement(meta.dtype);
                         });
}

/// Of one pre-norm layer of width w: 2 norms (4w), qkv (3w² + 3w), out (w² + w), up (4w² + 4w), down (4w² + w).
constexpr std::int64_t gptLayer(std::int64_t w) { return 12 * w * w + 13 * w; }

const StateTensor& stateNamed(const std::vector<StateTensor>& states, const std::string& name) {
  const auto found = std::find_if(states.begin(), states.end(), [&](const StateTensor& state) { return state.name == name; });
  if (found == states.end()) {
    throw Error("no state " + name);
  }
  return *found;
}

std::ptrdiff_t countTarget(const ModelGraph& graph, std::string_view target) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return node.target == target; });
}

std::vector<float> floatsOf(const MappedFile& file, const StateTensor& state, std::size_t count) {
  std::vector<float> numbers(count);
  std::memcpy(numbers.data(), file.data() + state.stored->offset + state.stored->storageOffset * 4, count * sizeof(float));
  return numbers;
}

TEST(Pt2Samples, ParameterCountsAreThoseOfTheConfigurations) {
  constexpr std::int64_t gptSmall = 4 * gptLayer(64) + 2 * 256 * 64 + 32 * 64 + 2 * 64;  // layers, embed + head, position, norm
  EXPECT_EQ(parameterCount(readPt2(sample("gpt_small"))), gptSmall);
  constexpr std::int64_t gptSplit = 4 * gptLayer(32) + 2 * 256 * 32 + 32 * 32 + 2 * 32;
  EXPECT_EQ(parameterCount(readPt2(sample("gpt_split"))), gptSplit);
  constexpr std::int64_t hfGpt2 = 3 * gptLayer(64) + 256 * 64 + 32 * 64 + 2 * 64;  // the head is the embedding
  EXPECT_EQ(parameterCount(readPt2(sample("hf_gpt2"))), hfGpt2);
  constexpr std::int64_t llamaLayer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64;  // q and o, k and v, mlp, norms
  EXPECT_EQ(parameterCount(readPt2(sample("hf_llama"))), 4 * llamaLayer + 2 * 256 * 64 + 64);
  EXPECT_EQ(parameterCount(readPt2(sample("example_code"))), 3 * 512 * 512 + 512);
}

TEST(Pt2Samples, AnArchiveFromTheMetaDeviceIsTheSameGraphWithoutBytes) {
  const ModelGraph full = readPt2(sample("gpt_small"));
  ModelGraph meta = readPt2(sample("gpt_small_meta"));
  EXPECT_EQ(meta.parameters.size(), full.parameters.size());
  for (const StateTensor& parameter : meta.parameters) {
    EXPECT_FALSE(parameter.stored) << parameter.name;
    EXPECT_TRUE(parameter.storage.empty()) << parameter.name;
  }
  ASSERT_EQ(meta.nodes.size(), full.nodes.size());
  for (std::size_t i = 0; i < full.nodes.size(); ++i) {
    EXPECT_EQ(meta.nodes[i].target, full.nodes[i].target);
    EXPECT_EQ(meta.nodes[i].outputs, full.nodes[i].outputs);
  }
}

TEST(Pt2Samples, StoredTensorsLieWhereTheReaderSays) {
  const ModelGraph graph = readPt2(sample("gpt_small"));
  const MappedFile file(graph.files.front());
  ASSERT_EQ(file.size(), std::filesystem::file_size(graph.files.front()));
  for (const char* norm : {"blocks.0.attention_norm", "blocks.3.mlp_norm", "norm"}) {
    const StateTensor& weight = stateNamed(graph.parameters, std::string(norm) + ".weight");
    const StateTensor& bias = stateNamed(graph.parameters, std::string(norm) + ".bias");
    EXPECT_EQ(weight.stored->bytes, 64 * 4);
    EXPECT_EQ(floatsOf(file, weight, 64), std::vector<float>(64, 1.0F)) << norm;  // LayerNorm's initial values
    EXPECT_EQ(floatsOf(file, bias, 64), std::vector<float>(64, 0.0F)) << norm;
  }
  for (const StateTensor& parameter : graph.parameters) {
    const Bytes needed = bytesOf(*graph.value(parameter.value).tensor, {});
    EXPECT_GE(parameter.stored->offset, 0);
    EXPECT_GE(parameter.stored->bytes, needed) << parameter.name;
    EXPECT_LE(parameter.stored->offset + parameter.stored->bytes.value, static_cast<std::int64_t>(file.size()));
  }
}

TEST(Pt2Samples, AMappingIsWritableAndPrivate) {
  const std::string copy = testing::TempDir() + "/pw_mapped.bin";
  std::filesystem::copy_file(sample("two_part_a"), copy, std::filesystem::copy_options::overwrite_existing);
  const MappedFile first(copy);
  const std::byte before = first.data()[0];
  first.data()[0] = static_cast<std::byte>(0xff);
  const MappedFile second(copy);
  EXPECT_EQ(second.data()[0], before);
  EXPECT_THROW(MappedFile("/nowhere/at/all"), UsageError);
  EXPECT_THROW(MappedFile(testing::TempDir()), UsageError);
}

TEST(Pt2Samples, ATiedHeadIsOneParameterWithAnAlias) {
  const ModelGraph graph = readPt2(sample("hf_gpt2"));
  ASSERT_EQ(graph.tiedAliases.size(), 1U);
  const auto& [alias, read] = *graph.tiedAliases.begin();
  EXPECT_NE(alias, read);
  EXPECT_NO_THROW(static_cast<void>(stateNamed(graph.parameters, read)));
  EXPECT_THROW(static_cast<void>(stateNamed(graph.parameters, alias)), Error);
  EXPECT_EQ(std::set<std::string>({alias, read}), std::set<std::string>({"lm_head.weight", "transformer.wte.weight"}));
}

TEST(Pt2Samples, SplitMarksBecomeBordersAndAreNoNodes) {
  const ModelGraph graph = readPt2(sample("gpt_split"));
  ASSERT_EQ(graph.splitMarkers.size(), 1U);
  const Node& first = graph.node(graph.splitMarkers.front());
  const Node& before = graph.nodes[graph.splitMarkers.front().index() - 1];
  ASSERT_GE(first.modules.size(), 2U);
  EXPECT_EQ(first.modules[1].path, "blocks.2");
  EXPECT_EQ(before.modules[1].path, "blocks.1");
  EXPECT_EQ(countTarget(graph, "torch.ops.pippy._pipe_split.default"), 0);
  EXPECT_EQ(readPt2(sample("example_code")).splitMarkers.size(), 2U);
}

TEST(Pt2Samples, LaterReadersOfAnInPlaceChangeReadItsResult) {
  const ModelGraph graph = readPt2(sample("resnet18_narrow"));
  // ResNet-18: a ReLU after the first convolution and two in each of 8 blocks; 8 residual sums, 20 batch norm counters.
  EXPECT_EQ(countTarget(graph, "torch.ops.aten.relu_.default"), 17);
  EXPECT_EQ(countTarget(graph, "torch.ops.aten.add_.Tensor"), 28);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!graph.nodes[i].target.ends_with("_.default") && !graph.nodes[i].target.ends_with("_.Tensor")) {
      continue;
    }
    const ValueId changed = readsOf(graph.nodes[i]).front();
    if (graph.value(changed).origin == ValueOrigin::Buffer) {
      EXPECT_TRUE(graph.value(changed).name.ends_with("num_batches_tracked"));
      continue;
    }
    for (std::size_t later = i + 1; later < graph.nodes.size(); ++later) {
      const std::vector<ValueId> reads = readsOf(graph.nodes[later]);
      EXPECT_EQ(std::count(reads.begin(), reads.end(), changed), 0) << graph.value(changed).name;
    }
  }
}

TEST(Pt2Samples, BatchNormBuffersAreStoredAndPersistent) {
  const ModelGraph graph = readPt2(sample("resnet18_narrow"));
  EXPECT_EQ(graph.buffers.size(), 20U * 3U);
  const StateTensor& mean = stateNamed(graph.buffers, "bn1.running_mean");
  EXPECT_TRUE(mean.persistent);
  EXPECT_EQ(floatsOf(MappedFile(graph.files.front()), mean, 8), std::vector<float>(8, 0.0F));
}

TEST(Pt2Samples, ANoGradRegionBecomesASubgraphOfItsOwnValues) {
  const ModelGraph graph = readPt2(sample("hf_llama"));
  ASSERT_EQ(graph.subgraphs.size(), 1U);
  const auto carrier = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [](const Node& node) { return node.target == "torch.ops.higher_order.wrap_with_set_grad_enabled"; });
  ASSERT_NE(carrier, graph.nodes.end());
  const Subgraph& subgraph = graph.subgraphs.front();
  EXPECT_EQ(subgraph.inputs.size(), readsOf(*carrier).size());
  EXPECT_EQ(subgraph.outputs.size(), carrier->outputs.size());
  for (const ValueId input : subgraph.inputs) {
    const std::vector<ValueId> outer = readsOf(*carrier);
    EXPECT_EQ(std::count(outer.begin(), outer.end(), input), 0);
    EXPECT_EQ(graph.value(input).producer.index(), static_cast<std::size_t>(carrier - graph.nodes.begin()));
  }
  for (const StateTensor& buffer : graph.buffers) {
    EXPECT_FALSE(buffer.persistent) << buffer.name;  // rotary frequencies
    EXPECT_TRUE(buffer.stored->offset > 0 && buffer.storage.starts_with("0:constants/")) << buffer.storage;
  }
}

TEST(Pt2Samples, AModelsOwnLossIsAnOrdinaryOutput) {
  const ModelGraph graph = readPt2(sample("hf_llama"));
  ASSERT_EQ(graph.outputs.size(), 2U);
  EXPECT_EQ(graph.outputNames, (std::vector<std::string>{"loss", "logits"}));
  EXPECT_TRUE(graph.value(graph.outputs[0]).tensor->sizes.empty());
  EXPECT_EQ(shapeOf(*graph.value(graph.outputs[1]).tensor, bindBatch(graph, 5)), (std::vector<std::int64_t>{5, 32, 256}));
}

TEST(Pt2Samples, EverySampleIsInExecutionOrderAndHasModulesAndSources) {
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PW_SOURCE_DIR) + "/resources/models")) {
    if (entry.path().extension() != ".pt2") {
      continue;
    }
    const ModelGraph graph = readPt2(entry.path().string());
    EXPECT_EQ(graph.name, entry.path().stem().string());
    const Bindings bindings = bindBatch(graph, exportedBatch(graph) + 1);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueId id : readsOf(graph.nodes[i])) {
        const Value& value = graph.value(id);
        EXPECT_TRUE(value.origin != ValueOrigin::Node || value.producer.index() < i) << graph.name << " " << value.name;
      }
      ASSERT_FALSE(graph.nodes[i].modules.empty());
      EXPECT_TRUE(graph.nodes[i].modules.front().path.empty());
      EXPECT_FALSE(graph.nodes[i].modules.front().className.empty());
      EXPECT_FALSE(graph.nodes[i].sourceLine.starts_with("/"));
    }
    for (const Value& value : graph.values) {
      EXPECT_TRUE(!value.tensor || knownBytes(*value.tensor, bindings)) << graph.name << " " << value.name;
    }
    EXPECT_TRUE(std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return !node.sourceLine.empty(); }));
    EXPECT_FALSE(batchSymbol(graph).empty()) << graph.name;
    EXPECT_EQ(exportedBatch(graph), 2) << graph.name;
  }
}

}  // namespace
}  // namespace pw
