#pragma once

#include <QSize>
#include <QString>
#include <QStringList>
#include <optional>

#include "app/gui/figure/files.h"
#include "app/gui/figure/source.h"
#include "app/gui/window/panel_names.h"
#include "app/gui/window/view_link.h"

namespace pw::gui {

/// The program's exit status for unusable arguments.
inline constexpr int kUnusable = 2;

/// Writes the sentence to standard error, after the program's name; returns `status`.
int complain(const QString& sentence, int status);

/// A figure as the command line describes it.
struct FigureRequest {
  FigureStyle style;
  bool titled = false;               ///< a title was given, perhaps an empty one
  std::optional<FigureSteps> steps;  ///< nothing: as `usualSteps`
  int dpi = kUsualDpi;
};

/// What the window shows, and what is written of it.
struct Options {
  QStringList files;
  QString grab, exported;
  std::optional<Panel> panel;
  std::optional<QSize> size;  ///< nothing: the last one of the window, or the usual one of a picture
  bool search = false;
  ViewTarget target;
  std::optional<FigureRequest> figure;  ///< what `exported` is written as; nothing: the timeline as the window shows it
};

/// The parsed command line; needs no display.
struct Call {
  Options options;
  QString theme, store;
  bool picture = false, timed = false;  ///< `picture`: no window is shown
  std::optional<int> status;            ///< nothing else to do: help or version was shown, or the arguments were wrong
};

/// Parses the arguments, which include the program's name. Prints help, the version, or why the arguments are unusable; then `status` is
/// set.
[[nodiscard]] Call parse(const QStringList& arguments);

}  // namespace pw::gui
