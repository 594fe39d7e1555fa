#include "app/cli/text/memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/cli/text/output.h"
#include "schedules/units.h"
#include "simulator/report/json.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The modules that keep the most of a stage: `blocks.0 1.2 MiB, blocks.1 1.2 MiB, 3 more 96 KiB`.
std::string largest(std::vector<ModuleMemory> modules, Bytes ModuleMemory::*bytes) {
  constexpr std::size_t kShown = 3;
  std::stable_sort(modules.begin(), modules.end(), [&](const auto& a, const auto& b) { return a.*bytes > b.*bytes; });
  std::string text;
  Bytes rest = 0;
  std::size_t others = 0;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const ModuleMemory& m = modules[i];
    if (m.*bytes <= 0) continue;
    if (i < kShown) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", m.module.empty() ? "outside of modules" : m.module, formatSize(m.*bytes));
    } else {
      ++others;
      rest += m.*bytes;
    }
  }
  return others == 0 ? text : fmt::format("{}, {} more {}", text, others, formatSize(rest));
}

std::string savingText(const MemorySaving& saving, Ns step) {
  const auto what = [&]() -> std::string {
    switch (saving.by) {
      case MemorySaving::By::Recomputing: return fmt::format("recompute stage {}", saving.stage.value);
      case MemorySaving::By::Zero1: return "--zero1";
      case MemorySaving::By::Schedule: return fmt::format("--schedule {} --chunks {} with these splits", saving.schedule, saving.chunks);
      case MemorySaving::By::Splits: return "--balance memory";
    }
    return {};
  };
  const double change = step > 0 ? static_cast<double>(saving.step - step) / static_cast<double>(step) : 0;
  return fmt::format("{} frees {} of rank {}, step {} ({})\n", what(), formatSize(saving.freed), saving.rank.value,
                     formatDuration(saving.step), signedPercent(change));
}

}  // namespace

std::string rangeOfSizes(const std::vector<Bytes>& sizes) {
  const auto [least, most] = std::ranges::minmax(sizes);
  const std::string low = formatSize(least), high = formatSize(most);
  return low == high ? high : fmt::format("{} to {}", low, high);
}

std::string memoryText(const std::vector<RankMemory>& ranks, bool inBytes) {
  const auto shown = [&](Bytes bytes) { return inBytes ? formatSize(bytes) : fmt::format("{}", bytes.value); };
  std::vector<std::vector<std::string>> rows{{"rank", "peak at", "what", "stage", "microbatches", "bytes", "share"}};
  for (const RankMemory& rank : ranks) {
    rows.push_back({fmt::format("{}", rank.rank.value), rank.at.kind == ActionKind::Idle ? "" : toString(rank.at), "peak", "", "",
                    shown(rank.peak), ""});
    for (const MemoryPart& part : rank.parts) {
      rows.push_back({"", "", std::string(nameOf(part.kind)), fmt::format("{}", part.stage.value), rangesOf(part.microbatches),
                      shown(part.bytes), percent(static_cast<double>(part.bytes) / static_cast<double>(rank.peak))});
    }
  }
  return table(rows);
}

std::string memoryText(const PlanMemory& memory) {
  std::string text = memoryText(memory.ranks, true) + "\n";
  for (std::size_t s = 0; s < memory.modules.size(); ++s) {
    for (const auto& [what, part] :
         {std::pair("activations of a microbatch", &ModuleMemory::activations), std::pair("parameters", &ModuleMemory::parameters)}) {
      const std::string modules = largest(memory.modules[s], part);
      if (!modules.empty()) text += fmt::format("stage {}, {}: {}\n", s, what, modules);
    }
  }
  if (!memory.savings.empty()) text += "\n";
  for (const MemorySaving& saving : memory.savings) text += savingText(saving, memory.step);
  return text;
}

std::string withMemory(const std::string& document, const std::vector<RankMemory>& ranks) {
  Json json = ownJson(document);
  json["memory"] = ownJson(memoryJson(ranks));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string withMemory(const std::string& document, const PlanMemory& memory) {
  Json json = ownJson(withMemory(document, memory.ranks));
  json["memory_by_module"] = Json::array();
  for (std::size_t s = 0; s < memory.modules.size(); ++s) {
    for (const ModuleMemory& m : memory.modules[s]) {
      json["memory_by_module"].push_back(
          {{"stage", s}, {"module", m.module}, {"activation_bytes", m.activations}, {"parameter_bytes", m.parameters}});
    }
  }
  json["memory_savings"] = Json::array();
  for (const MemorySaving& saving : memory.savings) {
    Json one;
    switch (saving.by) {
      case MemorySaving::By::Recomputing: one = {{"what", "recompute"}, {"stage", saving.stage.value}}; break;
      case MemorySaving::By::Zero1: one = {{"what", "zero1"}}; break;
      case MemorySaving::By::Schedule: one = {{"what", "schedule"}, {"schedule", saving.schedule}, {"chunks", saving.chunks}}; break;
      case MemorySaving::By::Splits: one = {{"what", "balance"}, {"balance", "memory"}}; break;
    }
    one["rank"] = saving.rank.value;
    one["freed_bytes"] = saving.freed;
    one["step_ns"] = saving.step;
    json["memory_savings"].push_back(one);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pw::cli
