#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "backends/store/trace_blob.h"
#include "engine/planning/inputs/limits.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "simulator/costs/cluster_name.h"
#include "simulator/text/json_part.h"
#include "simulator/text/json_text.h"

namespace pw::gui {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;

Json beginsJson(const std::vector<NodeId>& begins) {
  Json j = Json::array();
  for (const NodeId begin : begins) j.push_back(begin.value);
  return j;
}

Json requestJson(const PlanRequest& r) {
  Json j{{"schedule", r.schedule},
         {"ranks", r.ranks},
         {"chunks", r.chunks},
         {"microbatches", r.microbatches},
         {"replicas", r.replicas},
         {"microbatch", r.microbatch},
         {"batch", r.batch},
         {"begins", beginsJson(r.begins)},
         {"loss", toString(r.loss)},
         {"recompute", wordsOf(r.recompute)},
         {"optimizer", {{"name", std::string(factsOf(r.optimizer.kind).name)}, {"momentum", r.optimizer.momentum}}},
         {"zero1", r.zero1},
         {"memory_limit", r.memoryLimit}};
  for (const auto& begins : r.replicaBegins) j["replica_begins"].push_back(beginsJson(begins));
  for (const Rank rank : r.rankOrder) j["rank_order"].push_back(rank.value);
  if (r.sharing) j["sharing"] = std::string(nameOf(*r.sharing));
  return j;
}

Json jobJson(const JobOptions& from) {
  Json j = Json::object();
  if (!from.paths.empty()) j["paths"] = from.paths;
  if (!from.store.empty()) j["store"] = from.store;
  if (from.run) j["run"] = from.run->value;
  return j;
}

std::string textOr(const JsonPart& j, const std::string& key) { return j.has(key) ? j[key].as<std::string>() : std::string(); }

Sharing sharingOf(const std::string& text, const JsonDocument& document) {
  if (const auto sharing = valueNamed<Sharing>(text)) return *sharing;
  document.fail(fmt::format("`sharing` is \"{}\", neither replicate nor transmit", text));
}

JobOptions parseJobSource(const JsonPart& j, const JsonDocument& document) {
  JobOptions from;
  if (j.has("paths")) from.paths = j["paths"].listOf<std::string>();
  from.store = textOr(j, "store");
  if (j.has("run")) {
    const int id = j["run"].within<int>(0, 1 << 30);
    if (id > 0) from.run = RunId(id);
  }
  if (from.paths.empty() == from.store.empty()) document.fail("`job` names neither `paths` nor a `store`, or both");
  return from;
}

/// Projects of version 0.1 have the copies of each parameter that the state takes: none SGD, one SGD with momentum, two AdamW.
OptimizerSpec optimizerOf(const JsonPart& j, const JsonDocument& document) {
  OptimizerSpec optimizer;
  if (!j.has("optimizer")) {
    const int copies = j["optimizer_copies"].within<int>(0, 8);
    if (copies == 1) optimizer.momentum = 0.9;
    if (copies > 1) optimizer.kind = OptimizerSpec::Kind::AdamW;
    return optimizer;
  }
  const JsonPart part = j["optimizer"];
  const auto known = part["name"].as<std::string>();
  const auto* found = std::ranges::find(kOptimizers, known, &OptimizerFacts::name);
  if (found == kOptimizers.end()) document.fail(fmt::format("`optimizer` is \"{}\", none of {}", known, optimizerNames(", ")));
  optimizer.kind = found->kind;
  optimizer.momentum = part["momentum"].as<double>();
  if (!(optimizer.momentum >= 0 && optimizer.momentum < 1) || (optimizer.momentum != 0 && !found->hasMomentum))
    document.fail(fmt::format("`optimizer` has a momentum of {}, which {} cannot have", optimizer.momentum, known));
  return optimizer;
}

std::vector<std::shared_ptr<const Schedule>> parseDrawn(const JsonPart& j, const std::string& source, const JsonDocument& document) {
  std::vector<std::shared_ptr<const Schedule>> drawn;
  for (std::size_t i = 0; i < j.size(); ++i) {
    const auto name = j[i]["name"].as<std::string>();
    auto schedule =
        std::make_shared<Schedule>(parseCsv(j[i]["csv"].as<std::string>(), name, fmt::format("Schedule {} in {}", name, source)));
    if (isLowered(*schedule)) document.fail(fmt::format("schedule {} has messages, which a drawn one has not", name));
    if (const auto problems = check(*schedule); !problems.empty()) document.fail("schedule " + refusalOf(name, problems.front()));
    drawn.push_back(std::move(schedule));
  }
  return drawn;
}

Json runJson(const RunName& run) {
  Json j{{"id", run.id.value}};
  if (!run.startedAt.empty()) j["started_at"] = run.startedAt;
  return j;
}

RunName parseRun(const JsonPart& j) { return {RunId(j["id"].within<int>(1, 1 << 30)), textOr(j, "started_at")}; }

/// Where the bubble of a note is, beside its block.
constexpr const char *kBefore = "before", *kAfter = "after";

Json notesJson(const std::vector<Note>& notes) {
  Json all = Json::array();
  for (const Note& note : notes) {
    Json& j = all.emplace_back(Json{{"text", note.text}, {"time_ns", note.time}});
    if (note.run) j["run"] = runJson(*note.run);
    if (!note.trace.empty()) j["trace"] = note.trace;
    if (!note.pinned.empty()) j["pinned"] = note.pinned;
    if (!note.block) continue;
    const SpanTag& tag = note.block->tag;
    j["block"] = {{"rank", note.block->rank.value}, {"kind", std::string(nameOf(tag.kind))},
                  {"stage", tag.stage.value},       {"microbatch", tag.microbatch.value},
                  {"peer", tag.peer.value},         {"measured", note.block->isMeasured}};
    if (note.place != Note::Place::Block) j["block"]["bubble"] = note.place == Note::Place::BubbleBefore ? kBefore : kAfter;
  }
  return all;
}

std::vector<Note> parseNotes(const JsonPart& j, const JsonDocument& document) {
  std::vector<Note> notes;
  if (j.size() > kMostNotes) document.fail(fmt::format("it has {} notes, more than {}", j.size(), kMostNotes));
  for (std::size_t i = 0; i < j.size(); ++i) {
    Note& note = notes.emplace_back();
    note.text = noteText(QString::fromStdString(j[i]["text"].as<std::string>()));
    note.time = j[i]["time_ns"].within<Ns>(0, kLatestNote.value);
    if (j[i].has("run")) note.run = parseRun(j[i]["run"]);
    if (j[i].has("trace")) note.trace = j[i]["trace"].listOf<std::string>();
    note.pinned = textOr(j[i], "pinned");
    if (!j[i].has("block")) continue;
    const JsonPart block = j[i]["block"];
    const auto kind = valueNamed<SpanKind>(block["kind"].as<std::string>());
    if (!kind) document.fail(fmt::format("note {} is at a block of unknown kind \"{}\"", i, block["kind"].as<std::string>()));
    note.block = {block["measured"].as<bool>(),
                  Rank(block["rank"].within<int>(0, kMaxRanks)),
                  {*kind, Stage(block["stage"].within<int>(-1, kMaxStages)),
                   Microbatch(block["microbatch"].within<int>(-1, kMaxMicrobatches)), Rank(block["peer"].within<int>(-1, kMaxRanks))}};
    if (!block.has("bubble")) continue;
    const auto bubble = block["bubble"].as<std::string>();
    if (bubble != kBefore && bubble != kAfter)
      document.fail(fmt::format("note {} is at a bubble \"{}\" its block, neither before nor after", i, bubble));
    note.place = bubble == kBefore ? Note::Place::BubbleBefore : Note::Place::BubbleAfter;
  }
  return notes;
}

std::vector<NodeId> beginsIn(const JsonPart& j) {
  std::vector<NodeId> begins = j.listOf<NodeId>();
  NodeId before(0);
  for (const NodeId begin : begins) {
    if (begin <= before) j.fail("is not a list of ascending nodes after the first");
    before = begin;
  }
  return begins;
}

PlanRequest parseRequest(const JsonPart& j, const JsonDocument& document) {
  PlanRequest r;
  r.schedule = j["schedule"].as<std::string>();
  r.ranks = j["ranks"].within<int>(1, kMaxRanks);
  r.chunks = j["chunks"].within<int>(0, kMaxStages);
  if (std::int64_t{r.ranks} * std::max(1, r.chunks) > kMaxStages)
    document.fail(fmt::format("{} ranks with {} chunks have more than {} stages", r.ranks, r.chunks, kMaxStages));
  r.microbatches = j["microbatches"].within<int>(1, kMaxMicrobatches);
  r.replicas = j["replicas"].within<int>(1, kMaxReplicas);
  r.microbatch = j["microbatch"].within(1, kMostBatchSamples);
  r.batch = j["batch"].within(0, kMostBatchSamples);
  r.begins = beginsIn(j["begins"]);
  if (j.has("replica_begins")) {
    r.replicaBegins = j["replica_begins"].list(beginsIn);
    const bool isOfAll = r.replicaBegins.size() == static_cast<std::size_t>(r.replicas) &&
                         std::ranges::all_of(r.replicaBegins, [&](const auto& own) { return own.size() == r.begins.size(); });
    if (!isOfAll) document.fail("`replica_begins` does not say where each replica's stages begin");
  }
  const Answer<Loss> loss = tryLoss(j["loss"].as<std::string>());
  if (!loss) document.fail(loss.refusal().why);
  r.loss = *loss;
  r.recompute = parseRecompute(j["recompute"].listOf<std::string>());
  r.optimizer = optimizerOf(j, document);
  r.memoryLimit = j["memory_limit"].within<Bytes>(0, std::int64_t{1} << 60);
  if (j.has("zero1")) r.zero1 = j["zero1"].as<bool>();
  if (j.has("rank_order")) r.rankOrder = j["rank_order"].listOf<Rank>();
  if (j.has("sharing")) r.sharing = sharingOf(j["sharing"].as<std::string>(), document);
  return r;
}

Json defaultTimesJson(const DefaultTimes& times) {
  return {{"forward_ns", times.forward}, {"backward_ns", times.backward}, {"input_ns", times.input}, {"weight_ns", times.weight}};
}

DefaultTimes parseDefaultTimes(const JsonPart& j) {
  const auto time = [&](const char* key) { return j[key].within<Ns>(1, kLongestDefault.value); };
  return {time("forward_ns"), time("backward_ns"), time("input_ns"), time("weight_ns")};
}

/// What a project says of its design, and of those that are pinned.
void addDesign(Json& j, const Design& d) {
  j["models"] = d.models;
  j["request"] = requestJson(d.request);
  j["cluster"] = clusterNameJson(d.cluster);
  if (d.precision != DType::Unknown) j["precision"] = std::string(precisionName(d.precision));
  if (d.attention != Attention::AsTraced) j["attention"] = std::string(nameOf(d.attention));
  if (d.profile && !d.job) j["profile"] = ownJson(pw::toJson(*d.profile));
  if (!d.source.empty()) j["source"] = d.source;
  if (d.defaultTimes && *d.defaultTimes != DefaultTimes()) j["default_times"] = defaultTimesJson(*d.defaultTimes);
  if (d.job) j["job"] = jobJson(d.job->from);
  if (d.job && d.customRows) j["job"]["own_order"] = true;
  for (const auto& drawn : d.drawn) j["schedules"].push_back({{"name", drawn->name}, {"csv", toCsv(*drawn)}});
}

Design parseDesign(const JsonPart& j, const std::string& source, const JsonDocument& document) {
  Design design;
  design.models = j["models"].listOf<std::string>();
  design.request = parseRequest(j["request"], document);
  design.cluster = clusterNameIn(j["cluster"], source);
  if (j.has("precision")) {
    const auto precision = precisionNamed(j["precision"].as<std::string>());
    if (!precision) document.fail("`precision` is not traced, bf16, fp16 or fp8");
    design.precision = *precision;
  }
  if (j.has("attention")) {
    const auto attention = valueNamed<Attention>(j["attention"].as<std::string>());
    if (!attention) document.fail("`attention` is not traced, fused or unfused");
    design.attention = *attention;
  }
  if (j.has("profile"))
    design.profile = std::make_shared<const Profile>(parseProfile(j["profile"].json().dump(), "The profile in " + source));
  design.source = textOr(j, "source");
  if (j.has("default_times")) design.defaultTimes = parseDefaultTimes(j["default_times"]);
  if (j.has("schedules")) design.drawn = parseDrawn(j["schedules"], source, document);
  return design;
}

/// A pinned plan has the measured costs of the project's, or its own.
Json pinJson(const PinnedPlan& pin, const Design& of) {
  Json j{{"name", pin.name.toStdString()}, {"title", pin.title().toStdString()}};
  Design design = pin.design;
  design.job.reset();  // it is the project's
  if (design.profile && design.profile == of.profile) {
    design.profile.reset();
    j["same_profile"] = true;
  }
  addDesign(j, design);
  j["trace"] = QByteArray::fromStdString(toBlob(pin.step->trace)).toBase64().toStdString();
  return j;
}

std::vector<PinnedPlan> parsePins(const JsonPart& list, const Design& of, const std::string& source, const JsonDocument& document) {
  std::vector<PinnedPlan> pins;
  if (list.size() > PinnedPlans::kMost) document.fail(fmt::format("`pins` has more than {} plans", PinnedPlans::kMost));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonPart j = list[i];
    const QString name = QString::fromStdString(j["name"].as<std::string>());
    if (name.size() != 1 || name[0] < QLatin1Char('A') || name[0] > QLatin1Char('Z') ||
        std::ranges::count(pins, name, &PinnedPlan::name) > 0)
      document.fail(fmt::format("`pins[{}].name` is not a letter of its own", i));
    Design design = parseDesign(j, source, document);
    if (j.has("same_profile") && j["same_profile"].as<bool>()) design.profile = of.profile;
    Trace trace = parseBlob(QByteArray::fromBase64(QByteArray::fromStdString(j["trace"].as<std::string>())).toStdString(),
                            fmt::format("Pinned plan {} in {}", name.toStdString(), source));
    const PlanRequest& r = design.request;
    std::optional<ModelCut> cut;
    if (!design.models.empty()) cut = ModelCut{{}, r.replicaBegins.empty() ? std::vector<std::vector<NodeId>>{r.begins} : r.replicaBegins};
    auto step = pinnedStep(name, QString::fromStdString(j["title"].as<std::string>()), std::move(trace), cut, samplesOf(r));
    pins.push_back({name, std::move(design), std::move(step)});
  }
  return pins;
}

}  // namespace

