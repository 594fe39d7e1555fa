#include <gtest/gtest.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include <zip.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "backends/pt2/graph.h"
#include "backends/pt2/read.h"
#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::uint32_t kSeed = 20240607;

std::string sample(const std::string& name) { return std::string(PW_SOURCE_DIR) + "/resources/models/" + name + ".pt2"; }

std::string readFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// A file of the test's own; ctest runs tests in parallel, so the name holds the test's.
std::string scratch(const std::string& name) {
  return testing::TempDir() + "/pw_" + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name;
}

std::string writeFile(const std::string& name, const std::string& bytes) {
  const std::string path = scratch(name);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string errorOf(const std::string& path) {
  try {
    static_cast<void>(readPt2(path));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

void expectContains(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

/// Every id and index of the graph names something.
void expectConsistent(const ModelGraph& graph) {
  const auto check = [&](const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      ASSERT_LT(id.index(), graph.values.size());
    }
  };
  const auto checkNodes = [&](const std::vector<Node>& nodes) {
    for (const Node& node : nodes) {
      check(readsOf(node));
      check(node.outputs);
      for (const NamedArgument& input : node.inputs) {
        if (const auto* argument = std::get_if<GraphArg>(&input.value)) {
          ASSERT_LT(argument->index, graph.subgraphs.size());
        }
      }
    }
  };
  check(graph.inputs);
  check(graph.outputs);
  checkNodes(graph.nodes);
  for (const Subgraph& subgraph : graph.subgraphs) {
    check(subgraph.inputs);
    check(subgraph.outputs);
    checkNodes(subgraph.nodes);
  }
  for (const NodeId marker : graph.splitMarkers) {
    ASSERT_LT(marker.index(), graph.nodes.size());
  }
}

/// Reads a file that may be wrong: a consistent graph or a UsageError of one sentence. True when it was refused.
bool isRefused(const std::string& path) {
  try {
    expectConsistent(readPt2(path));
    return false;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return true;
  }
}

/// Writes a zip of stored or compressed entries.
std::string writeZip(const std::string& name, const std::map<std::string, std::string>& entries, zip_int32_t method = ZIP_CM_STORE) {
  const std::string path = scratch(name);
  std::filesystem::remove(path);
  int code = 0;
  zip_t* zip = zip_open(path.c_str(), ZIP_CREATE, &code);
  for (const auto& [entry, text] : entries) {
    const zip_int64_t index = zip_file_add(zip, entry.c_str(), zip_source_buffer(zip, text.data(), text.size(), 0), ZIP_FL_ENC_UTF_8);
    zip_set_file_compression(zip, static_cast<zip_uint64_t>(index), method, 0);
  }
  EXPECT_EQ(zip_close(zip), 0);
  return path;
}

/// The entries of the smallest sample, ready to be changed and written again.
std::map<std::string, std::string> sampleEntries(const std::string& top) {
  const pt2::Archive archive = pt2::openArchive(sample("two_part_a"));
  const std::string bytes = readFile(archive.path);
  std::map<std::string, std::string> entries;
  for (const auto& [name, place] : archive.entries) {
    entries[top + "/" + name] = bytes.substr(static_cast<std::size_t>(place.offset), static_cast<std::size_t>(place.bytes));
  }
  return entries;
}

TEST(Pt2Hostile, EveryTruncationIsRefused) {
  for (const char* model : {"two_part_a", "gpt_split"}) {
    const std::string bytes = readFile(sample(model));
    const std::string path = scratch("cut.pt2");
    std::vector<std::size_t> lengths;
    for (std::size_t i = 0; i < 200; ++i) {
      lengths.push_back(bytes.size() * i / 200);
    }
    for (std::size_t i = 1; i <= 200; ++i) {
      lengths.push_back(bytes.size() - i);
    }
    for (const std::size_t length : lengths) {
      std::ofstream(path, std::ios::binary) << bytes.substr(0, length);
      EXPECT_TRUE(isRefused(path)) << model << " cut to " << length << " of " << bytes.size() << " bytes";
    }
  }
}

TEST(Pt2Hostile, FlippedBytesOfTheGraphAndTheHeadersNeverCrash) {
  const std::string source = sample("two_part_a");
  const std::string bytes = readFile(source);
  const pt2::ZipEntry graph = pt2::openArchive(source).entries.at(pt2::kModelEntry);
  const std::size_t directory = bytes.rfind("PK\x05\x06") - 2200;  // 21 entries of about 80 bytes, and the end records
  std::mt19937 random(kSeed);
  const std::string path = scratch("flipped.pt2");
  int refused = 0;
  constexpr int kRounds = 600;
  for (int i = 0; i < kRounds; ++i) {
    const std::size_t from = i % 2 == 0 ? directory : static_cast<std::size_t>(graph.offset) - 100;
    const std::size_t size = i % 2 == 0 ? bytes.size() - directory : static_cast<std::size_t>(graph.bytes) + 100;
    std::string changed = bytes;
    changed[from + random() % size] ^= static_cast<char>(1U << random() % 8U);
    std::ofstream(path, std::ios::binary) << changed;
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " round " + std::to_string(i));
    refused += isRefused(path) ? 1 : 0;
  }
  EXPECT_GT(refused, kRounds / 2);  // each flip inside model.json breaks its checksum
}

/// Calls `change` on the n-th value of the tree, counted in depth-first order. True once done.
bool changeNth(pt2::Json& json, std::size_t& n, const std::function<void(pt2::Json&)>& change) {
  if (n-- == 0) {
    change(json);
    return true;
  }
  return json.is_structured() && std::any_of(json.begin(), json.end(), [&](pt2::Json& child) { return changeNth(child, n, change); });
}

std::size_t countValues(const pt2::Json& json) {
  std::size_t count = 1;
  if (json.is_structured()) {
    for (const pt2::Json& child : json) {
      count += countValues(child);
    }
  }
  return count;
}

void mutateEntry(const std::string& model, const char* entry, int rounds) {
  const pt2::Archive archive = pt2::openArchive(sample(model));
  const std::map<std::string, std::string> texts = pt2::readEntries(archive, {pt2::kModelEntry, pt2::kWeightsEntry, pt2::kConstantsEntry});
  const pt2::Json original = pt2::parseJson(texts.at(entry), "test");
  const std::size_t size = countValues(original);
  const std::vector<pt2::Json> strange{nullptr,
                                       -1,
                                       std::uint64_t{1} << 63U,
                                       1e300,
                                       "",
                                       "x",
                                       "Symbol(",
                                       pt2::Json::array(),
                                       pt2::Json::object(),
                                       pt2::Json::array({1}),
                                       pt2::Json{{"as_int", -5}},
                                       pt2::Json{{"as_none", true}},
                                       true};
  std::mt19937 random(kSeed);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    SCOPED_TRACE(model + " seed " + std::to_string(kSeed) + " round " + std::to_string(i));
    std::map<std::string, std::string> changed = texts;
    pt2::Json json = original;
    std::size_t place = random() % size;
    const std::size_t kind = random() % (strange.size() + 1);
    const bool isChanged = changeNth(json, place, [&](pt2::Json& value) {
      if (kind < strange.size()) {
        value = strange[kind];
      } else if (value.is_structured() && !value.empty()) {
        value.erase(value.begin());
      }
    });
    ASSERT_TRUE(isChanged);
    changed[entry] = json.dump();
    try {
      const ModelGraph graph = pt2::buildGraph(archive, changed);
      expectConsistent(graph);
      static_cast<void>(bindBatch(graph, 2));
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 10);  // many values (strides, devices) mean nothing to the graph, but not nine in ten
}

TEST(Pt2Hostile, StrangeValuesAnywhereInTheJsonNeverCrash) {
  mutateEntry("two_part_a", pt2::kModelEntry, 500);
  mutateEntry("two_part_a", pt2::kWeightsEntry, 200);
  mutateEntry("hf_llama", pt2::kModelEntry, 30);
  mutateEntry("hf_llama", pt2::kConstantsEntry, 20);
}

TEST(Pt2Hostile, FilesThatAreNoArchiveAreNamed) {
  expectContains(errorOf("/nowhere/model.pt2"), "/nowhere/model.pt2 does not exist");
  expectContains(errorOf(testing::TempDir()), "is not a file");
  expectContains(errorOf(writeFile("empty.pt2", "")), "too small to be a zip file");
  expectContains(errorOf(writeFile("text.pt2", std::string(5000, 'x'))), "not a zip file");
  expectContains(errorOf("/dev/null"), "is not a file");
  expectContains(errorOf(writeZip("foreign.pt2", {{"a/data.pkl", "x"}, {"a/version", "3"}})),
                 "no torch.export archive: it has no models/model.json");
}

TEST(Pt2Hostile, RepackedArchivesReadOnlyWhenStored) {
  const std::map<std::string, std::string> entries = sampleEntries("other name");
  const ModelGraph original = readPt2(sample("two_part_a"));
  const ModelGraph repacked = readPt2(writeZip("stored.pt2", entries));
  EXPECT_EQ(repacked.nodes, original.nodes);
  EXPECT_EQ(repacked.values, original.values);
  expectContains(errorOf(writeZip("deflated.pt2", entries, ZIP_CM_DEFLATE)), "compressed or encrypted entry");
}

TEST(Pt2Hostile, OtherByteOrdersAndSchemasAreRefused) {
  std::map<std::string, std::string> entries = sampleEntries("m");
  entries["m/byteorder"] = "big";
  expectContains(errorOf(writeZip("big.pt2", entries)), "big-endian");
  entries = sampleEntries("m");
  pt2::Json model = pt2::parseJson(entries["m/models/model.json"], "test");
  model["schema_version"]["major"] = 7;
  entries["m/models/model.json"] = model.dump();
  expectContains(errorOf(writeZip("schema.pt2", entries)), "this version reads schema 8.x");
}

TEST(Pt2Hostile, NestedJsonDoesNotExhaustTheStack) {
  for (const std::string& bomb :
       {std::string(2000000, '['), "{\"a\":" + std::string(2000000, '['), std::string("[[[[[]]]]]"), std::string("\"")}) {
    std::map<std::string, std::string> entries = sampleEntries("m");
    entries["m/models/model.json"] = bomb;
    EXPECT_TRUE(isRefused(writeZip("bomb.pt2", entries)));
  }
}

}  // namespace
}  // namespace pw
