#include <nlohmann/json.hpp>

#include "app/gui/loading.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kVersion = 1;

Json requestJson(const PlanRequest& r) {
  Json begins = Json::array();
  for (const NodeId begin : r.begins) begins.push_back(begin.value);
  Json j{{"schedule", r.schedule}, {"ranks", r.ranks}, {"chunks", r.chunks}, {"microbatches", r.microbatches}, {"replicas", r.replicas},
         {"microbatch", r.microbatch}, {"batch", r.batch}, {"begins", begins}, {"loss", r.loss}, {"recompute", r.recompute},
         {"optimizer_copies", r.optimizerCopies}, {"memory_limit", r.memoryLimit}};
  if (r.sharing) j["sharing"] = std::string(name(*r.sharing));
  return j;
}

int bounded(const Json& j, const char* key, int low, int high) {
  const auto value = j.at(key).get<std::int64_t>();
  if (value < low || value > high) throw UsageError(std::string(key) + " is " + std::to_string(value) + ", outside " + std::to_string(low) + " to " + std::to_string(high));
  return static_cast<int>(value);
}

PlanRequest parseRequest(const Json& j) {
  PlanRequest r;
  r.schedule = j.at("schedule").get<std::string>();
  r.ranks = bounded(j, "ranks", 1, kMaxRanks);
  r.chunks = bounded(j, "chunks", 0, kMaxStages);
  r.microbatches = bounded(j, "microbatches", 1, kMaxMicrobatches);
  r.replicas = bounded(j, "replicas", 1, kMaxReplicas);
  r.microbatch = bounded(j, "microbatch", 1, 1 << 24);
  r.batch = bounded(j, "batch", 0, 1 << 30);
  for (const Json& begin : j.at("begins")) r.begins.push_back(NodeId(begin.get<std::int32_t>()));
  r.loss = j.at("loss").get<std::string>();
  r.recompute = j.at("recompute").get<std::vector<std::string>>();
  r.optimizerCopies = bounded(j, "optimizer_copies", 0, 8);
  r.memoryLimit = j.at("memory_limit").get<Bytes>();
  if (r.memoryLimit < 0) throw UsageError("memory_limit is negative");
  if (j.contains("sharing")) r.sharing = j["sharing"] == "transmit" ? Sharing::Transmit : Sharing::Replicate;
  return r;
}

}  // namespace

std::string toJson(const Project& project) {
  const Design& d = project.design;
  Json j{{"pipewright_project", kVersion}, {"models", d.models}, {"request", requestJson(d.request)}, {"cluster", d.cluster}};
  if (d.profile) j["profile"] = Json::parse(pw::toJson(*d.profile));
  if (!d.source.empty()) j["source"] = d.source;
  if (!project.store.isEmpty()) j["store"] = project.store.toStdString();
  if (!project.view.isEmpty()) j["view"] = project.view.toBase64().toStdString();
  return j.dump(1, ' ', false, Json::error_handler_t::replace);
}

Project parseProject(std::string_view json, const std::string& source) {
  const Json j = Json::parse(json, nullptr, false);
  if (!j.is_object() || !j.contains("pipewright_project")) throw UsageError(source + " is no Pipewright project; open a .pwproj file that this app saved.");
  try {
    if (j["pipewright_project"].get<int>() > kVersion) throw UsageError(source + " was saved by a newer version of Pipewright; update this one.");
    Project project;
    project.design.models = j.at("models").get<std::vector<std::string>>();
    project.design.request = parseRequest(j.at("request"));
    project.design.cluster = j.at("cluster").get<std::string>();
    if (j.contains("profile")) project.design.profile = std::make_shared<const Profile>(parseProfile(j["profile"].dump(), source));
    project.design.source = j.value("source", std::string());
    project.store = QString::fromStdString(j.value("store", std::string()));
    project.view = QByteArray::fromBase64(QByteArray::fromStdString(j.value("view", std::string())));
    return project;
  } catch (const UsageError& e) {
    const std::string what = e.what();
    throw UsageError(what.starts_with(source) ? what : source + " is damaged: " + what + ".");
  } catch (const nlohmann::json::exception& e) {
    throw UsageError(source + " is damaged: " + e.what() + ".");
  }
}

}  // namespace pw::gui
