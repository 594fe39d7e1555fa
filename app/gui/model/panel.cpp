#include "app/gui/model/panel.h"

#include <QAction>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QSplitter>
#include <QStackedWidget>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <set>
#include <utility>

#include "app/gui/common/jobs.h"
#include "app/gui/common/theme.h"
#include "app/gui/common/work_bar.h"
#include "app/gui/document/document.h"
#include "app/gui/model/findings_view.h"
#include "app/gui/model/graph/graph_area.h"
#include "app/gui/model/handle_links.h"
#include "app/gui/model/layout_line.h"
#include "app/gui/model/margin.h"
#include "app/gui/model/module_finder.h"
#include "app/gui/model/parts/split_handle.h"
#include "app/gui/model/split_commands.h"
#include "app/gui/model/stage_list.h"
#include "app/gui/model/tree_area.h"
#include "app/gui/model/tree_view.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/report/split_report.h"

namespace pw::gui {
namespace {

constexpr int kRowsAboveFindings = 8;  ///< lines of text that the tree keeps: its header, four rows and a scroll bar

}  // namespace

struct ModelPanel::Private {
  Private(Document& doc, ModelPanel& panel);
  ~Private() { delete &pages; }
  Private(const Private&) = delete;
  Private& operator=(const Private&) = delete;

  void layOut();
  void connectTree();
  void connectGraph();
  void link(HandleLinks& handles);
  void showPage();

  // ---- Following the document ----
  void modelChanged();
  void designChanged();
  void predictionChanged();
  void makeTree();
  void follow();
  void followNow();
  void showTotals();
  void showArcs();
  void takeProfile();
  void report();
  void showFindings(std::vector<Finding> found);

  void say(const QString& sentence);
  void showMenu(int row, int split, const QPoint& global);

