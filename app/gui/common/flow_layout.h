#pragma once

#include <QLayout>
#include <memory>
#include <vector>

class QLabel;

namespace pw::gui {

/// Widgets side by side as in a line of text: where the line is full they go on in the next one, so that a narrow window hides none. Each
/// has the width of its hint, and is centred in the height of its line. Hidden ones take no place.
class FlowLayout : public QLayout {
  Q_OBJECT
 public:
  explicit FlowLayout(QWidget* parent = nullptr);
  ~FlowLayout() override;
  /// A label and its field, which stay in one line. The label's mnemonic goes to the field.
  void addField(QLabel* label, QWidget* field);

  void addItem(QLayoutItem* item) override;
  [[nodiscard]] int count() const override;
  [[nodiscard]] QLayoutItem* itemAt(int index) const override;
  QLayoutItem* takeAt(int index) override;
  [[nodiscard]] QSize sizeHint() const override;     ///< all in one line
  [[nodiscard]] QSize minimumSize() const override;  ///< the widest alone
  [[nodiscard]] bool hasHeightForWidth() const override { return true; }
  [[nodiscard]] int heightForWidth(int width) const override;
  [[nodiscard]] Qt::Orientations expandingDirections() const override { return {}; }
  void setGeometry(const QRect& area) override;

 private:
  int place(const QRect& area, bool moves) const;

  std::vector<std::unique_ptr<QLayoutItem>> items_;
};

}  // namespace pw::gui
