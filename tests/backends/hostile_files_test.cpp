// Damaged archives, traces, data files and stores: what is accepted is used, all else is refused in one sentence.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "backends/checkpoints/tensor_file.h"
#include "backends/checkpoints/writer.h"
#include "backends/pt2/graph.h"
#include "backends/pt2/zip.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "backends/traces/import.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/split.h"
#include "simulator/plan/planner.h"
#include "simulator/step/cost_table.h"
#include "tests/support/folder.h"
#include "tests/support/hostile.h"
#include "tests/support/mutate.h"
#include "tests/support/trace_rules.h"
#include "tests/support/whole_run.h"

namespace pw {
namespace {

constexpr std::size_t kUsual = 400;
const std::string kSource = PW_SOURCE_DIR;

/// A file without a disk.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("hostile", MFD_CLOEXEC)) {}
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string with(const std::string& text) const {
    if (ftruncate(file_, 0) != 0 || pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("cannot write to memory");
    return "/proc/self/fd/" + std::to_string(file_);
  }

 private:
  int file_;
};

/// What `inspect`, `plan --cluster` and `simulate` do with a model.
void planWith(const ModelGraph& graph) {
  const std::int64_t batch = exportedBatch(graph);
  const Profile profile = estimate(graph, batch, loadCluster("cpu-workstation"));
  static_cast<void>(splitPoints(graph, bindBatch(graph, batch)));
  PlanRequest wanted;
  wanted.microbatch = batch;
  wanted.microbatches = 4;
  wanted.loss = defaultLoss(graph);
  wanted.begins = balancedSplits(graph, profile, 2, Balance::Time);
  const Schedule rows = planRows(generate("1f1b", {2, 2, 4}), 1);
  const Priced priced = price(wanted, graph, profile, rows);
  static_cast<void>(simulate(rows, priced.costs));
}

TEST(HostileFiles, ArchivesArePlannedOrRefused) {
  for (const char* model : {"example_code", "two_part_a"}) {
    const pt2::Archive archive = pt2::openArchive(kSource + "/resources/models/" + model + ".pt2");
    const std::map<std::string, std::string> sound =
        pt2::readEntries(archive, {pt2::kModelEntry, pt2::kWeightsEntry, pt2::kConstantsEntry});
    for (const auto& [entry, seed] : sound) {
      const bool isGraph = entry == pt2::kModelEntry;
      test::survive(
          std::string(model) + " " + entry, test::mutations(isGraph ? kUsual : kUsual / 5),
          [text = seed](std::mt19937_64& random) { return test::damaged(text, random); },
          [&, name = entry](const std::string& text) {
            std::map<std::string, std::string> texts = sound;
            texts[name] = text;
            planWith(pt2::buildGraph(archive, texts));
          });
    }
  }
}

TEST(HostileFiles, TracesAreImportedOrRefused) {
  const std::string seed = R"({"baseTimeNanoseconds":1700000000000000000,"distributedInfo":{"rank":3},"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"PP:0F0","pid":1,"tid":1,"ts":10,"dur":5},{"ph":"X","cat":"gpu_user_annotation","name":"PP:(0F5;3B2)OVERLAP_F_B","pid":0,"tid":7,"ts":20.5,"dur":5,"args":{"a":[{"b":1}]}},
    {"ph":"B","name":"PP:1SEND_F0","pid":1,"tid":1,"ts":30},{"ph":"E","pid":1,"tid":1,"ts":31},{"ph":"X","name":"0F0","cat":"F","pid":5,"tid":0,"ts":0,"dur":1},
    {"ph":"C","name":"memory of rank 1","pid":5,"ts":3,"args":{"bytes":12}},{"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":4,"args":{"Total Allocated":5,"Device Type":1}}]})";
  const MemoryFile file;
  test::survive(
      "Chrome traces", test::mutations(kUsual), [&](std::mt19937_64& random) { return test::damaged(seed, random); },
      [&](const std::string& text) {
        const auto result = importTrace({file.with(text)});
        for (const ImportedStep& step : result.value().steps) test::expectKeepsRules(step.trace);
      });
}

