#include "app/gui/model/panel.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QSplitter>
#include <QStackedWidget>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/common/work_bar.h"
#include "app/gui/document/document.h"
#include "app/gui/model/findings_view.h"
#include "app/gui/model/layout_line.h"
#include "app/gui/model/margin.h"
#include "app/gui/model/module_finder.h"
#include "app/gui/model/split_commands.h"
#include "app/gui/model/split_drag.h"
#include "app/gui/model/split_handle.h"
#include "app/gui/model/stage_list.h"
#include "app/gui/model/tree_area.h"
#include "app/gui/model/tree_view.h"
#include "simulator/partition/split.h"
#include "simulator/report/split_report.h"

namespace pw::gui {
namespace {

constexpr int kRowsAboveFindings = 8;  ///< lines of text that the tree keeps: its header, four rows and a scroll bar

/// What identifies a row when the tree is rebuilt.
using RowKey = std::pair<std::string, int>;
RowKey keyOf(const CallRow& row) {
  return {row.isModule ? row.path : row.path + ":" + row.label, row.isModule ? row.call : row.firstNode.value};
}

}  // namespace

struct ModelPanel::Private {
  Private(Document& doc, ModelPanel& panel);
  ~Private() { delete &pages; }
  Private(const Private&) = delete;
  Private& operator=(const Private&) = delete;

  void layOut();
  void connectTree();
  void adoptHandle(SplitHandle* handle);

  // ---- Following the document ----
  void modelChanged();
  void designChanged();
  void predictionChanged();
  void makeTree();
  void follow();
  void showTotals();
  void showArcs();
  void takeProfile();
  void report();
  void showFindings(std::vector<Finding> found);
  [[nodiscard]] bool rowsBeginAt(const std::vector<NodeId>& begins) const;

  void say(const QString& sentence);
  void showMenu(int row, int split, const QPoint& global);

  Document& document;
  ModelPanel& q;
  TreeModel model;
  // Widgets inside `pages`, which is deleted before the objects they refer to.
  TreeView& view = *new TreeView(model);
  TreeArea& area = *new TreeArea(view);
  StageList& stages = *new StageList;
  QLabel& nothing = *new QLabel;
  QStackedWidget& pages = *new QStackedWidget;
  QWidget& emptyPage = *new QWidget;
  SplitCommands commands{document, view};
  SplitDrag drag{document, view};
  ModuleFinder finder{model, view};
  QLabel notice;
  LayoutLine& layoutLine = *new LayoutLine;
  QToolButton findingsButton;
  FindingsView findings;
  Job reporting;
  QTimer soon;  ///< shows a drag's totals and arcs

