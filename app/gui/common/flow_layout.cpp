#include "app/gui/common/flow_layout.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QStyle>
#include <QWidget>
#include <algorithm>

namespace pw::gui {
namespace {

int gapOf(const QLayout& layout, Qt::Orientation direction) {
  if (layout.spacing() >= 0) return layout.spacing();
  const QWidget* parent = layout.parentWidget();
  const int pixels =
      parent == nullptr ? -1 : parent->style()->layoutSpacing(QSizePolicy::PushButton, QSizePolicy::PushButton, direction, nullptr, parent);
  return std::max(pixels, 6);
}

/// The widgets of one line.
struct Line {
  std::vector<QLayoutItem*> items;
  int width = 0, height = 0;
};

}  // namespace

FlowLayout::FlowLayout(QWidget* parent) : QLayout(parent) {
  if (parent != nullptr) setContentsMargins(0, 0, 0, 0);
}
FlowLayout::~FlowLayout() = default;

void FlowLayout::addField(QLabel* label, QWidget* field) {
  auto* both = new QWidget;
  auto* row = new QHBoxLayout(both);
  row->setContentsMargins(0, 0, 0, 0);
  row->addWidget(label);
  row->addWidget(field);
  label->setBuddy(field);
  addWidget(both);
}

void FlowLayout::addItem(QLayoutItem* item) { items_.emplace_back(item); }
int FlowLayout::count() const { return static_cast<int>(items_.size()); }
QLayoutItem* FlowLayout::itemAt(int index) const {
  return index >= 0 && index < count() ? items_[static_cast<std::size_t>(index)].get() : nullptr;
}

QLayoutItem* FlowLayout::takeAt(int index) {
  if (index < 0 || index >= count()) return nullptr;
  QLayoutItem* item = items_[static_cast<std::size_t>(index)].release();
  items_.erase(items_.begin() + index);
  return item;
}

QSize FlowLayout::sizeHint() const {
  const int gap = gapOf(*this, Qt::Horizontal);
  QSize size(0, 0);
  for (const auto& item : items_) {
    if (item->isEmpty()) continue;
    const QSize hint = item->sizeHint();
    size = {size.width() + (size.width() > 0 ? gap : 0) + hint.width(), std::max(size.height(), hint.height())};
  }
  const QMargins margins = contentsMargins();
  return size.grownBy(margins);
}

QSize FlowLayout::minimumSize() const {
  QSize size(0, 0);
  for (const auto& item : items_) {
    if (!item->isEmpty()) size = size.expandedTo(item->minimumSize());
  }
  return size.grownBy(contentsMargins());
}

int FlowLayout::heightForWidth(int width) const { return place({0, 0, width, 0}, false); }

void FlowLayout::setGeometry(const QRect& area) {
  QLayout::setGeometry(area);
  place(area, true);
}

/// Breaks the widgets into lines; returns the height of all [pixels].
int FlowLayout::place(const QRect& area, bool moves) const {
  const QRect inside = area.marginsRemoved(contentsMargins());
  const int gap = gapOf(*this, Qt::Horizontal);
  std::vector<Line> lines;
  for (const auto& item : items_) {
    if (item->isEmpty()) continue;
    const QSize hint = item->sizeHint();
    const int width = std::min(hint.width(), std::max(inside.width(), item->minimumSize().width()));
    if (lines.empty() || lines.back().width + gap + width > inside.width()) lines.emplace_back();
    Line& line = lines.back();
    line.width += (line.items.empty() ? 0 : gap) + width;
    line.height = std::max(line.height, hint.height());
    line.items.push_back(item.get());
  }
  int y = inside.top();
  for (const Line& line : lines) {
    if (&line != &lines.front()) y += gapOf(*this, Qt::Vertical);
    int x = inside.left();
    for (QLayoutItem* item : line.items) {
      const QSize hint = item->sizeHint();
      const int width = std::min(hint.width(), std::max(inside.width(), item->minimumSize().width()));
      const QRect slot(x, y + (line.height - hint.height()) / 2, width, hint.height());
      if (moves) item->setGeometry(parentWidget() == nullptr ? slot : QStyle::visualRect(parentWidget()->layoutDirection(), area, slot));
      x += width + gap;
    }
    y += line.height;
  }
  const QMargins margins = contentsMargins();
  return y - inside.top() + margins.top() + margins.bottom();
}

}  // namespace pw::gui
