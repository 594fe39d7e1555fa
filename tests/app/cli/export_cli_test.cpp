// pipewright export: plans for torch, predictions and traces as files.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/store/run_store.h"
#include "backends/traces/import.h"
#include "schedules/generate.h"
#include "simulator/step/simulate.h"
#include "simulator/trace/trace_csv.h"
#include "tests/app/cli/call.h"

namespace pw::test {
namespace {

const std::string kMeasured = PW_SOURCE_DIR "/tests/data/primus/pp8";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A plan of the small model from estimated costs, so that nothing is measured.
std::string plannedModel(const Folder& folder, const std::string& schedule = "1f1b", const std::string& precision = "traced") {
  const Outcome outcome =
      call({"plan", sample("gpt_small"), "--precision", precision, "--ranks", "2", "--microbatches", "4", "--schedule", schedule,
            "--cluster", PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json", "--out", folder.file("plan.json")});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return folder.file("plan.json");
}

TEST(ExportCli, ReadsForeignTracesByAUsersPatterns) {
  const Folder folder;
  const std::string trace = folder.with("t.json", R"([{"ph":"X","name":"mb1 fwd","pid":1,"tid":1,"ts":1,"dur":5}])");
  const std::string patterns = folder.with("p.json", R"p({"patterns":[{"regex":"mb(?<microbatch>\\d+) (?<kind>fwd)"}]})p");
  const Outcome found = call({"export", "--trace", trace, "--patterns", patterns, "--to", "csv"});
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_NE(found.out.find("0,F,0,1,0,0,0,5000"), std::string::npos) << found.out;
  EXPECT_NE(call({"export", "--trace", trace, "--to", "csv"}).err.find("no pipeline labels"), std::string::npos);
  EXPECT_NE(call({"export", "plan.json", "--patterns", patterns, "--to", "csv"}).err.find("add --trace F"), std::string::npos);
}

TEST(Export, WritesAPredictionAsChromeTraceTableAndDrawing) {
  const Folder folder;
  const std::string plan = plannedModel(folder);
  ASSERT_EQ(call({"export", plan, "--to", "chrome", "--out", folder.file("p.json")}).status, 0);
  const Outcome table = call({"export", plan, "--to", "csv"});
  ASSERT_EQ(table.status, 0) << table.err;
  // Both are the same trace, and 2 ranks with 4 microbatches do 16 actions.
  const ImportedTrace chrome = importTrace({folder.file("p.json")}).value();
  const Trace spans = parseSpanCsv(table.out, "stdout");
  EXPECT_EQ(chrome.steps.at(0).name, "predicted");
  EXPECT_EQ(chrome.steps.at(0).trace.spans, spans.spans);
  EXPECT_EQ(std::count_if(spans.spans.begin(), spans.spans.end(), [](const Span& s) { return isCompute(s.kind); }), 16);
  const Outcome drawing = call({"export", plan, "--to", "svg", "--out", folder.file("p.svg")});
  EXPECT_TRUE(contains(drawing.out, "p.svg: gpt_small, 1f1b, predicted")) << drawing.out;
  EXPECT_TRUE(contains(contentOf(folder.file("p.svg")), "1F3"));
}

/// A run of three steps, each a little later than predicted, the first apart.
RunRecord stored(const Folder& folder) {
  RunRecord run;
  run.plan = parsePlan(contentOf(plannedModel(folder)), "plan.json");
  run.predicted = simulate(run.plan.schedule, run.plan.costs);
  for (const int step : {0, 1, 2}) {
    run.steps.push_back({step, 1.0, run.predicted});
    for (Span& span : run.steps.back().measured.spans) {
      if (span.start > 0) span.start += Ns(step);
      span.end += Ns(step);
    }
  }
  RunStore(folder.file("runs.db"), RunStore::Mode::ReadWrite).add(run);
  return run;
}

TEST(Export, WritesARunOfAStore) {
  const Folder folder;
  const RunRecord run = stored(folder);
  const Outcome chosen = call({"export", "--store", folder.file("runs.db"), "--run", "1", "--step", "2", "--to", "csv"});
  EXPECT_EQ(parseSpanCsv(chosen.out, "stdout").spans, run.steps[2].measured.spans) << chosen.err;
  EXPECT_EQ(parseSpanCsv(call({"export", "--store", folder.file("runs.db"), "--predicted", "--to", "csv"}).out, "stdout").spans,
            run.predicted.spans);
  // Of the steps after the first, 1 and 2, the shorter stands for the run; a Chrome file holds the prediction too.
  ASSERT_EQ(call({"export", "--store", folder.file("runs.db"), "--to", "chrome", "--out", folder.file("run.json")}).status, 0);
  const ImportedTrace both = importTrace({folder.file("run.json")}).value();
  ASSERT_EQ(both.steps.size(), 2U);
  EXPECT_EQ(both.steps[0].name, "predicted");
  EXPECT_EQ(both.steps[1].name, "measured step 1");
  EXPECT_EQ(both.steps[1].trace.spans, run.steps[1].measured.spans);
  EXPECT_EQ(call({"export", "--store", folder.file("runs.db"), "--step", "9", "--to", "csv"}).status, 2);
  // Beside a chosen step, too.
  ASSERT_EQ(call({"export", "--store", folder.file("runs.db"), "--step", "2", "--to", "chrome", "--out", folder.file("run.json")}).status,
            0);
  const ImportedTrace second = importTrace({folder.file("run.json")}).value();
  ASSERT_EQ(second.steps.size(), 2U);
  EXPECT_EQ(second.steps[0].name, "predicted");
  EXPECT_EQ(second.steps[1].name, "measured step 2");
  EXPECT_EQ(second.steps[1].trace.spans, run.steps[2].measured.spans);
}

TEST(Export, WritesTracesOfOtherToolsAndSaysWhatTheyLack) {
  const Outcome table = call({"export", "--trace", kMeasured, "--step", "3", "--to", "csv"});
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_EQ(parseSpanCsv(table.out, "stdout").spans, importTrace({kMeasured}).value().steps.at(2).trace.spans);
  EXPECT_TRUE(contains(table.err, "messages were not recorded")) << table.err;
  EXPECT_EQ(nlohmann::json::parse(call({"export", "--trace", kMeasured, "--to", "chrome"}).out).at("traceEvents").size() > 12U * 256U, true)
      << "all iterations";
  EXPECT_TRUE(contains(call({"export", "--trace", kMeasured, "--to", "svg"}).out, "rank 7</text>"));
}

std::ptrdiff_t countOf(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TEST(Export, WritesFiguresOfTheWantedLook) {
  const Folder folder;
  const std::string plan = plannedModel(folder);
  const std::string usual = call({"export", plan, "--to", "svg"}).out;
  EXPECT_TRUE(contains(usual, "width=\"178mm\"")) << usual.substr(0, 200);
  EXPECT_TRUE(contains(usual, ">gpt_small, 1f1b, predicted</text>"));
  EXPECT_TRUE(contains(usual, ">forward</text>"));
  const Outcome outcome = call({"export", plan, "--to", "svg", "--width", "3.5in", "--ranks", "1", "--rank-label", "GPU", "--title",
                                "a < b", "--no-legend", "--greyscale", "--busy"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "width=\"88.9mm\""));
  EXPECT_TRUE(contains(outcome.out, ">GPU 1</text>") && !contains(outcome.out, "GPU 0"));
  EXPECT_TRUE(contains(outcome.out, ">a &lt; b</text>"));
  EXPECT_TRUE(contains(outcome.out, " % busy</text>"));
  EXPECT_FALSE(contains(outcome.out, ">forward</text>"));
  EXPECT_FALSE(contains(outcome.out, "#56b4e9"));
  // 2 ranks with 4 microbatches do 16 actions, and send 4 messages each way; the optimizer ends each rank's step.
  const std::string tex = call({"export", plan, "--to", "tikz", "--title", "", "--width", "column"}).out;
  EXPECT_EQ(countOf(tex, "\\fill[pwF]") + countOf(tex, "\\fill[pwB]"), 16);
  EXPECT_EQ(countOf(tex, "\\fill[pwSend"), 8);
  EXPECT_TRUE(contains(tex, "\\begin{tikzpicture}") && !contains(tex, "predicted"));
}

TEST(Export, DrawsAPredictionAboveAMeasuredStep) {
  const Folder folder;
  const RunRecord run = stored(folder);
  const Outcome both =
      call({"export", "--store", folder.file("runs.db"), "--step", "2", "--both", "--to", "svg", "--measured-title", "H100"});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_TRUE(contains(both.out, ">Predicted</text>") && contains(both.out, ">H100</text>"));
  EXPECT_EQ(countOf(both.out, ">rank 1</text>"), 2);
  // The same of a plan and a trace.
  ASSERT_EQ(call({"export", "--store", folder.file("runs.db"), "--step", "2", "--to", "chrome", "--out", folder.file("run.json")}).status,
            0);
  const Outcome files = call({"export", folder.file("plan.json"), "--trace", folder.file("run.json"), "--both", "--to", "svg",
                              "--measured-title", "H100", "--title", "x"});
  ASSERT_EQ(files.status, 0) << files.err;
  const Outcome again = call(
      {"export", "--store", folder.file("runs.db"), "--step", "2", "--both", "--to", "svg", "--measured-title", "H100", "--title", "x"});
  EXPECT_EQ(countOf(files.out, "<rect"), countOf(again.out, "<rect"));
}

#ifdef PIPEWRIGHT_GUI
/// Width and height of a PNG [pixels], from the big-endian numbers of its IHDR.
std::pair<int, int> sizeOfPng(const std::string& bytes) {
  const auto number = [&](std::size_t at) {
    int value = 0;
    for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(i));
    return value;
  };
  return {number(16), number(20)};
}

TEST(Export, HasTheAppDrawPdfAndPng) {
  const Folder folder;
  const RunRecord run = stored(folder);
  const std::string plan = folder.file("plan.json"), page = folder.file("p.pdf"), picture = folder.file("p.png");
  const Outcome pdf = call({"export", plan, "--to", "pdf", "--width", "85mm", "--title", "", "--out", page});
  ASSERT_EQ(pdf.status, 0) << pdf.err;
  EXPECT_TRUE(contains(pdf.out, "p.pdf: gpt_small, 1f1b, predicted")) << pdf.out;
  EXPECT_TRUE(contentOf(page).starts_with("%PDF-"));
  EXPECT_TRUE(contains(contentOf(page), "/MediaBox [0 0 241.")) << "85 mm are 240.94 points, which pages have whole";
  // Two steps above each other take more room than one; both as wide as requested: 127 mm at 100 dots per inch.
  const std::vector<std::string> store{"export", "--store", folder.file("runs.db"), "--to", "png", "--width", "127mm", "--dpi", "100"};
  const auto sizeWith = [&](std::vector<std::string> more) {
    std::vector<std::string> words = store;
    words.insert(words.end(), {"--out", picture});
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = call(words);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return sizeOfPng(contentOf(picture));
  };
  const auto one = sizeWith({}), predicted = sizeWith({"--predicted"}), both = sizeWith({"--both"});
  EXPECT_EQ(one.first, 500);
  EXPECT_EQ(predicted.first, 500);
  EXPECT_GT(both.second, one.second);
}

TEST(Export, SaysThatTheAppIsMissing) {
  const Folder folder;
  const std::string plan = plannedModel(folder), alone = folder.file("pipewright");
  std::filesystem::copy_file(PIPEWRIGHT, alone);
  const std::string lib = std::filesystem::path(PIPEWRIGHT).parent_path().string() + "/../lib";
  const std::string line = "LD_LIBRARY_PATH=" + lib + " PIPEWRIGHT_RESOURCES=" PW_SOURCE_DIR "/resources " + alone + " export " + plan +
                           " --to pdf --out " + folder.file("p.pdf") + " 2> " + folder.file("said");
  EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 2);
  EXPECT_TRUE(contains(contentOf(folder.file("said")), "there is no pipewright-gui in")) << contentOf(folder.file("said"));
}
#endif

TEST(Export, WritesAPlanForTorch) {
  const Folder folder;
  const Outcome outcome = call({"export", plannedModel(folder, "zbv"), "--to", "torch", "--out", folder.file("pipeline")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "torchrun --nproc-per-node 2 ")) << outcome.out;
  const auto settings = nlohmann::json::parse(contentOf(folder.file("pipeline/pipeline.json")));
  EXPECT_EQ(settings.at("stage_to_rank"), (nlohmann::json{0, 1, 1, 0}));
  EXPECT_EQ(settings.at("begins").size(), 3U);
  EXPECT_EQ(settings.at("inputs").at(0).at("name"), "tokens");
  const Outcome checked = call({"check", folder.file("pipeline/schedule.csv"), "--placement", "v"});
  EXPECT_EQ(checked.status, 0) << checked.out << checked.err;
  EXPECT_TRUE(contains(contentOf(folder.file("pipeline/run.py")), "torch.distributed.pipelining"));
}

TEST(Export, WritesAPlanForTorchtitan) {
  const Folder folder;
  const std::string plan = folder.file("plan.json");
  const Outcome made = call({"plan",           sample("gpt_small"),
                             "--ranks",        "2",
                             "--microbatches", "4",
                             "--schedule",     "zbv",
                             "--cluster",      PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json",
                             "--out",          plan,
                             "--balance",      "layers",
                             "--precision",    "bf16",
                             "--optimizer",    "adamw",
                             "--replicas",     "2",
                             "--zero1"});
  ASSERT_EQ(made.status, 0) << made.err;
  const Outcome outcome = call({"export", plan, "--to", "torchtitan", "--out", folder.file("titan")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "updates with AdamW whose state is sharded over the replicas; these lines leave the optimizer"))
      << outcome.out;
  EXPECT_EQ(call({"check", folder.file("titan/schedule.csv"), "--placement", "v"}).status, 0);
  const std::string arguments = contentOf(folder.file("titan/arguments.txt"));
  for (const char* line : {"--parallelism.pipeline_parallel_degree 2\n", "--parallelism.pipeline_parallel_schedule ZBVZeroBubble\n",
                           "--parallelism.pipeline_parallel_microbatch_size 2\n", "--training.local_batch_size 8\n",
                           "--training.seq_len 32\n", "--training.mixed_precision_param bfloat16\n"})
    EXPECT_TRUE(contains(arguments, line)) << arguments;
  EXPECT_TRUE(contains(arguments, "module_fqns_per_model_part tok_embeddings,layers.0")) << arguments;
  EXPECT_TRUE(contains(arguments, ",norm,lm_head\n")) << arguments;
  const std::string config = contentOf(folder.file("titan/config.py"));
  // 2 samples of 32 tokens in a microbatch, 4 of them on each of 2 replicas.
  for (const char* line :
       {"pipeline_parallel_schedule=\"ZBVZeroBubble\"", "    seq_len=32,\n", "# Names of torchtitan 0.3.", "num_pp_microbatches=4 ",
        "num_tokens_per_microbatch_per_dp_rank=64 ", "num_tokens_per_train_step=512 ", "max_context_length=32 "})
    EXPECT_TRUE(contains(config, line)) << line << config;
}

TEST(Export, SaysWhatIsWrongWithACall) {
  const Folder folder;
  const std::string plan = plannedModel(folder);
  for (const auto& [words, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--to", "svg"}, "takes one of a plan file"},
           {{plan, "--trace", kMeasured, "--to", "svg"}, "takes one of a plan file"},
           {{plan}, "--to is missing"},
           {{plan, "--to", "pdf"}, "pdf"},
           {{plan, "--to", "pdf"}, "give its name with --out F.pdf"},
           {{plan, "--to", "png", "--out", folder.file("p.pdf")}, "give its name with --out F.png"},
           {{plan, "--to", "pdf", "--out", folder.file("p.pdf"), "--ranks", "0-2"}, "no rank 2; ranks are 0 to 1"},
           {{plan, "--to", "svg", "--dpi", "72"}, "--dpi is for pictures"},
           {{"--trace", kMeasured, "--patterns", plan, "--to", "pdf", "--out", folder.file("p.pdf")}, "--patterns is for --to svg"},
           {{plan, "--to", "csv", "--width", "85mm"}, "--width is for figures"},
           {{plan, "--to", "svg", "--width", "1mm"}, "is not a length from 20 to 1000 mm"},
           {{plan, "--to", "svg", "--ranks", "0-2"}, "no rank 2; ranks are 0 to 1"},
           {{plan, "--to", "svg", "--time", "1h-2h"}, "1h"},
           {{plan, "--to", "svg", "--both"}, "PLAN.json and --trace"},
           {{plan, "--to", "csv", "--both", "--trace", kMeasured}, "--both draws two steps"},
           {{plan, "--to", "torch"}, "--out DIR"},
           {{plan, "--to", "torchtitan"}, "--out DIR"},
           {{plan, "--to", "torchtitan", "--out", folder.file("my titan")}, "a folder without blanks"},
           {{plan, "--to", "svg", "--predicted-title", "Mine"}, "--predicted-title is the title of one of two steps; add --both"},
           {{plan, "--to", "html", "--measured-title", "Mine"}, "--measured-title is for figures"},
           {{plan, "--to", "tikz", "--font", "Palatino"}, "give --font sans-serif, serif or monospace, not Palatino"},
           {{"--trace", kMeasured, "--to", "megatron"}, "give PLAN.json"},
           {{"--trace", kMeasured, "--to", "torch", "--out", folder.file("x")}, "give PLAN.json"},
           {{plan, "--run", "1", "--to", "svg"}, "--run selects a run"},
           {{plan, "--step", "1", "--to", "svg"}, "one step only"},
           {{"--trace", kMeasured, "--step", "13", "--to", "csv"}, "not one of the 12 steps"},
           {{"--trace", plan, "--to", "csv"}, "no list traceEvents"},
       }) {
    std::vector<std::string> arguments{"export"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const Outcome outcome = call(arguments);
    EXPECT_EQ(outcome.status, 2) << sentence;
    EXPECT_TRUE(contains(outcome.err, sentence)) << outcome.err;
  }
}

#ifdef PW_PYTHON
/// The losses that the exported script printed.
std::vector<double> exportedLosses(const std::string& text) {
  const std::size_t begin = text.find("{\"losses\"");
  if (begin == std::string::npos) return {};
  return nlohmann::json::parse(text.substr(begin, text.find('\n', begin) - begin)).at("losses").get<std::vector<double>>();
}

// The script computes as the plan does: in bfloat16 by autocast, without an option. Traced in float32 its losses differ by more.
TEST(Export, RunsWithTorchInThePrecisionOfThePlan) {
  const Folder folder;
  const std::string plan = plannedModel(folder, "1f1b", "bf16"), data = folder.file("data.pt"), out = folder.file("out");
  ASSERT_EQ(std::system((PW_PYTHON " " PW_SOURCE_DIR "/tests/support/python/checkpoint_user.py data " + data + " 16").c_str()), 0);
  ASSERT_EQ(call({"export", plan, "--to", "torch", "--out", folder.file("x")}).status, 0);
  EXPECT_EQ(nlohmann::json::parse(contentOf(folder.file("x/pipeline.json"))).at("precision"), "bf16");
  const std::string script = "OMP_NUM_THREADS=1 timeout 300 " PW_PYTHON " -m torch.distributed.run --nproc-per-node 2 " +
                             folder.file("x/run.py") + " --steps 3 --lr 0.1 --data " + data;
  ASSERT_EQ(std::system((script + " > " + out + " 2>&1").c_str()), 0) << contentOf(out);
  const std::vector<double> theirs = exportedLosses(contentOf(out));
  ASSERT_EQ(std::system((script + " --precision traced > " + out + " 2>&1").c_str()), 0) << contentOf(out);
  const std::vector<double> traced = exportedLosses(contentOf(out));
  const Outcome run = call({"run", plan, "--json", "--steps", "3", "--lr", "0.1", "--data", data, "--precision", "bf16"});
  ASSERT_EQ(run.status, 0) << run.err;
  const auto ours = nlohmann::json::parse(run.out).at("losses").get<std::vector<double>>();
  ASSERT_EQ(theirs.size(), 3U);
  double apart = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(theirs[i], ours[i], 1e-4 * ours[i]) << "step " << i;
    apart += std::abs(theirs[i] - traced[i]);
  }
  EXPECT_GT(apart, 1e-4);
}

// A model with the modules of torchtitan's, split, placed and scheduled as torchtitan does with these arguments.
TEST(Export, RunsWithTorchtitansArgumentsAsThisProgramRunsIt) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), data = folder.file("data.pt"), out = folder.file("out");
  const std::string tools = PW_SOURCE_DIR "/tests/support/python/";
  ASSERT_EQ(std::system((PW_PYTHON " " + tools + "checkpoint_user.py data " + data + " 16").c_str()), 0);
  for (const char* schedule : {"interleaved-1f1b", "zbv"}) {
    const Outcome made =
        call({"plan", sample("gpt_small"), "--ranks", "2", "--chunks", "2", "--microbatches", "4", "--schedule", schedule, "--cluster",
              PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json", "--balance", "layers", "--out", plan});
    ASSERT_EQ(made.status, 0) << made.err;
    ASSERT_EQ(call({"export", plan, "--to", "torchtitan", "--out", folder.file("titan")}).status, 0);
    const std::string script = "OMP_NUM_THREADS=1 timeout 300 " PW_PYTHON " -m torch.distributed.run --nproc-per-node 2 " + tools +
                               "titan_user.py " + folder.file("titan") + " " + sample("gpt_small") + " " + data + " 3 0.1";
    ASSERT_EQ(std::system((script + " > " + out + " 2>&1").c_str()), 0) << contentOf(out);
    const std::vector<double> theirs = exportedLosses(contentOf(out));
    const Outcome run = call({"run", plan, "--json", "--steps", "3", "--lr", "0.1", "--data", data});
    ASSERT_EQ(run.status, 0) << run.err;
    const auto ours = nlohmann::json::parse(run.out).at("losses").get<std::vector<double>>();
    ASSERT_EQ(theirs.size(), 3U) << contentOf(out);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(theirs[i], ours[i], 1e-5 * ours[i]) << schedule << ", step " << i;
  }
}

// Models that torch's pipelining alone trains wrongly or not at all when they are cut (tests/support/python/cut_models.py).
TEST(Export, RunsWithTorchWhatTheCutMakesHard) {
  const Folder folder;
  const std::string plan = folder.file("plan.json"), out = folder.file("out");
  ASSERT_EQ(
      std::system(
          ("OMP_NUM_THREADS=1 " PW_PYTHON " -W ignore " PW_SOURCE_DIR "/tests/support/python/cut_models.py " + folder.file("")).c_str()),
      0);
  struct Case {
    std::string model, split, schedule;
  };
  for (const auto& [model, split, schedule] :
       {Case{"shared", "norms.2", "1f1b"}, Case{"shared", "", "zbv"}, Case{"late", "", "zbv"}, Case{"aux", "b", "1f1b"},
        Case{"aux", "b", "zb-h1"}, Case{"decoder", "b", "1f1b"}, Case{"strided", "b", "1f1b"}, Case{"strided", "b", "zb-h1"},
        Case{"masked", "b", "zb-h1"}, Case{"table", "b", "1f1b"}, Case{"table", "", "zbv"}, Case{"recurrent", "b", "zb-h1"},
        Case{"rotary", "c", "1f1b"}, Case{"marked", "c", "1f1b"}, Case{"named", "b", "1f1b"}, Case{"apart", "b", "1f1b"},
        Case{"early", "b,c,d", "zbv"}}) {
    const std::string name = model + ", " + schedule, data = folder.file(model + ".pt");
    std::vector<std::string> words{"plan",           folder.file(model + ".pt2"),
                                   "--ranks",        "2",
                                   "--microbatches", "4",
                                   "--microbatch",   "4",
                                   "--loss",         "mse",
                                   "--schedule",     schedule,
                                   "--cluster",      PW_SOURCE_DIR "/resources/clusters/cpu-workstation.json",
                                   "--out",          plan};
    if (!split.empty()) words.insert(words.end(), {"--split", split});
    const Outcome made = call(words);
    ASSERT_EQ(made.status, 0) << name << made.err;
    ASSERT_EQ(call({"export", plan, "--to", "torch", "--out", folder.file("x")}).status, 0) << name;
    const std::string script = "OMP_NUM_THREADS=1 timeout 300 " PW_PYTHON " -m torch.distributed.run --nproc-per-node 2 " +
                               folder.file("x/run.py") + " --steps 4 --lr 0.1 --clip-norm 0.5 --data " + data;
    ASSERT_EQ(std::system((script + " > " + out + " 2>&1").c_str()), 0) << name << contentOf(out);
    const std::vector<double> theirs = exportedLosses(contentOf(out));
    const Outcome run = call({"run", plan, "--json", "--steps", "4", "--lr", "0.1", "--clip-norm", "0.5", "--data", data});
    ASSERT_EQ(run.status, 0) << run.err;
    const auto ours = nlohmann::json::parse(run.out).at("losses").get<std::vector<double>>();
    ASSERT_EQ(theirs.size(), 4U) << name << contentOf(out);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(theirs[i], ours[i], 1e-5 * ours[i]) << name << ", step " << i;
  }
}

TEST(Export, RunsWithTorchOnTwoRanksAsThisProgramRunsIt) {
  const Folder folder;
  const std::string plan = plannedModel(folder, "zbv"), data = folder.file("data.pt"), out = folder.file("out");
  ASSERT_EQ(std::system((PW_PYTHON " " PW_SOURCE_DIR "/tests/support/python/checkpoint_user.py data " + data + " 16").c_str()), 0);
  ASSERT_EQ(call({"export", plan, "--to", "torch", "--out", folder.file("not/yet/there")}).status, 0);
  // Two batches in the file, a rate that rises and falls, a norm that is clipped: whoever leaves one out has other losses.
  const std::vector<std::string> options{
      "--steps",        "4",   "--data",   data, "--optimizer",   "adamw", "--lr",         "0.01", "--betas",     "0.8,0.9",
      "--weight-decay", "0.1", "--warmup", "2",  "--decay-steps", "4",     "--final-rate", "0.5",  "--clip-norm", "0.5"};
  std::string command = "OMP_NUM_THREADS=1 timeout 300 " PW_PYTHON " -m torch.distributed.run --nproc-per-node 2 " +
                        folder.file("not/yet/there/run.py") + " --trace " + folder.file("profiles");
  std::vector<std::string> words{"run", plan, "--json"};
  for (const std::string& option : options) {
    command += " " + option;
    words.push_back(option);
  }
  ASSERT_EQ(std::system((command + " > " + out + " 2>&1").c_str()), 0) << contentOf(out);
  const std::string text = contentOf(out);
  const std::size_t begin = text.find("{\"losses\"");
  ASSERT_NE(begin, std::string::npos) << text;
  const auto theirs = nlohmann::json::parse(text.substr(begin, text.find('\n', begin) - begin)).at("losses");
  const Outcome run = call(words);
  ASSERT_EQ(run.status, 0) << run.err;
  const auto ours = nlohmann::json::parse(run.out).at("losses");
  ASSERT_EQ(theirs.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(theirs[i].get<double>(), ours[i].get<double>(), 1e-5 * ours[i].get<double>()) << "step " << i;
  // What torch's profiler recorded of it comes back: 4 stages, 4 microbatches, each with F, and B or I and W.
  const ImportedTrace trace = importTrace({folder.file("profiles")}).value();
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps[0].trace.ranks, 2);
  EXPECT_EQ(std::count_if(trace.steps[0].trace.spans.begin(), trace.steps[0].trace.spans.end(),
                          [](const Span& s) { return s.kind == SpanKind::Forward; }),
            16);
}
#endif

}  // namespace
}  // namespace pw::test
