#include "app/gui/window/start_page.h"

#include <QCommandLinkButton>
#include <QDir>
#include <QFileInfo>
#include <QGridLayout>
#include <QLabel>
#include <QPainter>
#include <QPushButton>
#include <QScrollArea>
#include <QVBoxLayout>

#include "app/gui/common/theme.h"
#include "backends/host/installation.h"

namespace pw::gui {
namespace {

/// A little pipeline, drawn from the colours of the timeline: what the app is about, at a glance.
class Banner : public QWidget {
 public:
  Banner() {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setFixedHeight(4 * (kRow + 3));
    setAccessibleName(StartPage::tr("A pipeline schedule of four ranks"));
  }

 protected:
  void paintEvent(QPaintEvent*) override {
    QPainter painter(this);
    const Theme& t = currentTheme();
    // 1F1B on four ranks with six microbatches, a backward twice as long as a forward: start of each block in units of a forward.
    constexpr int kRanks = 4, kMicrobatches = 6;
    const double unit = width() / (3.0 * (kMicrobatches + kRanks - 1));
    std::vector<std::vector<double>> forwardEnd(kRanks, std::vector<double>(kMicrobatches, 0)), backwardEnd = forwardEnd;
    std::vector<double> free(kRanks, 0);
    std::vector<int> nextForward(kRanks, 0), nextBackward(kRanks, 0);
    const auto block = [&](int rank, double start, double length, SpanKind kind) {
      const QRectF rect(start * unit, rank * (kRow + 3), length * unit - 1.5, kRow);
      painter.setPen(Qt::NoPen);
      painter.setBrush(kindColour(kind, t));
      painter.drawRoundedRect(rect, 2, 2);
    };
    for (int rank = 0; rank < kRanks; ++rank) {
      painter.fillRect(QRectF(0, rank * (kRow + 3), width(), kRow), t.bubble);
    }
    for (int done = 0; done < 2 * kRanks * kMicrobatches;) {
      for (int rank = kRanks - 1; rank >= 0; --rank) {
        const auto r = static_cast<std::size_t>(rank);
        const int f = nextForward[r], b = nextBackward[r];
        const bool backward = b < f && f - b >= std::min(kRanks - rank, kMicrobatches - b);
        if (backward) {
          const double after =
              rank + 1 == kRanks ? forwardEnd[r][static_cast<std::size_t>(b)] : backwardEnd[r + 1][static_cast<std::size_t>(b)];
          if (rank + 1 < kRanks && nextBackward[r + 1] <= b) continue;
          const double start = std::max(free[r], after);
          block(rank, start, 2, SpanKind::Backward);
          free[r] = backwardEnd[r][static_cast<std::size_t>(nextBackward[r]++)] = start + 2;
        } else if (f < kMicrobatches) {
          if (rank > 0 && nextForward[r - 1] <= f) continue;
          const double start = std::max(free[r], rank == 0 ? 0 : forwardEnd[r - 1][static_cast<std::size_t>(f)]);
          block(rank, start, 1, SpanKind::Forward);
          free[r] = forwardEnd[r][static_cast<std::size_t>(nextForward[r]++)] = start + 1;
        } else {
          continue;
        }
        ++done;
      }
    }
  }

