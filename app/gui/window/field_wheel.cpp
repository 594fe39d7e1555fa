#include "app/gui/window/field_wheel.h"

#include <QApplication>
#include <QComboBox>
#include <QEvent>
#include <QMainWindow>
#include <QScrollArea>
#include <QSpinBox>

namespace pw::gui {
namespace {

bool isInScrollArea(const QWidget& widget) {
  for (const QWidget* above = widget.parentWidget(); above != nullptr; above = above->parentWidget()) {
    if (qobject_cast<const QScrollArea*>(above) != nullptr) return true;
  }
  return false;
}

}  // namespace

FieldWheel::FieldWheel(QMainWindow& window) : QObject(&window), window_(window) { qApp->installEventFilter(this); }

bool FieldWheel::eventFilter(QObject* object, QEvent* event) {
  if (event->type() != QEvent::Wheel && event->type() != QEvent::Show) return false;
  if (qobject_cast<QComboBox*>(object) == nullptr && qobject_cast<QAbstractSpinBox*>(object) == nullptr) return false;
  auto& field = static_cast<QWidget&>(*object);
  if (field.window() != &window_ || !isInScrollArea(field)) return false;
  if (event->type() == QEvent::Show) {
    if (field.focusPolicy() == Qt::WheelFocus) field.setFocusPolicy(Qt::StrongFocus);
    return false;
  }
  if (field.hasFocus()) return false;
  event->ignore();  // goes on to the scroll area
  return true;
}

}  // namespace pw::gui