  Document& document;
  ModelPanel& q;
  TreeModel model;
  // Widgets inside `pages`, which is deleted before the objects they refer to.
  TreeView& view = *new TreeView(model);
  TreeArea& area = *new TreeArea(view);
  GraphArea& graphArea = *new GraphArea(document, model.tree(), model.findings());
  StageList& stages = *new StageList;
  QLabel& nothing = *new QLabel;
  QStackedWidget& pages = *new QStackedWidget;
  QWidget& emptyPage = *new QWidget;
  SplitCommands commands{document, view};
  HandleLinks links{document, commands, view.surface(), [this](NodeId node) { view.reveal(node); }};
  HandleLinks cutLinks{document, commands, graphArea.view().surface(), [this](NodeId node) { graphArea.view().reveal(node); }};
  ModuleFinder finder{model, view};
  QLabel notice;
  LayoutLine& layoutLine = *new LayoutLine;
  QAction graphAction;
  QToolButton findingsButton, graphButton;
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
  connectGraph();
  connect(&document, &Document::modelChanged, &q, [this] { modelChanged(); });
  connect(&document, &Document::designChanged, &q, [this] { designChanged(); });
  connect(&document, &Document::predictionChanged, &q, [this] { predictionChanged(); });
  soon.setSingleShot(true);
  soon.setInterval(kReadableMs);
  connect(&soon, &QTimer::timeout, &q, [this] { followNow(); });
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
  pages.addWidget(&graphArea);
  pages.addWidget(&emptyPage);
  auto* top = new QHBoxLayout;
  top->setContentsMargins(4, 4, 4, 4);
  top->addWidget(&finder, 1);
  top->addWidget(&graphButton);
  top->addWidget(&findingsButton);
  graphAction.setText(tr("Model as a &graph"));
  graphAction.setIconText(tr("Gr&aph"));
  graphAction.setToolTip(tr("Modules as a graph with what flows between them, instead of the tree"));
  graphAction.setCheckable(true);
  graphButton.setDefaultAction(&graphAction);
  graphButton.setAutoRaise(true);
  graphButton.setObjectName(QStringLiteral("graph"));
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
  const auto complain = [this](const QString& sentence) { say(sentence); };
  connect(&reporting, &Job::failed, &q, complain);
  connect(&commands, &SplitCommands::refused, &q, complain);
  connect(&commands, &SplitCommands::done, &q, [this] { say({}); });
  link(links);
  connect(&area.margin(), &Margin::handleAdded, &q, [this](SplitHandle* handle) { links.adopt(handle, area.margin().handles(), view); });
  const auto tip = [this, &begins = document.design().request.begins](int split) {
    const auto s = static_cast<std::size_t>(split);
    return s < begins.size() ? crossingText(document, s, commands.rules().name(begins[s])) : QString();
  };
  area.margin().setHandleTip(tip);
  graphArea.view().setHandleTip(tip);
}

void ModelPanel::Private::connectGraph() {
  GraphView& graphView = graphArea.view();
  connect(&graphAction, &QAction::toggled, &q, [this, &graphView](bool asGraph) {
    showPage();
    if (!graph || (!asGraph && graphView.current() < 0)) return;
    asGraph ? graphView.choose(view.currentRow()) : view.goTo(graphView.current());
  });
  connect(&graphView, &GraphView::splitRequested, &commands, &SplitCommands::splitBefore);
  connect(&graphView, &GraphView::removeRequested, &commands, &SplitCommands::removeBefore);
  connect(&graphView, &GraphView::findRequested, &q, [this] { q.find(); });
  connect(&graphView, &GraphView::menuRequested, &q, [this](int row, const QPoint& global) { showMenu(row, -1, global); });
  link(cutLinks);
  connect(&graphView, &GraphView::handleAdded, &q,
          [this, &graphView](SplitHandle* handle) { cutLinks.adopt(handle, graphView.handles(), graphView); });
  // What the field finds and the list of findings goes to, the graph shows too.
  connect(view.selectionModel(), &QItemSelectionModel::currentChanged, &q, [this](const QModelIndex& index) {
    if (graphAction.isChecked() && index.isValid()) graphArea.view().choose(model.rowOf(index));
  });
}

void ModelPanel::Private::link(HandleLinks& handles) {
  connect(&handles, &HandleLinks::dragStarted, &q, [this] { say({}); });
  connect(&handles, &HandleLinks::menuRequested, &q, [this](int split, const QPoint& global) { showMenu(-1, split, global); });
}

void ModelPanel::Private::showPage() {
  const bool asGraph = graphAction.isChecked();
  QWidget& page = asGraph ? static_cast<QWidget&>(graphArea) : area;
  pages.setCurrentWidget(graph ? &page : &emptyPage);
  q.setFocusProxy(asGraph ? static_cast<QWidget*>(&graphArea.view()) : &view);
}

// ---- Following the document ----

/// In the background: a large model takes a moment.
void ModelPanel::Private::report() {
  reporting.cancel();
  if (!graph || isLayerChain(*graph)) return;  // a table of times has no operators to find anything in
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
  graphArea.factsChanged();
  view.viewport()->update();
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
  graphArea.treeChanged(sameModel);
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
  if (!sameGraph || !rowsBeginAt(model.tree(), [&] {
        std::vector<NodeId> places;
        for (const SplitPoint& point : document.splitPoints()) places.push_back(point.begin);
        return places;
      }())) {
    links.drag().end(false);
    cutLinks.drag().end(false);
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
  graphAction.setEnabled(hasTree);
  showPage();
  finder.setEnabled(hasTree);
  designChanged();
}

void ModelPanel::Private::designChanged() {
  for (SplitDrag* active : {&links.drag(), &cutLinks.drag()}) {
    if (active->isActive() && !document.isDragging()) active->end(false);  // undone meanwhile
  }
  std::vector<NodeId> begins;
  if (graph) begins = document.design().request.begins;
  if (!begins.empty() && begins.back().index() >= graph->nodes.size()) begins.clear();  // of another model
  if (!rowsBeginAt(model.tree(), begins)) makeTree();
  const std::vector<NodeId> before = model.begins();
  Margin& margin = area.margin();
  const bool hadFocus = std::any_of(margin.handles().begin(), margin.handles().end(), [](SplitHandle* h) { return h->hasFocus(); });
  model.setBegins(begins);
  if (!links.drag().isActive() && !cutLinks.drag().isActive()) {
    // A split that moved into a collapsed row expands it; a row collapsed by hand stays collapsed.
    std::vector<int> hidden;
    for (const NodeId node : begins) {
      if (!std::binary_search(before.begin(), before.end(), node) && !view.visibleRows().isBetweenRows(node))
        hidden.push_back(model.tree().rowOfNode[node.index()]);
    }
    for (const int row : hidden) view.openAround(row);
  }
  view.updateSplits(before, begins);
  std::vector<QString> names;
  names.reserve(begins.size());
  for (const NodeId node : begins) names.push_back(commands.rules().name(node));
  margin.setSplits(begins, names);
  graphArea.setSplits(begins, names, commands.rules().points());
  layoutLine.setBegins(begins, !document.design().request.replicaBegins.empty());  // also during a drag
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
  followNow();
}

void ModelPanel::Private::followNow() {
  showTotals();
  showArcs();
  graphArea.follow();
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
    graphArea.factsChanged();
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
    graphAction.isChecked() ? graphArea.fillMenu(menu, row) : view.fillMenu(menu, row);
  }
  menu.exec(global);
}

ModelPanel::ModelPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(document, *this)) {
  setAccessibleName(tr("Model"));
}

ModelPanel::~ModelPanel() = default;
void ModelPanel::find() { d->finder.edit(); }
QAction* ModelPanel::graphAction() { return &d->graphAction; }
void ModelPanel::balanceSplits(Balance by) { d->commands.balanceSplits(by); }

void ModelPanel::cancel() { d->commands.job().cancel(); }
bool ModelPanel::isIdle() const { return !d->reporting.isRunning(); }

}  // namespace pw::gui