 private:
  static constexpr int kRow = 15;
};

/// A page in the middle of the window, which scrolls where it does not fit.
QScrollArea* centred(QWidget* page) {
  auto* scroll = new QScrollArea;
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setWidgetResizable(true);
  auto* inside = new QWidget;
  auto* row = new QHBoxLayout(inside);
  row->addStretch(1);
  row->addWidget(page, 20);
  row->addStretch(1);
  scroll->setWidget(inside);
  scroll->viewport()->setAutoFillBackground(false);
  inside->setAutoFillBackground(false);
  return scroll;
}

QLabel* heading(const QString& text, double scale, bool bold = true) {
  auto* label = new QLabel(text);
  QFont font = label->font();
  font.setPointSizeF(font.pointSizeF() * scale);
  font.setBold(bold);
  label->setFont(font);
  return label;
}

}  // namespace

QList<Sample> samples() {
  const QDir folder(QString::fromStdString(resourceFolder()) + QStringLiteral("/models"));
  const QList<Sample> all{
      {folder.filePath(QStringLiteral("gpt_small.pt2")), StartPage::tr("Small GPT"),
       StartPage::tr("A decoder of equal blocks: the classic pipeline")},
      {folder.filePath(QStringLiteral("hf_gpt2.pt2")), StartPage::tr("GPT-2"), StartPage::tr("From Hugging Face, with tied embeddings")},
      {folder.filePath(QStringLiteral("hf_bert.pt2")), StartPage::tr("BERT"),
       StartPage::tr("From Hugging Face; its mask is sent to all stages")},
      {folder.filePath(QStringLiteral("hf_llama.pt2")), StartPage::tr("Llama"),
       StartPage::tr("From Hugging Face, rotary positions shared by all layers")},
      {folder.filePath(QStringLiteral("vit_small.pt2")), StartPage::tr("Vision transformer"), StartPage::tr("Patches in, classes out")},
      {folder.filePath(QStringLiteral("resnet18_narrow.pt2")), StartPage::tr("ResNet-18"),
       StartPage::tr("Convolutions with very uneven layer costs")},
  };
  QList<Sample> there;
  for (const Sample& sample : all) {
    if (QFileInfo::exists(sample.path)) there << sample;
  }
  return there;
}

QVBoxLayout* StartPage::sampleColumn() {
  auto* column = new QVBoxLayout;
  column->setSpacing(2);
  column->addWidget(heading(tr("Start with a sample"), 1.2));
  for (const Sample& sample : samples()) {
    auto* button = new QCommandLinkButton(sample.title, sample.description);
    button->setAccessibleName(tr("Open sample %1").arg(sample.title));
    button->setObjectName(QStringLiteral("sample ") + QFileInfo(sample.path).completeBaseName());
    button->setIcon({});
    button->setIconSize({1, 1});
    button->setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    button->setFixedHeight(4 * fontMetrics().height());
    column->addWidget(button);
    connect(button, &QAbstractButton::clicked, this, [this, sample] { emit chosen({sample.path}); });
  }
  return column;
}

QVBoxLayout* StartPage::openColumn() {
  auto* column = new QVBoxLayout;
  column->addWidget(heading(tr("Open your own"), 1.2));
  auto* openButton = new QPushButton(tr("&Open a file…"));
  openButton->setDefault(true);
  openButton->setMinimumHeight(2 * fontMetrics().height());
  connect(openButton, &QAbstractButton::clicked, this, &StartPage::openRequested);
  column->addWidget(openButton);
  auto* hint =
      new QLabel(tr("or drop it here: a model exported with torch.export (.pt2), a plan (.json), a trace of torch.profiler, Nsight "
                    "Systems, Chakra or Primus, a schedule (.csv), a project (.pwproj), a run store (.db)."));
  hint->setWordWrap(true);
  column->addWidget(hint);
  column->addSpacing(16);
  column->addWidget(heading(tr("Recent"), 1.2));
  recent_ = new QVBoxLayout;
  recent_->setSpacing(2);
  column->addLayout(recent_);
  column->addStretch();
  return column;
}

StartPage::StartPage(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Start page"));
  auto* page = new QWidget;
  auto* column = new QVBoxLayout(page);
  column->setContentsMargins(48, 36, 48, 36);
  column->setSpacing(10);
  column->addWidget(heading(tr("Pipewright"), 2.4));
  auto* line = heading(tr("See the bubbles before you rent the GPUs: split a model, try schedules, run the plan, compare."), 1.15, false);
  line->setWordWrap(true);
  column->addWidget(line);
  column->addSpacing(8);
  column->addWidget(new Banner);
  column->addSpacing(14);

  auto* two = new QHBoxLayout;
  two->setSpacing(40);
  QVBoxLayout* left = sampleColumn();
  two->addLayout(left, 1);
  two->addLayout(openColumn(), 1);
  two->setAlignment(left, Qt::AlignTop);
  column->addLayout(two);
  column->addStretch(1);
  page->setMaximumWidth(1080);
  setAutoFillBackground(true);
  setBackgroundRole(QPalette::Base);

  auto* all = new QVBoxLayout(this);
  all->setContentsMargins(0, 0, 0, 0);
  all->addWidget(centred(page));
  setRecent({});
}

void StartPage::setRecent(const QStringList& paths) {
  while (QLayoutItem* item = recent_->takeAt(0)) {
    delete item->widget();
    delete item;
  }
  for (const QString& path : paths) {
    auto* button = new QPushButton(QFileInfo(path).fileName());
    button->setFlat(true);
    button->setStyleSheet(QStringLiteral("text-align: left; padding: 4px 6px"));
    button->setToolTip(path);
    button->setAccessibleName(tr("Open %1").arg(path));
    recent_->addWidget(button);
    connect(button, &QAbstractButton::clicked, this, [this, path] { emit chosen({path}); });
  }
  if (paths.isEmpty()) {
    auto* none = new QLabel(tr("Files you open are listed here."));
    none->setEnabled(false);
    recent_->addWidget(none);
  }
}

}  // namespace pw::gui
