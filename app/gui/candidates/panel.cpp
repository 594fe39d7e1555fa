#include "app/gui/candidates/panel.h"

#include <QCheckBox>
#include <QEvent>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QSplitter>
#include <QStackedWidget>
#include <QTableView>
#include <QVBoxLayout>
#include <algorithm>
#include <thread>
#include <utility>

#include "app/gui/candidates/delegate.h"
#include "app/gui/candidates/model.h"
#include "app/gui/candidates/plan_search.h"
#include "app/gui/candidates/scatter.h"
#include "app/gui/candidates/search_options.h"
#include "app/gui/candidates/study.h"
#include "app/gui/common/body.h"
#include "app/gui/common/elided_label.h"
#include "app/gui/common/flow_layout.h"
#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"

namespace pw::gui {

struct CandidatesPanel::Private {
  CandidatesPanel& panel;
  Document& document;
  SearchOptions* options = nullptr;
  QCheckBox *everything = nullptr, *fitting = nullptr;
  QProgressBar* progress = nullptr;
  QPushButton *button = nullptr, *first = nullptr, *loader = nullptr;
  QStackedWidget* pages = nullptr;
  QLabel *invitation = nullptr, *status = nullptr;
  QTableView* table = nullptr;
  CandidatesScatter* scatter = nullptr;
  CandidatesModel* model = nullptr;
  CandidatesFilter* filter = nullptr;
  CandidatesDelegate* delegate = nullptr;
  PlanSearch* plans = nullptr;
  Job* reading = nullptr;

  std::shared_ptr<const ModelGraph> searched;  ///< whose plans are shown
  std::optional<SearchBasis> basis;
  std::optional<StudyPlans> study;  ///< that is shown instead of a search
  QString outcome, outcomeDetails;
  bool perSample = false;  ///< steps differ in samples
  int shownPage = 0;       ///< of `pages`