bool isKept(const PinnedPlan& plan) {
  constexpr std::size_t kMostSpans = 100'000;
  return plan.step->trace.spans.size() <= kMostSpans && !(plan.design.job && plan.design.customRows);
}

void nameTrace(Project& project, const Measured* shown) {
  if (shown == nullptr || shown->live || shown->isReplayed || !shown->pinnedAs.isEmpty()) return;
  project.trace = shown->from.paths;
  if (shown->run && shown->from.store == project.store.toStdString()) project.run = runNameOf(*shown->run);
  project.step = shown->step;
}

std::string toJson(const Project& project) {
  Json j{{"pipewright_project", kVersion}};
  addDesign(j, project.design);
  if (!project.design.notes.empty()) j["notes"] = notesJson(project.design.notes);
  if (!project.trace.empty()) j["trace"] = {{"paths", project.trace}, {"step", project.step}};
  if (!project.store.isEmpty()) j["store"] = project.store.toStdString();
  if (project.run) {
    j["run"] = runJson(*project.run);
    j["run"]["step"] = project.step;
  }
  if (!project.view.isEmpty()) j["view"] = project.view.toBase64().toStdString();
  if (const auto& unsaved = project.unsaved) {
    j["unsaved"] = {{"title", unsaved->title.toStdString()}};
    if (!unsaved->file.isEmpty()) j["unsaved"]["project"] = unsaved->file.toStdString();
  }
  for (const PinnedPlan& pin : project.pins) {
    if (isKept(pin)) j["pins"].push_back(pinJson(pin, project.design));
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

Project parseProject(std::string_view json, const std::string& source) {
  const JsonDocument document{source, "project", "open a .pwproj file that this app saved"};
  const Json parsed = document.parse(json);
  const JsonPart j(parsed, document);
  if (!j.has("pipewright_project")) throw UsageError(source + " is not a Pipewright project; open a .pwproj file that this app saved.");
  if (j["pipewright_project"].as<int>() > kVersion)
    throw UsageError(source + " was saved by a newer version of Pipewright; update this one.");
  Project project;
  project.design = parseDesign(j, source, document);
  if (j.has("job")) {
    project.job = parseJobSource(j["job"], document);
    project.isInOrderOfJob = j["job"].has("own_order") && j["job"]["own_order"].as<bool>();
  }
  if (j.has("notes")) project.design.notes = parseNotes(j["notes"], document);
  if (j.has("trace")) {
    project.trace = j["trace"]["paths"].listOf<std::string>();
    project.step = j["trace"]["step"].within<int>(0, 1 << 30);
    if (project.trace.empty()) document.fail("`trace` names no `paths`");
  }
  project.store = QString::fromStdString(textOr(j, "store"));
  if (j.has("run")) {
    project.run = parseRun(j["run"]);
    project.step = j["run"]["step"].within<int>(0, 1 << 30);
    if (project.store.isEmpty() || !project.trace.empty()) document.fail("`run` is of no `store`, or beside a `trace`");
  }
  project.view = QByteArray::fromBase64(QByteArray::fromStdString(textOr(j, "view")));
  if (j.has("unsaved"))
    project.unsaved = UnsavedProject{QString::fromStdString(j["unsaved"]["title"].as<std::string>()),
                                     QString::fromStdString(textOr(j["unsaved"], "project"))};
  if (j.has("pins")) project.pins = parsePins(j["pins"], project.design, source, document);
  return project;
}

}  // namespace pw::gui
