#include "app/cli/export_plan.h"

#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/text/output.h"
#include "backends/resources/resources.h"
#include "simulator/layout/megatron_plan.h"

namespace pw::cli {

int exportMegatron(const Plan& plan, const std::string& out) {
  const MegatronPlan megatron = megatronPlan(plan, loadModel(plan.modelFiles));
  const std::string text = out.ends_with(".json") ? toJson(megatron) : toText(megatron, plan);
  if (out.empty()) {
    print(text);
    return kYes;
  }
  writeFile(out, text);
  print(fmt::format("{}: {}\n", out, toString(megatron.layout)));
  for (const std::string& note : megatron.notes) print(note + "\n");
  return kYes;
}

}  // namespace pw::cli
