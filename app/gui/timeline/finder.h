#pragma once

#include <QString>
#include <QTimer>
#include <vector>

#include "app/gui/timeline/facts/find_query.h"
#include "app/gui/timeline/find_bar.h"
#include "app/gui/timeline/selection.h"

namespace pw::gui {

/// What the find bar's text finds in the timelines: highlighted all at once, and selected one after the other.
class Finder : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Finder)
 public:
  Finder(const Scene& scene, Selection& selection, FindBar& bar);

  /// How much is found; `selects`: the first of it is selected, else one stays where one is.
  int search(const QString& query, bool selects);
  void searchSoon();         ///< for the bar's text, when no more is typed
  void step(int direction);  ///< to the next one or the previous one, around the ends; first searches for what was typed last
  void close();              ///< hides the bar; nothing is searched for any more
  void forget();             ///< other timelines: what was found is not theirs
  void refresh();            ///< searches them for the same

 private:
  void showCount();

  const Scene& scene_;
  Selection& selection_;
  FindBar& bar_;
  QTimer typing_;
  std::vector<Found> found_;
  std::size_t at_ = 0;
  QString query_;
};

}  // namespace pw::gui