TEST(HostileFiles, DumpsOfPrimusAreImportedOrRefused) {
  const test::Folder folder;
  const std::string rank =
      nlohmann::json{{"7", nlohmann::json::parse(test::contentOf(kSource + "/tests/data/primus/pp8/pp_rank_0.json")).at("7")}}.dump();
  const std::string config = R"({"pp_size": 1, "vp_size": 1, "num_mbs": 16})";
  test::survive(
      "Primus' dumps", test::mutations(kUsual / 2),
      [&](std::mt19937_64& random) {
        const bool ofConfig = test::oneIn(random, 4);
        (void)folder.with("config.json", ofConfig ? test::damaged(config, random) : config);
        return ofConfig ? rank : test::damaged(rank, random);
      },
      [&](const std::string& text) {
        (void)folder.with("pp_rank_0.json", text);
        const auto result = importTrace({folder.file("config.json")});
        for (const ImportedStep& step : result.value().steps) test::expectKeepsRules(step.trace);
      });
}

/// A byte changed, a piece removed, doubled or overwritten by extreme numbers, and now and then the end cut off.
std::string damagedBytes(std::string text, std::mt19937_64& random) {
  const auto at = [&] { return static_cast<std::size_t>(test::draw(random, 0, static_cast<std::int64_t>(text.size()) - 1)); };
  for (std::int64_t damages = test::draw(random, 1, 4); damages > 0 && text.size() > 1; --damages) {
    const std::size_t place = at();
    switch (test::draw(random, 0, 5)) {
      case 0: text.erase(place, static_cast<std::size_t>(test::draw(random, 1, 40))); break;
      case 1: text.insert(at(), text.substr(place, static_cast<std::size_t>(test::draw(random, 1, 40)))); break;
      case 2: std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(place), std::min<std::size_t>(text.size() - place, 9), '\xff'); break;
      default: text[place] = static_cast<char>(test::draw(random, 0, 255));
    }
  }
  if (test::oneIn(random, 10)) text.resize(at());
  return text;
}

TEST(HostileFiles, ForeignTracesAreImportedOrRefused) {
  const test::Folder folder;
  for (const char* name : {"nsight.sqlite", "chakra.0.et"}) {
    const std::string sound = test::contentOf(kSource + "/tests/data/foreign/" + name);
    // Whatever the damage, the file keeps its head: else it would be no such file.
    const std::size_t head = std::string_view(name).ends_with(".et") ? 40 : 100;
    test::survive(
        name, test::mutations(kUsual),
        [&](std::mt19937_64& random) { return sound.substr(0, head) + damagedBytes(sound.substr(head), random); },
        [&](const std::string& text) {
          const auto result = importTrace({folder.with(name, text)});
          for (const ImportedStep& step : result.value().steps) test::expectKeepsRules(step.trace);
        });
  }
  const std::string json = R"p({"workload_graph":[{"Id":3,"Name":"PP:0F0(0)","NodeType":4,"ctrlDeps":[2],"runtime":100,"is_cpu_op":true},
    {"Id":4,"Name":"gemm","ctrlDeps":[3],"runtime":7,"is_cpu_op":false},
    {"Id":5,"Name":"backward_step","ctrlDeps":[2],"runtime":9,"start_time_micros":7}]})p";
  const std::string stream = R"p({"version":"1"}{"id":"3","name":"PP:0F0","type":"COMP_NODE","ctrlDeps":["2"],"startTimeMicros":"10",
    "durationMicros":"1","attr":[{"name":"is_cpu_op","boolVal":true}]}{"id":"4","name":"PP:0B0","ctrlDeps":["3"],"durationMicros":"8"})p";
  for (const bool streamed : {true, false}) {
    test::survive(
        "Chakra's JSON", test::mutations(kUsual),
        [&](std::mt19937_64& random) {
          if (streamed) return test::mutate(stream, random);
          return test::oneIn(random, 3) ? test::mutate(json, random) : test::damaged(json, random);
        },
        [&](const std::string& text) {
          const auto result = importTrace({folder.with("chakra.0.json", text)});
          for (const ImportedStep& step : result.value().steps) test::expectKeepsRules(step.trace);
        });
  }
}