  Private(CandidatesPanel& p, Document& d) : panel(p), document(d) {}
  void build();
  QWidget* buildEmpty();
  QWidget* buildResults();
  void connectAll();
  void start();
  void showLoader();
  [[nodiscard]] QString whyNotLoaded(int row) const;  ///< of a study; empty: it can be
  void append(const std::vector<Candidate>& more);
  void finish(const Found& found);
  void showStudy(const QString& path);
  void showPlans(StudyPlans read);
  void loadStudied(int row);
  void clear();
  void refresh();
  void showStatus();
  [[nodiscard]] Ns shownTime(Ns step, std::int64_t samples) const;
  void showPoints();
  void showCurrent();
  void hoverRow(int row);
  void choose(int row);
  void load(int row);
  [[nodiscard]] int sourceRow(const QModelIndex& index) const { return index.isValid() ? filter->mapToSource(index).row() : -1; }
  [[nodiscard]] int shownRow(int row) const { return row < 0 ? -1 : filter->mapFromSource(model->index(row, 0)).row(); }
  [[nodiscard]] int chosenRow() const { return sourceRow(table->currentIndex()); }
};

// ---- Widgets ----

QWidget* CandidatesPanel::Private::buildEmpty() {
  auto* page = new QWidget;
  auto* column = new QVBoxLayout(page);
  invitation = new QLabel;
  invitation->setAlignment(Qt::AlignCenter);
  invitation->setWordWrap(true);
  first = new QPushButton(tr("Search pla&ns"));
  first->setAccessibleName(tr("Search plans"));
  column->setContentsMargins(0, 0, 0, 0);
  column->addStretch(1);
  column->addWidget(invitation);
  column->addWidget(first, 0, Qt::AlignHCenter);
  column->addStretch(4);  // in a low window the button stays in sight
  return page;
}

QWidget* CandidatesPanel::Private::buildResults() {
  model = new CandidatesModel(&panel);
  filter = new CandidatesFilter(&panel);
  filter->setSourceModel(model);
  delegate = new CandidatesDelegate(&panel);
  table = makeCandidatesTable(*filter, *delegate);
  scatter = new CandidatesScatter;
  auto* splitter = new QSplitter(Qt::Horizontal);
  splitter->addWidget(table);
  splitter->addWidget(scatter);
  splitter->setStretchFactor(0, 2);
  splitter->setStretchFactor(1, 1);
  splitter->setSizes({2'000, 1'000});  // in proportion
  splitter->setChildrenCollapsible(false);
  return splitter;
}

void CandidatesPanel::Private::build() {
  options = new SearchOptions(document);
  everything = new QCheckBox(tr("Every &split"));
  everything->setToolTip(tr("List every choice of splits that was tried for a schedule, not only the best one"));
  fitting = new QCheckBox(tr("Only &what fits"));
  fitting->setToolTip(tr("Leave out plans that need more memory than a rank has"));
  progress = new QProgressBar;
  progress->setAccessibleName(tr("Progress of the search"));
  progress->setMaximumWidth(panel.fontMetrics().averageCharWidth() * 22);
  progress->setTextVisible(false);
  progress->hide();
  button = new QPushButton;
  status = new ElidedLabel;
  status->setAccessibleName(tr("Result of the search"));
  status->setTextFormat(Qt::PlainText);
  loader = new QPushButton(tr("&Load plan"));
  pages = new QStackedWidget;
  pages->addWidget(buildEmpty());
  pages->addWidget(buildResults());
  auto* above = new FlowLayout;
  for (QWidget* widget : std::initializer_list<QWidget*>{everything, fitting, button, loader, progress}) above->addWidget(widget);
  auto* column = new QVBoxLayout(&panel);
  column->setContentsMargins(8, 6, 8, 6);
  column->addWidget(options);
  column->addLayout(above);
  column->addWidget(status);
  column->addWidget(pages, 1);  // last: in a low window all that is pressed and read stays in sight above it
  plans = new PlanSearch(&panel);
  reading = new Job(&panel);
}

void CandidatesPanel::Private::connectAll() {
  connect(button, &QPushButton::clicked, &panel, [this] {
    if (!plans->isRunning()) return start();
    plans->stop();
    outcome = tr("Stopped.");
  });
  connect(first, &QPushButton::clicked, &panel, [this] { start(); });
  connect(loader, &QPushButton::clicked, &panel, [this] { load(chosenRow()); });
  connect(everything, &QCheckBox::toggled, &panel, [this](bool all) {
    filter->setShowsAll(all);
    showPoints();
    showStatus();
  });
  connect(fitting, &QCheckBox::toggled, &panel, [this](bool only) {
    filter->setOnlyFitting(only);
    showPoints();
    showStatus();
  });
  connect(table, &QTableView::activated, &panel, [this](const QModelIndex& index) { load(sourceRow(index)); });
  connect(table, &QTableView::entered, &panel, [this](const QModelIndex& index) { hoverRow(sourceRow(index)); });
  table->viewport()->installEventFilter(&panel);
  connect(table->selectionModel(), &QItemSelectionModel::currentRowChanged, &panel, [this](const QModelIndex& index) {
    scatter->setSelected(sourceRow(index));
    showLoader();
  });
  connect(scatter, &CandidatesScatter::pointHovered, &panel, [this](int row) { hoverRow(row); });
  connect(scatter, &CandidatesScatter::pointSelected, &panel, [this](int row) { choose(row); });
  connect(scatter, &CandidatesScatter::pointActivated, &panel, [this](int row) { load(row); });
  connect(plans, &PlanSearch::arrived, &panel, [this](const std::vector<Candidate>& more) { append(more); });
  connect(plans, &PlanSearch::found, &panel, [this](const Found& all) { finish(all); });
  connect(plans, &PlanSearch::progressed, &panel, [this](qint64 done, qint64 all) {
    progress->setRange(0, static_cast<int>(all));
    progress->setValue(static_cast<int>(done));
  });
  connect(plans, &PlanSearch::failed, &panel, [this](const QString& sentence) { outcome = sentence; });
  connect(reading, &Job::failed, &panel, [this](const QString& sentence) {
    outcome = sentence;
    refresh();
  });
  connect(plans, &PlanSearch::ended, &panel, [this] {
    refresh();
    emit panel.searchFinished();
  });
  connect(&document, &Document::modelChanged, &panel, [this] {
    if (!study && document.graph() != searched) clear();
    refresh();
  });
  connect(&document, &Document::designChanged, &panel, [this] { refresh(); });
  connect(&document, &Document::predictionChanged, &panel, [this] { showCurrent(); });
}

// ---- The search ----

void CandidatesPanel::Private::start() {
  const auto graph = document.graph();
  if (!graph || plans->isRunning()) return;
  SearchSpace space;
  try {
    space = options->space();
  } catch (const std::exception& e) {
    outcome = QString::fromUtf8(e.what());
    return showStatus();
  }
  space.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1);  // one for the window
  if (reading->isRunning()) reading->cancel();
  clear();
  searched = graph;
  basis.emplace(document.design());
  perSample = space.fixedMicrobatch;
  filter->setShowsAll(everything->isChecked());
  scatter->setTimeTitle(perSample ? tr("Time per sample") : tr("Time per step"));
  progress->setRange(0, 0);
  plans->start(graph, document.design(), space);
  refresh();
}

