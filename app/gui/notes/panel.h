#pragma once

#include <QWidget>
#include <memory>

namespace pw::gui {

class Document;
class TimelineWidget;

/// The notes and bookmarks of the project in the order of their times: a click goes to one, F2 writes it, Delete deletes it. Listed while
/// it is visible.
class NotesPanel : public QWidget {
  Q_OBJECT
 public:
  NotesPanel(Document& document, TimelineWidget& timeline, QWidget* parent = nullptr);
  ~NotesPanel() override;

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