TEST(HostileFiles, CheckpointFoldersAreReadOrRefused) {
  const test::Folder folder;
  const std::vector<float> weight(24, 1.5F);
  {
    CheckpointWriter writer(folder.file("ck/"));
    writer.add("w", DType::Float32, {4, 6}, reinterpret_cast<const std::byte*>(weight.data()));
    writer.alias("tied", "w");
    writer.add("exp_avg/w", DType::Float32, {4, 6}, reinterpret_cast<const std::byte*>(weight.data()));
    writer.finish({{"step", 12}});
  }
  const std::array<std::string, 2> names{"ck/.metadata", "ck/__0_0.distcp"};
  const std::array<std::string, 2> sound{test::contentOf(folder.file(names[0])), test::contentOf(folder.file(names[1]))};
  std::size_t hit = 0;
  test::survive(
      "checkpoint folders", test::mutations(kUsual),
      [&](std::mt19937_64& random) {
        hit = test::oneIn(random, 3) ? 1 : 0;
        std::string text = test::mutate(sound[hit], random);
        if (test::oneIn(random, 4)) text.resize(static_cast<std::size_t>(test::draw(random, 0, static_cast<std::int64_t>(text.size()))));
        return text;
      },
      [&](const std::string& text) {
        (void)folder.with(names[hit], text);
        (void)folder.with(names[1 - hit], sound[1 - hit]);
        const TensorFile file(folder.file("ck"));
        double sum = 0;
        for (const std::string& name : file.names()) {
          const auto tensor = file.find(name);
          if (!tensor || tensor->data == nullptr) continue;
          std::size_t last = 0;
          for (std::size_t d = 0; d < tensor->shape.size(); ++d)
            last += static_cast<std::size_t>((tensor->shape[d] - 1) * tensor->strides[d]);
          sum += std::to_integer<int>(tensor->data[last * widthOf(tensor->dtype)]);
        }
        ASSERT_GE(sum, 0);
      });
}

TEST(HostileFiles, DataFilesAreReadOrRefused) {
  const test::Folder folder;
  const std::vector<float> weight(24, 1.5F);
  {
    CheckpointWriter writer(folder.file("a.pt"));
    writer.add("w", DType::Float32, {4, 6}, reinterpret_cast<const std::byte*>(weight.data()));
    writer.alias("tied", "w");
    writer.finish({{"step", 12}});
  }
  const std::string sound = test::contentOf(folder.file("a.pt"));
  test::survive(
      "data files", test::mutations(kUsual),
      [&](std::mt19937_64& random) {
        if (test::oneIn(random, 3))
          return sound.substr(0, static_cast<std::size_t>(test::draw(random, 0, static_cast<std::int64_t>(sound.size()) - 1)));
        std::string text = test::mutate(sound, random);
        // Most places are padding: the pickle, its protocol's opcodes included, is hit too.
        const std::size_t pickle = text.find("data.pkl");
        if (pickle != std::string::npos && pickle + 300 < text.size())
          text[pickle + static_cast<std::size_t>(test::draw(random, 8, 299))] = static_cast<char>(test::draw(random, 0, 255));
        return text;
      },
      [&](const std::string& text) {
        const TensorFile file(folder.with("b.pt", text));
        double sum = 0;
        for (const std::string& name : file.names()) {
          const auto tensor = file.find(name);
          if (!tensor || tensor->data == nullptr) continue;
          std::size_t last = 0;
          for (std::size_t d = 0; d < tensor->shape.size(); ++d)
            last += static_cast<std::size_t>((tensor->shape[d] - 1) * tensor->strides[d]);
          sum += std::to_integer<int>(tensor->data[last * widthOf(tensor->dtype)]);
        }
        ASSERT_GE(sum, 0);
      });
}

TEST(HostileFiles, StoresAreListedOrRefused) {
  const test::Folder folder;
  const std::string path = folder.file("runs.db");
  {
    RunRecord run;
    run.startedAt = "2026-11-21T12:00:00Z";
    run.plan.modelName = "small";
    run.plan.batch = 3;
    run.plan.schedule = lower(generate("1f1b", {2, 2, 3}));
    run.plan.costs = syntheticTable(
        {.forward = {10}, .backward = {20}, .backwardInput = {}, .backwardWeight = {}, .latency = 1, .transfer = 2, .overlap = {}}, 2);
    run.plan.partition.stages = {{NodeId(0), NodeId(4), {}, {}, {}, {}, {}, {}}, {NodeId(4), NodeId(9), {}, {}, {}, {}, {}, {}}};
    run.plan.splitNames = {"blocks.1"};
    run.predicted = simulate(run.plan.schedule, run.plan.costs);
    run.steps = {{0, 0.5, run.predicted}};
    RunStore(path, RunStore::Mode::ReadWrite).add(run);
  }
  const std::string sound = test::contentOf(path);
  test::survive(
      "run stores", test::mutations(kUsual / 5), [&](std::mt19937_64& random) { return test::mutate(sound, random); },
      [&](const std::string& text) {
        for (const char* beside : {"damaged.db-wal", "damaged.db-shm"}) std::filesystem::remove(folder.file(beside));
        const RunStore store(folder.with("damaged.db", text), RunStore::Mode::ReadOnly);
        for (const RunSummary& summary : store.list()) static_cast<void>(test::wholeRun(store, summary.id));
      });
}

}  // namespace
}  // namespace pw
