#include "app/cli/export_picture.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "app/cli/commands.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw::cli {
namespace {

namespace fs = std::filesystem;

std::string appPath() {
  const fs::path folder = fs::path(ownPath()).parent_path();
  std::string path = (folder / "pipewright-gui").string();
  if (access(path.c_str(), X_OK) != 0 || isFolder(path))
    throw UsageError(fmt::format(
        "PDF and PNG are drawn by the app, and there is no pipewright-gui in {}; install the app there, or use --to svg", folder.string()));
  return path;
}

/// A name that no option begins like.
std::string asFile(const std::string& path) { return path.starts_with("-") ? "./" + path : path; }

}  // namespace

int drawByApp(const AppFigure& figure) {
  std::vector<std::string> words{appPath()};
  for (const std::string& file : figure.files) words.push_back(asFile(file));
  if (figure.run > 0) words.insert(words.end(), {"--show-run", std::to_string(figure.run)});
  if (figure.step > 0) words.insert(words.end(), {"--step", std::to_string(figure.step)});
  if (figure.predicted) words.emplace_back("--predicted");
  if (figure.both) words.emplace_back("--both");
  if (figure.dpi > 0) words.insert(words.end(), {"--dpi", std::to_string(figure.dpi)});
  FigureStyle untitled = figure.style;
  untitled.title.clear();  // given below, also where it is empty, for which the app has one of its own
  for (const std::string& option : figureOptions(untitled)) words.push_back(option);
  words.insert(words.end(), {"--title=" + figure.style.title, "--export", asFile(figure.out)});
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0)
    throw Error(fmt::format("cannot start {}; check that it may be executed", words[0]));
  int status = 0;  // without a limit: the app has its own for files that it cannot open, and Ctrl-C in the terminal ends both
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) ? WEXITSTATUS(status) : kNo;
}

}  // namespace pw::cli
