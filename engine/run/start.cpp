#include "engine/run/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "backends/checkpoints/safetensors.h"
#include "backends/host/contents.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "engine/processes/failure.h"
#include "engine/run/batch_stream.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/model/fingerprint.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

/// `train.pt 1f3a9c02`
std::string shownFile(const std::string& path, const std::string& digest) {
  return fmt::format("{} {}", fs::path(path).filename().string(), digest.substr(0, 8));
}

JobField fileField(const std::string& name, const std::string& path) {
  const std::string digest = contentsOf(path);
  return {name, digest, shownFile(path, digest)};
}

JobField planField(const RunSettings& o, const Plan& plan) {
  Plan what = plan;
  what.modelFiles.clear();  // may lie elsewhere on each host
  what.libraries.clear();   // likewise
  what.loss = {};           // a field of its own
  const std::string digest = hex(sha256(toJson(what)));
  return {"the plan", digest, shownFile(o.request.plan, digest)};
}

JobField dataField(const std::string& data) {
  if (data == "synthetic") return {"the data file", "", "synthetic"};
  if (namesFunction(data)) return {"--data", data, data};  // what it gives is compared in each step
  return fileField("the data file", data);
}

JobField weightsField(const Plan& plan) {
  Sha256 all;
  for (const std::string& file : plan.modelFiles) all.addField(contentsOf(file, true));
  const std::string digest = hex(all.finish());
  return {"the weights of " + plan.modelName, digest, digest.substr(0, 8)};
}

/// All files of a checkpoint.
JobField checkpointField(const std::string& path) {
  const std::string name = "the checkpoint of --resume";
  if (path.empty()) return {name, "", "none"};
  std::vector<std::string> files;
  std::error_code problem;
  if (!isFolder(path)) {
    files.push_back(path);
    if (isSafetensors(path) && fs::exists(optimizerFileOf(path), problem)) files.push_back(optimizerFileOf(path));
    if (files.size() == 1) return fileField(name, path);
  }
  for (const auto& entry : fs::directory_iterator(path, problem)) {
    if (entry.is_regular_file(problem)) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  Sha256 all;
  for (const std::string& file : files) all.addField(fs::path(file).filename().string()).addField(contentsOf(file));
  const std::string digest = hex(all.finish());
  return {name, digest, shownFile(fs::path(path).filename().empty() ? fs::path(path).parent_path().string() : path, digest)};
}

JobField librariesField(const Plan& plan) {
  if (plan.libraries.empty()) return {"--load-library", "", "none"};
  Sha256 all;
  for (const std::string& library : plan.libraries) all.addField(contentsOf(library));
  const std::string digest = hex(all.finish());
  return {"--load-library", digest, shownFile(plan.libraries.front(), digest)};
}

/// Options by name, as numbers and words.
template <class Value>
void add(JobFields& fields, const char* name, const Value& value) {
  const std::string text = fmt::format("{}", value);
  fields.push_back({name, text, text.empty() ? "none" : text});
}

JobField groupsField(const OptimizerSpec& update) {
  Sha256 all;
  for (const OptimizerGroup& group : update.groups) {
    all.addField(fmt::format("{},{},{}", group.learningRate, group.weightDecay, group.parameters.size()));
    for (const std::string& name : group.parameters) all.addField(name);
  }
  const std::string digest = hex(all.finish());
  return {"the groups of parameters", digest, fmt::format("{} groups ({})", update.groups.size(), digest.substr(0, 8))};
}

void addOptimizer(JobFields& fields, const RunSettings& o) {
  const OptimizerSpec& update = o.update;
  add(fields, "--optimizer", nameOf(update.kind));
  add(fields, "--lr", update.learningRate);
  add(fields, "--momentum", update.momentum);
  add(fields, "--nesterov", update.nesterov);
  add(fields, "--betas", fmt::format("{},{}", update.beta1, update.beta2));
  add(fields, "--alpha", update.alpha);
  add(fields, "eps", update.epsilon);
  add(fields, "--weight-decay", update.weightDecay);
  if (!update.groups.empty()) fields.push_back(groupsField(update));
  add(fields, "--warmup", update.warmupSteps);
  add(fields, "--decay-steps", update.decaySteps);
  add(fields, "--final-rate", update.finalRate);
  add(fields, "--clip-norm", o.request.clipNorm);
  add(fields, "--zero1", o.zero1);
}

}  // namespace

