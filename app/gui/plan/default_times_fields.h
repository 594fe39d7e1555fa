#pragma once

#include <QFormLayout>
#include <QObject>
#include <memory>

namespace pw::gui {

class Document;

/// The default times of a schedule without a model, as rows of a form, which owns the widgets: one for each kind of action that the
/// schedule has. Hidden where the times are of a model or a plan.
class DefaultTimesFields : public QObject {
  Q_OBJECT
 public:
  DefaultTimesFields(Document& document, QFormLayout& form, QObject* parent = nullptr);
  ~DefaultTimesFields() override;

  void showDesign();

 signals:
  void problem(const QString& sentence);

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
