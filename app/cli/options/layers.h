#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pw::cli {

/// Declares the model: archives, or with `--layers` a table. Both arguments must outlive the command.
void declareModel(CLI::App& command, std::vector<std::string>& archives, std::string& layers);

/// The files of the model: the archives or the table. Throws UsageError unless exactly one of both is given.
[[nodiscard]] std::vector<std::string> modelFiles(const std::vector<std::string>& archives, const std::string& layers,
                                                  const std::string& command);

}  // namespace pw::cli
