#include "app/gui/common/body.h"

#include <QWidget>

namespace pw::gui {

void takeHeightLeft(QWidget& body, int lines) {
  QSizePolicy policy = body.sizePolicy();
  policy.setVerticalPolicy(QSizePolicy::Ignored);
  body.setSizePolicy(policy);
  body.setMinimumHeight(lines * body.fontMetrics().lineSpacing());
}

}  // namespace pw::gui