void CandidatesPanel::Private::append(const std::vector<Candidate>& more) {
  model->append(more);
  table->resizeColumnsToContents();
  showPoints();
  showStatus();
}

void CandidatesPanel::Private::finish(const Found& found) {
  const int row = chosenRow();
  const std::optional<PlanRequest> chosen = row < 0 ? std::nullopt : std::optional(model->at(row).request);
  outcome = skippedIn(found);
  outcomeDetails = reasonsIn(found);
  model->set(found.candidates);
  model->setUncertainty(basis && basis->profile ? basis->profile->uncertainty : std::nullopt);
  table->resizeColumnsToContents();
  showPoints();
  if (chosen) choose(model->rowOf(*chosen));
}

void CandidatesPanel::Private::clear() {
  plans->drop();
  searched.reset();
  basis.reset();
  study.reset();
  outcome.clear();
  outcomeDetails.clear();
  model->setUncertainty(std::nullopt);
  model->set({});
  showPoints();
}

// ---- Display ----

void CandidatesPanel::Private::refresh() {
  const bool has = document.graph() != nullptr, running = plans->isRunning();
  options->refresh();
  options->setEnabled(has && !running);
  first->setEnabled(has);
  button->setEnabled(has);
  for (QCheckBox* box : {everything, fitting}) box->setEnabled(has || model->rowCount() > 0);
  button->setText(running ? tr("Cancel") : tr("Search"));
  progress->setVisible(running);
  const PlanRequest& request = document.design().request;
  invitation->setText(
      has ? tr("Try schedules, numbers of microbatches, splits and recomputation on %1, and see the trade-off between speed and memory.")
                .arg(request.ranks == 1 ? tr("1 rank") : tr("%1 ranks").arg(request.ranks))
          : tr("Open a model to search plans for it."));
  const int before = std::exchange(shownPage, running || model->rowCount() > 0 ? 1 : 0);
  pages->setCurrentIndex(shownPage);
  takeHeightLeft(*pages, shownPage == 0 ? 4 : 6);
  scatter->setLimit(request.memoryLimit);
  double most = static_cast<double>(request.memoryLimit);
  for (const Candidate& c : model->all()) most = std::max(most, static_cast<double>(c.peak));
  delegate->setLimitShare(most > 0 ? static_cast<double>(request.memoryLimit) / most : 0);
  if (model->setLimit(study ? std::nullopt : std::optional(request.memoryLimit))) showPoints();
  model->setCurrent(has ? std::optional(request) : std::nullopt);
  showLoader();
  showCurrent();
  showStatus();
  if (shownPage > before) emit panel.resultsShown();
}

void CandidatesPanel::Private::showLoader() {
  const int row = chosenRow();
  QString why;
  if (row < 0)
    why = tr("Select a plan in the table first.");
  else if (study)
    why = whyNotLoaded(row);
  else if (model->isCurrent(row) && !document.design().customRows)
    why = tr("The selected plan is the current one.");
  loader->setEnabled(why.isEmpty());
  loader->setToolTip(why.isEmpty() ? tr("Replace the current plan by the selected one; Undo restores it") : why);
}

void CandidatesPanel::Private::showStatus() {
  const int all = model->rowCount(), shown = filter->rowCount();
  QStringList words;
  if (all > 0)
    words << (shown < all ? tr("%1 of %2 plans shown.").arg(shown).arg(all) : all == 1 ? tr("1 plan.") : tr("%1 plans.").arg(all));
  const auto& candidates = model->all();
  bool none = all > 0;
  for (int row = 0; row < all && none; ++row) none = !model->fits(row);
  if (none && !plans->isRunning())
    words << tr("None fits; the smallest needs %1.").arg(titleOf(*std::ranges::min_element(candidates, {}, &Candidate::peak)));
  if (!plans->isRunning() && !model->certainty().isEmpty()) words << model->certainty();
  if (!outcome.isEmpty()) words << outcome;
  if (study) {
    words = {countsOf(*study)};
    if (!outcome.isEmpty()) words << outcome;
  }
  const bool stale = basis && !(*basis == SearchBasis(document.design()));
  if (stale) words << tr("Ranks, costs or limits have changed since this search; search again.");
  status->setText(words.join(QLatin1Char(' ')));
  status->setToolTip(outcomeDetails.isEmpty() ? QString() : status->text() + QLatin1Char('\n') + outcomeDetails);
  status->setVisible(!words.isEmpty());
  QPalette palette = panel.palette();
  if (stale || none) palette.setColor(QPalette::WindowText, currentTheme().warning);
  status->setPalette(palette);
}

