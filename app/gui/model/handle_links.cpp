#include "app/gui/model/handle_links.h"

#include <QWidget>
#include <utility>

#include "app/gui/document/document.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/model/split_commands.h"

namespace pw::gui {

HandleLinks::HandleLinks(Document& document, SplitCommands& commands, SplitSurface surface, std::function<void(NodeId)> reveal)
    : document_(document), commands_(commands), area_(*surface.area), reveal_(std::move(reveal)), drag_(document, std::move(surface)) {}

void HandleLinks::show(int split) {
  const auto& begins = document_.design().request.begins;
  if (static_cast<std::size_t>(split) < begins.size()) reveal_(begins[static_cast<std::size_t>(split)]);
}

void HandleLinks::adopt(SplitHandle* handle, const std::vector<SplitHandle*>& handles, QWidget& view) {
  connect(&drag_, &SplitDrag::refusalChanged, handle, [handle](bool refused) { handle->setRefused(refused && handle->isDragged()); });
  connect(handle, &SplitHandle::dragStarted, this, [this](int split) {
    emit dragStarted();
    drag_.begin(commands_.rules(), static_cast<std::size_t>(split));
  });
  connect(handle, &SplitHandle::dragged, this,
          [this](int, const QPoint& global) { drag_.moveTo(area_.viewport()->mapFromGlobal(global).y()); });
  connect(handle, &SplitHandle::dragEnded, this, [this](int, bool keep) { drag_.end(keep); });
  connect(handle, &SplitHandle::stepped, this, [this](int split, int direction) {
    commands_.step(static_cast<std::size_t>(split), direction);
    show(split);
  });
  connect(handle, &SplitHandle::focused, this, &HandleLinks::show);
  // After the event that requests it, because the handle itself may be deleted.
  connect(
      handle, &SplitHandle::removed, this, [this](int split) { commands_.remove(static_cast<std::size_t>(split)); }, Qt::QueuedConnection);
  connect(handle, &SplitHandle::menuRequested, this, &HandleLinks::menuRequested, Qt::QueuedConnection);
  QWidget::setTabOrder(handles.size() > 1 ? static_cast<QWidget*>(handles[handles.size() - 2]) : &view, handle);
}

}  // namespace pw::gui