JobFields fieldsOf(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  JobFields fields;
  const std::string build = buildOf(ownPath());
  fields.push_back({"the build of pipewright", PW_VERSION " " + build, fmt::format("{} {}", PW_VERSION, build.substr(0, 8))});
  fields.push_back(planField(o, plan));
  if (!o.request.synthetic) {
    const std::string model = fingerprintOf(graph).digest;
    fields.push_back({"the model", model, fmt::format("{} {}", graph.name, model.substr(0, 8))});
    fields.push_back(weightsField(plan));
  }
  fields.push_back(dataField(o.request.data));
  fields.push_back(checkpointField(o.request.resume));
  if (!o.request.synthetic) fields.push_back(librariesField(plan));
  add(fields, "--backend", nameOf(o.transport));
  add(fields, "--steps", o.request.steps);
  add(fields, "--seed", o.seed);
  addOptimizer(fields, o);
  add(fields, "--loss", toString(plan.loss));
  add(fields, "--loss-count", o.request.lossCount);
  add(fields, "--loss-over", nameOf(o.request.lossOver));
  add(fields, "--skip-nonfinite", o.request.skipNonFinite);
  add(fields, "--find-nan", o.request.findNan);
  add(fields, "--reset-optimizer", o.request.resetOptimizer);
  add(fields, "--precision", precisionName(o.computing.precision));
  add(fields, "--tf32", o.computing.tf32);
  add(fields, "--init", o.request.initRandom ? "random" : "");
  add(fields, "--masked", o.request.masked);
  add(fields, "--eval", o.request.evaluates);
  add(fields, "--verify", o.request.verify);
  add(fields, "--synthetic", o.request.synthetic);
  add(fields, "--order", nameOf(o.request.order));
  add(fields, "--backward", nameOf(o.request.backward));
  add(fields, "--save", o.request.save.empty() ? "none" : "a file");  // rank 0 writes it, from what all send
  add(fields, "--save-every", o.request.saveEvery);
  add(fields, "--log", o.request.log.empty() ? "none" : "a file");  // has all ranks sum the loss
  return fields;
}

KeyValueStore meetOthers(const RankEnvironment& environment, const Rendezvous& rendezvous, const JobFields& fields, RankContact& contact) {
  reportStartUp(environment, StartUp::Meeting);
  contact.isInTouch = true;  // where they cannot be met there is nobody to tell
  const Meeting meeting = openMeeting(rendezvous);
  requireSameFields(meeting, rendezvous, fields);
  reportStartUp(environment, StartUp::Connecting);
  return meeting.dictionary();
}

void reportRankAbsence(const RunRequest& request, const RankEnvironment& environment, const std::exception& cause,
                       const RankContact& contact) noexcept {
  if (contact.isInTouch || environment.worldSize < 2 || environment.statusFd >= 0 || environment.storeIsElsewhere) return;
  try {
    const std::string sentence = causeOf(cause), name = fmt::format("Rank {}", environment.rank.value);
    const bool isNamed = sentence.starts_with(name + " ") || sentence.starts_with(name + ":");
    reportAbsence(rendezvousOf(environment, request.timeout), isNamed ? sentence : fmt::format("{}: {}", name, sentence),
                  dynamic_cast<const UsageError*>(&cause) != nullptr);
  } catch (const std::exception&) {
    // The cause is what the user reads.
  }
}

}  // namespace pw
