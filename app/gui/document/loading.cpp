#include "app/gui/document/loading.h"

#include <algorithm>
#include <filesystem>
#include <future>

#include <fmt/format.h>

#include "app/gui/common/format.h"
#include "app/gui/document/cluster_title.h"
#include "app/gui/document/copies.h"
#include "app/gui/document/drawn.h"
#include "app/gui/document/dumps.h"
#include "app/gui/document/job_design.h"
#include "app/gui/document/project.h"
#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "backends/store/trace_blob.h"
#include "backends/traces/formats.h"
#include "backends/traces/import.h"
#include "engine/planning/first_plan.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/plan_settings.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/reduction_groups.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/plan/plan_fits.h"
#include "simulator/step/cost_table.h"
#include "simulator/timeline/fill.h"
#include "simulator/trace/executed.h"

namespace pw::gui {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestText = std::int64_t{1} << 30;  ///< of plans, projects and schedules, which are read whole

QString nameOf(const std::string& path) { return QString::fromStdString(fs::path(path).filename().string()); }

std::string extensionOf(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

std::string readText(const std::string& path) {
  std::error_code ignored;
  const auto bytes = fs::file_size(path, ignored);
  if (!ignored && bytes > static_cast<std::uintmax_t>(kLargestText)) {
    throw UsageError(path + " is larger than a plan, project or schedule can be (1 GiB); open a trace by a .json name.");
  }
  return readFile(path);
}

Design firstDesign(const ModelGraph& graph, const FirstPlan& first) {
  Design design;
  design.models = graph.files;
  design.cluster = first.cluster;
  PlanRequest& r = design.request;
  r.ranks = first.ranks;
  r.microbatches = 2 * r.ranks;
  r.microbatch = exportedBatch(graph);
  r.loss = defaultLoss(graph);
  r.begins = first.begins;
  if (first.recomputes) r.recompute = RecomputeFull();
  return design;
}

/// Estimated for `cluster`, or where that is empty, is no more, or does not hold the model, for a preset that does.
std::shared_ptr<Loaded> loadArchives(const std::vector<std::string>& paths, const std::string& cluster) {
  auto loaded = std::make_shared<Loaded>();
  loaded->hasDesign = true;
  auto graph = std::make_shared<const ModelGraph>(loadModel(paths));
  loaded->graph = graph;
  loaded->title = QString::fromStdString(graph->name);
  loaded->splitPoints = splitPoints(*graph, bindBatch(*graph, exportedBatch(*graph)));
  const FirstPlan first = [&] {
    try {
      if (const FirstPlan last = firstPlan(*graph, cluster); last.fits || cluster.empty()) return last;
    } catch (const UsageError&) {}  // the cluster used last is gone, or says less than this model needs: opening does not depend on it
    return firstPlan(*graph);
  }();
  loaded->design = firstDesign(*graph, first);
  const QString where = clusterTitle(first.cluster);
  if (!first.fits) {
    loaded->notes << translated("This model does not fit on %1 ranks of %2; choose more ranks, or another cluster, under Plan.")
                         .arg(first.ranks)
                         .arg(where);
  } else if (first.cluster != (cluster.empty() ? Design().cluster : cluster)) {
    const char* const how = first.recomputes
                                ? "Planned for %1 ranks of %2 with recomputation, the smallest preset that holds this model; "
                                  "choose another under Plan."
                                : "Planned for %1 ranks of %2, the smallest preset that holds this model; choose another under Plan.";
    loaded->notes << translated(how).arg(first.ranks).arg(where);
    loaded->otherClusters = first.others;
  }
  if (isLayerChain(*graph)) loaded->design.profile = std::make_shared<const Profile>(profileOf(*graph));
  return loaded;
}

/// Costs of a plan. Those that were estimated for a cluster that is found here are estimated again, so that they follow the design; others
/// stay as in the plan.
void takeCosts(const std::shared_ptr<const Plan>& plan, const ModelGraph& graph, Design& d) {
  d.profile = std::shared_ptr<const Profile>(plan, &plan->profile);
  const auto settings = costSettingsOf(*plan, graph);
  if (!settings) return;
  d.cluster = settings->cluster;
  if (!settings->isEstimated) return;
  d.precision = settings->precision;
  d.attention = settings->attention;
  if (settings->isAsEstimated) d.profile.reset();
}

std::shared_ptr<Loaded> loadPlan(const std::string& path) {
  auto plan = std::make_shared<const Plan>(parsePlan(readText(path), path));
  auto loaded = std::make_shared<Loaded>();
  loaded->hasDesign = true;
  loaded->title = nameOf(path);
  Design& d = loaded->design;
  const Shape shape = shapeOf(plan->schedule);
  d.request.schedule = plan->schedule.name;
  d.request.ranks = shape.ranks;
  d.request.microbatches = shape.microbatches;
  d.request.replicas = plan->replicas;
  d.request.microbatch = plan->microbatchSize;
  const std::int64_t full = plan->microbatchSize * plan->replicas * shape.microbatches;
  d.request.batch = plan->batch == full ? 0 : plan->batch;
  d.request.loss = plan->loss;
  if (plan->optimizer) {
    d.request.optimizer = plan->optimizer->update;
    d.request.zero1 = plan->optimizer->zero1;
  }
  d.request.begins = beginsOf(plan->partition);
  for (int r = 0; plan->cuts && r < plan->replicas; ++r)
    d.request.replicaBegins.push_back(beginsOf(plan->cuts->replicas[static_cast<std::size_t>(r)].partition));
  const auto generated = generatedAs(plan->schedule, plan->replicas);
  d.request.chunks = generated ? generated->chunks : std::max(1, shape.stages / std::max(1, shape.ranks));
  if (generated) {
    d.request.rankOrder = generated->rankOrder;
  } else {
    d.customRows = std::shared_ptr<const Schedule>(plan, &plan->schedule);
    d.source = path;
  }
  try {
    loaded->graph = std::make_shared<const ModelGraph>(loadModel(plan->modelFiles));
    requireFits(*plan, *loaded->graph);
    loaded->splitPoints = splitPoints(*loaded->graph, bindBatch(*loaded->graph, plan->microbatchSize));
    d.models = plan->modelFiles;
    takeCosts(plan, *loaded->graph, d);
    const auto recompute = recomputeOf(*plan, *loaded->graph);
    d.request.recompute = recompute.value_or(RecomputeNone());
    d.request.sharing = sharingOf(*plan, *loaded->graph, d.request);
    if (plan->certificate && d.customRows)
      d.certified = std::make_shared<const CertifiedOrder>(
          CertifiedOrder{d.request, d.profile, d.cluster, d.precision, d.attention, *plan->certificate});
    if (!recompute)
      loaded->notes << translated(
          "What the plan recomputes is a choice of its own that cannot be edited here; it is shown without recomputing.");
  } catch (const Error& e) {
    loaded->graph = nullptr;
    d.models.clear();
    d.customRows = std::shared_ptr<const Schedule>(plan, &plan->schedule);
    d.customCosts = std::shared_ptr<const CostTable>(plan, &plan->costs);
    d.source = path;
    loaded->notes << translated("Its splits cannot be moved without the model: %1").arg(QString::fromUtf8(e.what()));
  }
  return loaded;
}

std::shared_ptr<Loaded> loadSchedule(const std::string& path) {
  auto rows = std::make_shared<Schedule>(parseCsv(readText(path), fs::path(path).stem().string(), path));
  requireRunnable(path, *rows);
  if (!isLowered(*rows)) *rows = lower(*rows);
  auto loaded = std::make_shared<Loaded>();
  loaded->hasDesign = true;
  loaded->title = nameOf(path);
  Design& d = loaded->design;
  const Shape shape = shapeOf(*rows);
  d.request.schedule = rows->name;
  d.request.ranks = shape.ranks;
  d.request.chunks = std::max(1, shape.stages / std::max(1, shape.ranks));
  d.request.microbatches = shape.microbatches;
  d.source = path;
  loaded->schedule = std::make_shared<const Schedule>(computeOnly(*rows));
  d.customRows = std::move(rows);
  setDefaultTimes(d, {});
  loaded->notes << translated("A schedule has no times of its own: a forward is shown as 1 ms, a backward as 2 ms; set others under Plan.");
  return loaded;
}

/// The step shown first.
std::size_t stepShownFirst(const std::vector<ImportedStep>& steps) {
  std::vector<std::string> names;
  std::vector<Ns> durations;
  for (const ImportedStep& step : steps) {
    names.push_back(step.name);
    durations.push_back(durationOf(step.trace));
  }
  return typicalStep(names, durations);
}

std::shared_ptr<Loaded> loadTraces(const std::vector<std::string>& paths, const std::function<bool(std::int64_t, std::int64_t)>& progress) {
  auto imported = importTrace(paths, [&](std::uint64_t done, std::uint64_t all) {
    return !progress || progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(all));
  });
  if (!imported) return nullptr;
  auto loaded = std::make_shared<Loaded>();
  loaded->title = QString::fromStdString(imported->title);
  for (const std::string& note : imported->notes) loaded->notes << QString::fromStdString(note);
  loaded->chosen = stepShownFirst(imported->steps);
  for (ImportedStep& step : imported->steps) {
    auto measured = std::make_shared<Measured>();
    measured->title = QString::fromStdString(imported->steps.size() > 1 ? imported->title + " · " + step.name : imported->title);
    measured->step = static_cast<int>(loaded->measured.size());
    measured->reductions = reductionGroups(step.operations, step.trace.ranks, imported->replicas, imported->tensor);
    measured->trace = std::move(step.trace);
    auto metrics = std::async(std::launch::async, [&trace = measured->trace] { return metricsOf(trace); });  // each takes as long
    measured->timeline = timelineOf(measured->trace);
    const std::size_t copies = copiesIn(measured->timeline);
    measured->executed = copies > 1 ? executedSchedule(firstCopy(measured->trace, copies)) : executedSchedule(measured->trace);
    measured->metrics = metrics.get();
    for (const std::string& path : paths) measured->from.paths.push_back(absolutePath(path));
    measured->stepName = step.name;
    loaded->measured.push_back(std::move(measured));
  }
  return loaded;
}

/// The costs of a schedule without a model: those of its file, or what the design's own default times make of it.
void takeCustomCosts(const Design& fresh, Design& design) {
  if (fresh.defaultTimes) return setDefaultTimes(design, design.defaultTimes.value_or(DefaultTimes()));
  design.defaultTimes.reset();
  design.customCosts = fresh.customCosts;
}

/// Those that the project's model still has. `fresh`: with the rows of the project's schedule file.
void takePins(const Project& project, const Design& fresh, std::size_t nodes, Loaded& loaded) {
  QStringList lost;
  for (PinnedPlan pin : project.pins) {
    Design& design = pin.design;
    const std::vector<NodeId>& begins = design.request.begins;
    if (design.models != project.design.models || design.source != project.design.source ||
        (!begins.empty() && begins.back().index() >= nodes)) {
      lost << pin.name;
      continue;
    }
    if (!drawnNamed(design, design.request.schedule)) design.customRows = fresh.job ? nullptr : fresh.customRows;
    takeCustomCosts(fresh, design);
    design.job = fresh.job;
    if (fresh.job && !design.profile) design.profile = fresh.profile;
    loaded.pins.push_back(std::move(pin));
  }
  if (!lost.isEmpty())
    loaded.notes
        << translated("Pinned plans %1 are of another model or schedule file and are not restored.").arg(lost.join(QLatin1String(", ")));
}

/// The step of the trace that a project names. Without a plan the project is nothing without it; else a note says why it is not there.
/// False where it was stopped.
bool takeTrace(const Project& project, const std::function<bool(std::int64_t, std::int64_t)>& progress, Loaded& loaded) {
  if (project.trace.empty()) return true;
  const bool isAlone = project.design.models.empty() && project.design.source.empty();
  try {
    for (const std::string& path : project.trace) {
      if (!pathExists(path)) throw UsageError(path + ", the trace of this project, does not exist; put it back, or open it where it is.");
    }
    const auto trace = loadTraces(project.trace, progress);
    if (!trace) return false;
    loaded.measured = trace->measured;
    loaded.chosen =
        static_cast<std::size_t>(project.step) < trace->measured.size() ? static_cast<std::size_t>(project.step) : trace->chosen;
  } catch (const Error& e) {
    if (isAlone) throw;
    loaded.notes << QString::fromUtf8(e.what());
  }
  return true;
}

std::shared_ptr<Loaded> loadProject(const std::string& path, const std::function<bool(std::int64_t, std::int64_t)>& progress) {
  const Project project = parseProject(readText(path), path);
  std::shared_ptr<Loaded> loaded;
  if (project.job != JobOptions()) {
    const auto basis = readJob(project.job, {});
    loaded = planOfJob(basis);
    loaded->notes.clear();
  } else if (!project.design.source.empty()) {
    loaded = extensionOf(project.design.source) == ".csv" ? loadSchedule(project.design.source) : loadPlan(project.design.source);
  } else if (!project.design.models.empty()) {
    loaded = loadArchives(project.design.models, project.design.cluster);
  } else {
    loaded = std::make_shared<Loaded>();
    loaded->hasDesign = true;
  }
  const Design fresh = loaded->design;
  if (fresh.defaultTimes && project.design.defaultTimes) loaded->notes.clear();  // which says the usual ones
  loaded->design = project.design;
  loaded->design.job = fresh.job;
  if (fresh.job) loaded->design.profile = fresh.profile;
  std::vector<NodeId>& begins = loaded->design.request.begins;
  const std::size_t nodes = loaded->graph ? loaded->graph->nodes.size() : 0;
  if (loaded->graph && !begins.empty() && begins.back().index() >= nodes) {
    begins.clear();
    loaded->notes << translated("The project's splits lie outside its model, which has changed since; its stages are balanced anew.");
  }
  const bool isOther = drawnNamed(project.design, project.design.request.schedule) || (fresh.job && !project.isInOrderOfJob);
  loaded->design.customRows = isOther ? nullptr : fresh.customRows;
  takeCustomCosts(fresh, loaded->design);
  takePins(project, fresh, nodes, *loaded);
  if (!takeTrace(project, progress, *loaded)) return nullptr;
  loaded->title = project.unsaved ? project.unsaved->title : QString::fromStdString(fs::path(path).stem().string());
  loaded->store = project.store;
  loaded->run = project.run;
  loaded->runStep = project.step;
  loaded->view = project.view;
  loaded->project = project.unsaved ? project.unsaved->file : QString::fromStdString(absolutePath(path));
  return loaded;
}

std::string joinedTraceEndings() {
  std::string text;
  for (const std::string& ending : traceEndings()) text += (text.empty() ? "" : ", ") + ending;
  return text;
}

/// Says what it is, and where it is used.
[[noreturn]] void refuseKind(const std::string& path) {
  const FileKind kind = fileKindOf(path);
  throw UsageError(
      fmt::format("{} is {}, which is not opened here; {}.", path, nameOf(kind), useOf(kind, fs::path(path).filename().string())));
}

/// Of content that says nothing: by its name, or of JSON, in the hope that it is a trace.
std::shared_ptr<Loaded> loadByName(const std::vector<std::string>& paths, const std::function<bool(std::int64_t, std::int64_t)>& progress,
                                   const std::string& cluster) {
  const std::string& first = paths.front();
  if (isFolder(first)) return loadTraces(paths, progress);
  const std::string extension = extensionOf(first), head = headOf(first);
  if (head.empty()) throw UsageError(first + " is empty; choose another file.");
  if (extension == ".pt2") return loadArchives(paths, cluster);
  if (extension == ".csv") return loadSchedule(first);
  if (extension == ".pwproj") return loadProject(first, progress);
  if (head.starts_with("SQLite format 3")) static_cast<void>(RunStore(first, RunStore::Mode::ReadOnly).list());  // for what it refuses
  const auto mark = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  const bool isJson = mark != std::string::npos && (head[mark] == '{' || head[mark] == '[');
  if (isJson || head.starts_with("\x1f\x8b")) return loadTraces(paths, progress);  // or compressed
  throw UsageError("Unsupported file type: " + first +
                   "; open a model (.pt2), a layer table (.json, .csv), a plan or cluster (.json), a trace (" + joinedTraceEndings() +
                   "), a schedule (.csv), a project (.pwproj) or a run store or study (.db).");
}

}  // namespace

