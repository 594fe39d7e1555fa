#include "app/cli/options/layers.h"

#include <fmt/format.h>
#include <CLI/App.hpp>

#include "backends/host/paths.h"
#include "schedules/error.h"
#include "simulator/costs/layer_table.h"

namespace pw::cli {

void declareModel(CLI::App& command, std::vector<std::string>& archives, std::string& layers) {
  command.add_option("MODEL.pt2", archives, "Model archive (.pt2); several if each stage was exported separately")
      ->option_text("MODEL.pt2");
  command.add_option("--layers", layers, "A table of layers with their costs (JSON or CSV) instead of a model")
      ->option_text("F.json|F.csv");
}

std::vector<std::string> modelFiles(const std::vector<std::string>& archives, const std::string& layers, const std::string& command) {
  if (archives.empty() == layers.empty()) {
    throw UsageError(fmt::format("{} takes {} of MODEL.pt2 and --layers; see pipewright {} --help", command,
                                 layers.empty() ? "one" : "only one", command));
  }
  if (layers.empty()) return archives;
  if (!pathExists(layers)) throw UsageError(fmt::format("{} does not exist; check the path", layers));
  if (!isLayerTableName(layers)) throw UsageError(fmt::format("{} is not a layer table; give a .json or .csv file", layers));
  return {layers};
}

}  // namespace pw::cli
