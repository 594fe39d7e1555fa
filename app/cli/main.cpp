#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Option.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "engine/processes/failure.h"
#include "schedules/error.h"
#include "schedules/names.h"

namespace pw::cli {
namespace {

struct Entry {
  const char* name;
  Command (*add)(CLI::App&);
};

/// In the order `--help` shows them: from a model to a result.
constexpr auto kCommands = std::to_array<Entry>({
    {"inspect", addInspect}, {"schedule", addSchedule}, {"lower", addLower},         {"check", addCheck},   {"hang", addHang},
    {"profile", addProfile}, {"plan", addPlan},         {"simulate", addSimulate},   {"search", addSearch}, {"merge", addMerge},
    {"run", addRun},         {"compare", addCompare},   {"calibrate", addCalibrate}, {"gate", addGate},     {"runs", addRuns},
    {"devices", addDevices}, {"layout", addLayout},     {"export", addExport},       {"import", addImport}, {"explain", addExplain},
    {"demo", addDemo},
});

constexpr const char* kAbout = "Design, predict, run and compare pipeline-parallel training plans of traced PyTorch models.\n";

constexpr const char* kExamples = R"(Examples:
  pipewright demo                                              the whole way on a sample model
  pipewright inspect gpt.pt2                                   modules, sizes, where it can be split
  pipewright schedule 1f1b --ranks 4 --microbatches 8          the schedule as CSV
  pipewright simulate --schedule gpipe --ranks 4 --microbatches 8 --forward 1ms --backward 2ms
  pipewright plan gpt.pt2 --ranks 2 --microbatches 8 --out plan.json
  pipewright run plan.json --steps 5 --store runs.db
  pipewright compare --store runs.db                           predicted against measured

Durations are written 1.5ms, 200us, 30ns; sizes 24GiB, 80GB. `pipewright COMMAND --help` explains a command.
Exit status: 0 done or yes, 1 the answer is no (invalid schedule, failed run), 2 wrong call or unusable input.)";

/// The chosen command's name with a leading blank, or nothing.
std::string chosenName(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? std::string() : " " + chosen.front()->get_name();
}

/// The first file named as a model or plan that does not exist; empty for none. Options were not all read when the call was refused.
std::string missingFile(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return {};
  for (const CLI::Option* option : chosen.front()->get_options()) {
    if (!option->get_positional() || option->get_name() == "NAME" || option->get_name() == "OUT") continue;
    for (const std::string& file : option->results()) {
      std::error_code problem;
      if (!std::filesystem::exists(file, problem)) return file;
    }
  }
  return {};
}

std::string commandNames() {
  std::string names;
  for (const Entry& entry : kCommands) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
  return text;
}

std::string noSuchFile(const std::string& file) { return fmt::format("the file {} does not exist; check the path", file); }

/// The sentence for a call that CLI11 refused: what is wrong, and the cure. A file that does not exist is reported before a missing option.
std::string explain(const CLI::App& app, const CLI::ParseError& problem) {
  if (const std::string file = missingFile(app); !file.empty() && dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr) {
    return noSuchFile(file);
  }
  const std::string help = fmt::format("see pipewright{} --help", chosenName(app));
  const std::vector<std::string> extras = app.remaining(true);
  if (!extras.empty() && dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr) {
    const std::string& extra = extras.front();
    const bool command = chosenName(app).empty() && extra.substr(0, 1) != "-";
    std::vector<std::string_view> names;
    names.reserve(std::size(kCommands));
    for (const Entry& entry : kCommands) names.emplace_back(entry.name);
    if (command) return fmt::format("there is no command {}{}; the commands are {}", extra, didYouMean(extra, names), commandNames());
    return fmt::format("unknown argument {}{}{}; {}", extra, chosenName(app).empty() ? "" : " by", chosenName(app), help);
  }
  const std::string text = problem.what();
  const std::size_t colon = std::min(text.find(": "), text.size());  // after the option's name
  if (dynamic_cast<const CLI::RequiredError*>(&problem) != nullptr)
    return fmt::format("{}; {}", replaced(text, "is required", "is missing"), help);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem) != nullptr && text.find("received") != std::string::npos &&
      text.find("received 0") == std::string::npos) {
    return fmt::format("{} was given more than once; {}", text.substr(0, colon), help);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&problem) != nullptr && text.find("required") != std::string::npos) {
    return fmt::format("{} needs a value; {}", text.substr(0, colon), help);
  }
  if (dynamic_cast<const CLI::ConversionError*>(&problem) != nullptr)
    return fmt::format("{} is not a number; {}", replaced(text, "Could not convert: ", ""), help);
  return fmt::format("{}; {}", text, help);
}

/// The words after the program's name, last first, as CLI11 takes them. `help` and `help COMMAND` are `--help` and `COMMAND --help`.
std::vector<std::string> wordsOf(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words.size() <= 2 && words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::ranges::reverse(words);
  return words;
}

/// Parses the call and runs the chosen command. Throws every failure.
int dispatch(int argc, const char* const* argv) {
  CLI::App app(kAbout, "pipewright");
  app.footer(kExamples);
  app.set_version_flag("--version", "pipewright " PW_VERSION, "Show the version");
  app.set_help_flag("-h,--help", "Show this help");
  app.get_formatter()->column_width(34);
  app.get_formatter()->label("REQUIRED", "(required)");
  app.require_subcommand(0, 1);
  std::vector<Command> commands;
  commands.reserve(std::size(kCommands));
  for (const Entry& entry : kCommands) commands.push_back(entry.add(app));
  for (CLI::App* command : app.get_subcommands({})) describeRanges(*command);
  const auto overview = std::make_shared<CLI::Formatter>();  // the commands have taken the wider one
  overview->column_width(16);
  overview->label("SUBCOMMAND", "COMMAND");
  overview->label("OPTIONS", "OPTION");
  app.formatter(overview);

  try {
    app.parse(wordsOf(argc, argv));
  } catch (const CLI::CallForHelp&) {
    print(app.help());
    return kYes;
  } catch (const CLI::CallForVersion& version) {
    print(std::string(version.what()) + "\n");
    return kYes;
  } catch (const CLI::ParseError& problem) {
    throw UsageError(explain(app, problem));
  } catch (const UsageError&) {  // of a value
    if (const std::string file = missingFile(app); !file.empty()) throw UsageError(noSuchFile(file));
    throw;
  }
  for (std::size_t c = 0; c < commands.size(); ++c) {
    if (app.got_subcommand(kCommands[c].name)) return commands[c]();
  }
  print(app.help());
  return kYes;
}

}  // namespace
}  // namespace pw::cli

int main(int argc, char** argv) {
  using namespace pw::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is one that cannot be written, here and in the ranks, which inherit this
  try {
    const int status = dispatch(argc, argv);
    print("");  // flushes what others wrote to stdout
    return status;
  } catch (const pw::RankFailed& failed) {
    return failed.status;
  } catch (const pw::UsageError& problem) {
    return complain(problem.what(), kUnusable);
  } catch (const pw::Error& problem) {
    return complain(problem.what(), kNo);
  } catch (const std::bad_alloc&) {
    return complain("Out of memory; use fewer ranks, stages or microbatches", kNo);
  } catch (const std::exception& problem) {
    return complain(std::string("Stopped by an unexpected error: ") + problem.what(), kNo);
  }
}