/// The step's time; where candidates differ in samples, that of one sample, to the nearest nanosecond.
Ns CandidatesPanel::Private::shownTime(Ns step, std::int64_t samples) const {
  return perSample ? dividedToNearest(step, std::max<std::int64_t>(1, samples)) : step;
}

void CandidatesPanel::Private::showPoints() {
  std::vector<ScatterPoint> points;
  for (int row = 0; row < model->rowCount(); ++row) {
    const Candidate& c = model->at(row);
    points.push_back({shownTime(c.step, c.samples), c.peak, c.onFront, model->fits(row), shownRow(row) >= 0, titleOf(c), 0, 1});
  }
  if (study) showRanks(model->all(), points);
  scatter->setPoints(std::move(points));
  scatter->setSelected(chosenRow());
}

void CandidatesPanel::Private::showCurrent() {
  const auto prediction = document.prediction();
  if (!prediction || !document.graph() || document.isPredicting()) return scatter->setCurrentPlan(std::nullopt);
  Bytes peak = 0;
  for (const RankMetrics& rank : prediction->ranks) peak = std::max(peak, rank.peakBytes);
  scatter->setCurrentPlan(TimeAndMemory{shownTime(prediction->step, samplesOf(document.design().request)), peak});
}

void CandidatesPanel::Private::hoverRow(int row) {
  scatter->setHovered(row);
  delegate->setHoveredRow(shownRow(row));
  table->viewport()->update();
}

void CandidatesPanel::Private::choose(int row) {
  const int shown = shownRow(row);
  if (shown < 0) return;
  table->setCurrentIndex(filter->index(shown, 0));
  table->scrollTo(filter->index(shown, 0));
}

void CandidatesPanel::Private::showStudy(const QString& path) {
  clear();
  reading->start(tr("Read study"), [this, path](JobControl&) -> std::function<void()> {
    auto read = std::make_shared<StudyPlans>(readStudy(path.toStdString()));
    return [this, read] { showPlans(std::move(*read)); };
  });
}

void CandidatesPanel::Private::showPlans(StudyPlans read) {
  clear();
  study = std::move(read);
  perSample = true;  // batches may differ
  scatter->setTimeTitle(tr("Time per sample"));
  filter->setShowsAll(true);
  model->set(study->candidates());
  table->resizeColumnsToContents();
  showPoints();
  refresh();
}

QString CandidatesPanel::Private::whyNotLoaded(int row) const {
  const auto graph = document.graph();
  const std::string file = graph && !graph->files.empty() ? graph->files.front() : std::string();
  return pw::gui::whyNotLoaded(*study, study->rows[static_cast<std::size_t>(row)].point, file);
}

void CandidatesPanel::Private::loadStudied(int row) {
  const StudyRow& plan = study->rows[static_cast<std::size_t>(row)];
  const auto graph = document.graph();
  outcome = whyNotLoaded(row);
  if (outcome.isEmpty()) {
    document.edit(tr("Load plan of the study"), [&](Design& design) {
      takeOver(model->at(row).request, design.request);
      takeStudied(*study, plan, *graph, design);
    });
  }
  showStatus();
}

void CandidatesPanel::Private::load(int row) {
  if (row < 0) return;
  if (study) return loadStudied(row);
  const PlanRequest wanted = model->at(row).request;
  document.edit(tr("Load candidate"), [&](Design& design) {
    takeOver(wanted, design.request);
    design.customRows = nullptr;
  });
}

// ---- The panel ----

CandidatesPanel::CandidatesPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Candidates"));
  d->build();
  d->connectAll();
  d->refresh();
}

CandidatesPanel::~CandidatesPanel() {
  for (QObject* worker : {static_cast<QObject*>(d->plans), static_cast<QObject*>(d->reading)}) {
    worker->disconnect(this);
    delete worker;  // waits for what still uses this object
  }
}

void CandidatesPanel::search() { d->start(); }

void CandidatesPanel::showStudy(const QString& path) { d->showStudy(path); }

bool CandidatesPanel::isSearching() const { return d->plans->isRunning(); }

bool CandidatesPanel::eventFilter(QObject* watched, QEvent* event) {
  if (watched == d->table->viewport() && event->type() == QEvent::Leave) d->hoverRow(-1);
  return QWidget::eventFilter(watched, event);
}

}  // namespace pw::gui
