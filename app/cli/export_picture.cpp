#include "app/cli/export_picture.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "app/cli/child.h"
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
  return runAndWait(std::move(words));
}

}  // namespace pw::cli