  std::shared_ptr<const ModelGraph> graph;
  std::shared_ptr<const Profile> profile;
  std::unique_ptr<CostSums> sums;
  Readers readers;
};

ModelPanel::Private::Private(Document& doc, ModelPanel& panel) : document(doc), q(panel) {
  layOut();
  connectTree();
  connect(&document, &Document::modelChanged, &q, [this] { modelChanged(); });
  connect(&document, &Document::designChanged, &q, [this] { designChanged(); });
  connect(&document, &Document::predictionChanged, &q, [this] { predictionChanged(); });
  soon.setSingleShot(true);
  soon.setInterval(kReadableMs);
  connect(&soon, &QTimer::timeout, &q, [this] {
    showTotals();
    showArcs();
  });
  modelChanged();
}

void ModelPanel::Private::layOut() {
  notice.setAccessibleName(tr("Notice"));
  notice.setWordWrap(true);
  notice.setObjectName(QStringLiteral("notice"));
  notice.setContentsMargins(6, 4, 6, 4);
  notice.hide();
  nothing.setWordWrap(true);
  nothing.setContentsMargins(12, 12, 12, 12);
  nothing.setObjectName(QStringLiteral("nothing"));
  auto* emptyLayout = new QVBoxLayout(&emptyPage);
  emptyLayout->setContentsMargins(0, 0, 0, 0);
  emptyLayout->addWidget(&nothing);
  emptyLayout->addWidget(&stages, 1);
  emptyLayout->addStretch(0);
  pages.addWidget(&area);
  pages.addWidget(&emptyPage);
  auto* top = new QHBoxLayout;
  top->setContentsMargins(4, 4, 4, 4);
  top->addWidget(&finder, 1);
  top->addWidget(&findingsButton);
  findingsButton.setCheckable(true);
  findingsButton.hide();
  findings.hide();
  findingsButton.setAutoRaise(true);
  findingsButton.setObjectName(QStringLiteral("findings"));
  findingsButton.setToolTip(tr("What to know before splitting this model or its batch"));
  auto* layout = new QVBoxLayout(&q);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addLayout(top);
  auto* parts = new QSplitter(Qt::Vertical);  // so that a low window keeps some rows of the tree above the findings
  parts->setChildrenCollapsible(false);
  parts->addWidget(&pages);
  parts->addWidget(&findings);
  parts->setStretchFactor(0, 3);
  parts->setStretchFactor(1, 1);
  pages.setMinimumHeight(kRowsAboveFindings * pages.fontMetrics().height());
  layout->addWidget(parts, 1);
  layout->addWidget(&layoutLine);
  layout->addWidget(new WorkBar(commands.job()));
  layout->addWidget(&notice);
  q.setFocusProxy(&view);
}

void ModelPanel::Private::connectTree() {
  connect(&view, &TreeView::splitRequested, &commands, &SplitCommands::splitBefore);
  connect(&view, &TreeView::removeRequested, &commands, &SplitCommands::removeBefore);
  connect(&view, &TreeView::findRequested, &q, [this] { q.find(); });
  connect(&view, &TreeView::menuRequested, &q, [this](int row, const QPoint& global) { showMenu(row, -1, global); });
  connect(&findingsButton, &QToolButton::toggled, &findings, &QWidget::setVisible);
  connect(&findings, &FindingsView::chosen, &q,
          [this](int finding) { view.goTo(model.findings().rowOf(static_cast<std::size_t>(finding))); });
  connect(&reporting, &Job::failed, &q, [this](const QString& sentence) { say(sentence); });
  connect(&commands, &SplitCommands::refused, &q, [this](const QString& sentence) { say(sentence); });
  connect(&commands, &SplitCommands::done, &q, [this] { say({}); });
  connect(&drag, &SplitDrag::refusalChanged, &q, [this](bool refused) {
    for (SplitHandle* handle : area.margin().handles()) handle->setRefused(refused && handle->isDragged());
  });
  connect(&area.margin(), &Margin::handleAdded, &q, [this](SplitHandle* handle) { adoptHandle(handle); });
  area.margin().setHandleTip([this](int split) {
    const auto& begins = document.design().request.begins;
    const auto s = static_cast<std::size_t>(split);
    return s < begins.size() ? crossingText(document, s, commands.rules().name(begins[s])) : QString();
  });
}

void ModelPanel::Private::adoptHandle(SplitHandle* handle) {
  connect(handle, &SplitHandle::dragStarted, &q, [this](int split) {
    say({});
    drag.begin(commands.rules(), static_cast<std::size_t>(split));
  });
  connect(handle, &SplitHandle::dragged, &q,
          [this](int, const QPoint& global) { drag.moveTo(view.viewport()->mapFromGlobal(global).y()); });
  connect(handle, &SplitHandle::dragEnded, &q, [this](int, bool keep) { drag.end(keep); });
  connect(handle, &SplitHandle::stepped, &q,
          [this](int split, int direction) { commands.step(static_cast<std::size_t>(split), direction); });
  // After the event that requests it, because the handle itself may be deleted.
  connect(
      handle, &SplitHandle::removed, &q, [this](int split) { commands.remove(static_cast<std::size_t>(split)); }, Qt::QueuedConnection);
  connect(handle, &SplitHandle::focused, &q, [this](int split) {
    const auto& begins = document.design().request.begins;
    if (static_cast<std::size_t>(split) < begins.size()) view.reveal(begins[static_cast<std::size_t>(split)]);
  });
  connect(
      handle, &SplitHandle::menuRequested, &q, [this](int split, const QPoint& global) { showMenu(-1, split, global); },
      Qt::QueuedConnection);
  const auto& handles = area.margin().handles();
  setTabOrder(handles.size() > 1 ? static_cast<QWidget*>(handles[handles.size() - 2]) : &view, handle);
}

// ---- Following the document ----

/// In the background: a large model takes a moment.
void ModelPanel::Private::report() {
  reporting.cancel();
  if (!graph) return;
  reporting.start(tr("Report on the model"), [this, of = graph](JobControl&) -> std::function<void()> {
    return [this, found = splitReport(*of)] { showFindings(found); };
  });
}

void ModelPanel::Private::showFindings(std::vector<Finding> found) {
  const auto count = static_cast<int>(found.size());
  findingsButton.setText(count == 1 ? tr("1 finding") : tr("%1 findings").arg(count));
  findingsButton.setVisible(count > 0);
  findings.setFindings(found, graph ? QString::fromStdString(graph->name) : QString());
  findings.setVisible(count > 0 && findingsButton.isChecked());
  model.setFindings(std::move(found));
  view.viewport()->update();
}

bool ModelPanel::Private::rowsBeginAt(const std::vector<NodeId>& begins) const {
  const CallTree& tree = model.tree();
  return std::all_of(begins.begin(), begins.end(), [&](NodeId node) {
    if (node.index() >= tree.rowOfNode.size()) return true;
    return tree.row(tree.rowOfNode[node.index()]).firstNode == node;
  });
}

void ModelPanel::Private::makeTree() {
  const CallTree& old = model.tree();
  const bool sameModel =
      graph && document.graph() && graph->name == document.graph()->name && graph->nodes.size() == document.graph()->nodes.size();
  std::set<RowKey> open;
  RowKey current;
  for (int r = 0; sameModel && r < old.size(); ++r) {
    if (view.isExpanded(model.indexOf(r))) open.insert(keyOf(old.row(r)));
  }
  const bool hadCurrent = sameModel && view.currentRow() >= 0;
  if (hadCurrent) current = keyOf(old.row(view.currentRow()));
  graph = document.graph();
  CallTree tree;
  if (graph) {
    std::set<NodeId> cuts(document.design().request.begins.begin(), document.design().request.begins.end());
    for (const SplitPoint& point : document.splitPoints()) cuts.insert(point.begin);
    tree = callTree(*graph, {cuts.begin(), cuts.end()});
    setCosts(tree, profile.get());
  }
  model.setTree(std::move(tree));
  if (sameModel) {
    for (int r = 0; r < model.tree().size(); ++r) {
      const RowKey key = keyOf(model.tree().row(r));
      if (open.contains(key)) view.open(r);
      if (hadCurrent && key == current) view.setCurrentIndex(model.indexOf(r));
    }
  } else {
    for (const int r : openAtFirst(model.tree())) view.open(r);
    if (model.tree().size() > 0) view.setCurrentIndex(model.indexOf(0));
  }
}

void ModelPanel::Private::modelChanged() {
  const bool sameGraph = graph == document.graph();
  if (!sameGraph || !rowsBeginAt([&] {
        std::vector<NodeId> places;
        for (const SplitPoint& point : document.splitPoints()) places.push_back(point.begin);
        return places;
      }())) {
    drag.end(false);
    if (!sameGraph) readers = document.graph() ? Readers(*document.graph()) : Readers();
    if (!sameGraph) takeProfile();
    if (!sameGraph) showFindings({});
    makeTree();
    if (!sameGraph) report();
    finder.refresh();
  }
  if (!sameGraph) layoutLine.setModel(document.design().job ? nullptr : graph.get());  // a job's layers are parts of its stages
  commands.setRules(graph ? SplitRules(graph, document.splitPoints(), document.design().request.microbatch) : SplitRules());
  const bool hasTree = graph != nullptr;
  pages.setCurrentWidget(hasTree ? static_cast<QWidget*>(&area) : &emptyPage);
  finder.setEnabled(hasTree);
  designChanged();
}

void ModelPanel::Private::designChanged() {
  if (drag.isActive() && !document.isDragging()) drag.end(false);  // undone meanwhile
  std::vector<NodeId> begins;
  if (graph) begins = document.design().request.begins;
  if (!begins.empty() && begins.back().index() >= graph->nodes.size()) begins.clear();  // of another model
  if (!rowsBeginAt(begins)) makeTree();
  const std::vector<NodeId> before = model.begins();
  Margin& margin = area.margin();
  const bool hadFocus = std::any_of(margin.handles().begin(), margin.handles().end(), [](SplitHandle* h) { return h->hasFocus(); });
  model.setBegins(begins);
  if (!drag.isActive()) {  // a split that moved into a collapsed row expands it; a row collapsed by hand stays collapsed
    std::vector<int> hidden;
    for (const NodeId node : begins) {
      if (!std::binary_search(before.begin(), before.end(), node) && !view.visibleRows().isBetweenRows(node))
        hidden.push_back(model.tree().rowOfNode[node.index()]);
    }
    for (const int row : hidden) view.openAround(row);
  }
  view.updateSplits(before, begins);
  std::vector<QString> names;
  for (const NodeId node : begins) names.push_back(commands.rules().name(node));
  margin.setSplits(begins, names);
  layoutLine.setBegins(begins);  // also during a drag
  if (hadFocus && std::none_of(margin.handles().begin(), margin.handles().end(), [](SplitHandle* h) { return h->hasFocus(); }))
    view.setFocus();
  follow();
}

/// Immediately or, during a drag, only as often as it can be read, so that the time goes to the timeline.
void ModelPanel::Private::follow() {
  if (document.isDragging()) {
    if (!soon.isActive()) soon.start();
    return;
  }
  soon.stop();
  showTotals();
  showArcs();
}

void ModelPanel::Private::takeProfile() {
  profile = document.profile();
  const bool fits = profile && document.graph() && profile->nodes.size() == document.graph()->nodes.size();
  sums = fits ? std::make_unique<CostSums>(*profile) : nullptr;
}

void ModelPanel::Private::showTotals() {
  const std::vector<StageTotals> totals = stageTotals(document, sums.get());
  graph ? area.margin().setStages(totals) : stages.setStages(totals);
  if (graph) return;
  stages.setVisible(!totals.empty());
  nothing.setText(totals.empty() ? tr("No model is open. Open a .pt2 to see its layers and place splits.")
                                 : tr("This schedule has no model, so there are no layers or splits to show; open a .pt2 for that."));
}

void ModelPanel::Private::predictionChanged() {
  if (profile != document.profile()) {
    takeProfile();
    model.setProfile(profile.get());
  }
  follow();
}

void ModelPanel::Private::showArcs() {
  const auto prediction = document.prediction();
  if (!graph || !prediction || !isOf(prediction->priced.partition, model.begins())) {
    if (!graph || !prediction) area.margin().setArcs({});
    return;  // of other splits: the next one is pending
  }
  area.margin().setArcs(arcsOf(*graph, readers, prediction->priced.partition, prediction->priced.sharing, wiringOf(document)));
}

void ModelPanel::Private::say(const QString& sentence) {
  QPalette palette = q.palette();
  palette.setColor(QPalette::WindowText, currentTheme().error);
  notice.setPalette(palette);
  notice.setText(sentence);
  notice.setVisible(!sentence.isEmpty());
}

void ModelPanel::Private::showMenu(int row, int split, const QPoint& global) {
  QMenu menu(&q);
  commands.fillMenu(menu, row, split);
  if (row >= 0) {
    menu.addSeparator();
    menu.addAction(tr("Expand all inside"), &q, [this, row] { view.expandRecursively(model.indexOf(row)); });
    menu.addAction(tr("Collapse to layers"), &q, [this] {
      view.collapseAll();
      for (const int r : openAtFirst(model.tree())) view.open(r);
    });
    menu.addAction(tr("Copy name"), &q,
                   [this, row] { QApplication::clipboard()->setText(QString::fromStdString(model.tree().row(row).path)); });
  }
  menu.exec(global);
}

ModelPanel::ModelPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(document, *this)) {
  setAccessibleName(tr("Model"));
}

ModelPanel::~ModelPanel() = default;

void ModelPanel::find() { d->finder.edit(); }

void ModelPanel::cancel() { d->commands.job().cancel(); }

}  // namespace pw::gui