int stagesOf(const Design& design) {
  if (design.customRows) return static_cast<int>(design.customRows->placement.stages());
  const PlanRequest& r = design.request;
  if (const auto drawn = drawnOf(design); drawn && r.ranks == static_cast<int>(drawn->rows.size())) {
    const int stages = static_cast<int>(drawn->placement.stages());  // perhaps more on some ranks than on others
    if (r.chunks == std::max(1, stages / r.ranks)) return stages;
  }
  return r.ranks * (r.chunks > 0 ? r.chunks : usualChunks(r.schedule));
}

void setDefaultTimes(Design& design, const DefaultTimes& times) {
  design.defaultTimes = times;
  design.customCosts = std::make_shared<const CostTable>(costsOf(times, stagesOf(design)));
}

std::shared_ptr<Loaded> loadFiles(const std::vector<std::string>& paths, const std::function<bool(std::int64_t, std::int64_t)>& progress,
                                  const std::string& cluster) {
  if (paths.empty()) throw UsageError("No file was named; choose one to open.");
  for (const std::string& path : paths) {
    if (!pathExists(path)) throw UsageError(path + " does not exist; choose another file.");
  }
  if (paths.size() > 1) {  // a cluster beside what is planned for it
    std::vector<std::string> others;
    std::string given;
    for (const std::string& path : paths) {
      fileKindOf(path) == FileKind::Cluster ? void(given = absolutePath(path)) : others.push_back(path);
    }
    if (!given.empty() && !others.empty()) {
      static_cast<void>(loadCluster(given));  // for what it refuses
      auto loaded = loadFiles(others, progress, given);
      if (loaded && loaded->design.cluster != given)
        loaded->notes << translated("%1 was not taken; open it again once the rest is open.").arg(nameOf(given));
      return loaded;
    }
  }
  const std::string& first = paths.front();
  auto loaded = std::make_shared<Loaded>();
  switch (fileKindOf(first)) {
    case FileKind::Model:
    case FileKind::LayerTable: return loadArchives(paths, cluster);
    case FileKind::Plan: return loadPlan(first);
    case FileKind::Project: return loadProject(first, progress);
    case FileKind::Schedule: return loadSchedule(first);
    case FileKind::Trace: return loadTraces(paths, progress);
    case FileKind::Dump: return loadDumps(paths);
    case FileKind::Job: {
      const auto basis = readJob({.paths = {absolutePath(first)}}, progress);
      return basis ? planOfJob(basis) : nullptr;
    }
    case FileKind::Cluster:
      static_cast<void>(loadCluster(absolutePath(first)));
      loaded->cluster = QString::fromStdString(absolutePath(first));
      return loaded;
    case FileKind::StudyResults: loaded->study = QString::fromStdString(absolutePath(first)); return loaded;
    case FileKind::RunStore:
      static_cast<void>(RunStore(first, RunStore::Mode::ReadOnly).list());
      loaded->store = QString::fromStdString(absolutePath(first));
      return loaded;
    case FileKind::MeasuredLayers:
    case FileKind::Profile:
    case FileKind::Problem:
    case FileKind::Study: refuseKind(first);
    case FileKind::Unknown: break;
  }
  return loadByName(paths, progress, cluster);
}

}  // namespace pw::gui
