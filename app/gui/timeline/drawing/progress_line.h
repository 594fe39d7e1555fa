#pragma once

#include <QElapsedTimer>
#include <QObject>
#include <QTimer>
#include <functional>

#include "app/gui/common/theme.h"

class QPainter;
class QWidget;

namespace pw::gui {

/// A thin line that runs along the top of a widget while an answer takes its time.
class ProgressLine : public QObject {
  Q_OBJECT
 public:
  /// `isAwaited` is asked now and then whether the answer is still to come.
  ProgressLine(QWidget& widget, std::function<bool()> isAwaited);

  void noteRequest();  ///< only the first of those without an answer counts
  void noteAnswer();   ///< only a request without a result is late, not a drag that requests repeatedly
  void paint(QPainter& painter, const Theme& theme) const;  ///< nothing where it is not late

 private:
  QWidget& widget_;
  std::function<bool()> isAwaited_;
  QTimer waiting_;
  QElapsedTimer sinceRequest_;
  bool isLate_ = false;  ///< it takes long enough to say so
};

}  // namespace pw::gui
