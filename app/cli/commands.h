#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace pw::cli {

/// Exit statuses of every command (resources/docs/guide.md).
inline constexpr int kYes = 0;
inline constexpr int kNo = 1;        ///< the answer is no: invalid schedule, does not fit, run failed
inline constexpr int kUnusable = 2;  ///< wrong usage or unusable input

/// A subcommand: each function below adds one subcommand to the program's app (`app.add_subcommand("run", …)`), declares its options and
/// returns the function to run when it is chosen, which returns the exit status and owns the options in its captures.
using Command = std::function<int()>;

[[nodiscard]] Command addInspect(CLI::App& app);
[[nodiscard]] Command addSchedule(CLI::App& app);
[[nodiscard]] Command addCheck(CLI::App& app);
[[nodiscard]] Command addHang(CLI::App& app);
[[nodiscard]] Command addProfile(CLI::App& app);
[[nodiscard]] Command addPlan(CLI::App& app);
[[nodiscard]] Command addSimulate(CLI::App& app);
[[nodiscard]] Command addSearch(CLI::App& app);
[[nodiscard]] Command addMerge(CLI::App& app);
[[nodiscard]] Command addRun(CLI::App& app);
[[nodiscard]] Command addCompare(CLI::App& app);
[[nodiscard]] Command addCalibrate(CLI::App& app);
[[nodiscard]] Command addGate(CLI::App& app);
[[nodiscard]] Command addRuns(CLI::App& app);
[[nodiscard]] Command addDevices(CLI::App& app);
[[nodiscard]] Command addLower(CLI::App& app);
[[nodiscard]] Command addLayout(CLI::App& app);
[[nodiscard]] Command addExport(CLI::App& app);
[[nodiscard]] Command addImport(CLI::App& app);
[[nodiscard]] Command addExplain(CLI::App& app);
[[nodiscard]] Command addDemo(CLI::App& app);

}  // namespace pw::cli
