#include "simulator/costs/calibration.h"

#include <algorithm>

#include "simulator/costs/rank_profiles.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

NodeCost calibrated(NodeCost node, const Calibration& calibration) {
  node.forward = scaled(node.forward, calibration.forward);
  node.forwardSpread = scaled(node.forwardSpread, calibration.forward);
  node.backward = scaled(node.backward, calibration.backward);
  node.backwardSpread = scaled(node.backwardSpread, calibration.backward);
  node.weight = std::min(scaled(node.weight, calibration.backward), node.backward);
  return node;
}

void add(LinkSpec& link, Ns perMessage) { link.latency = std::max<Ns>(0, link.latency + perMessage); }

}  // namespace

Profile calibrated(Profile profile, const Calibration& calibration) {
  for (NodeCost& node : profile.nodes) node = calibrated(node, calibration);
  profile.loss = calibrated(profile.loss, calibration);
  profile.actionOverhead += calibration.perAction;
  profile.sendOverhead += calibration.perSend;
  profile.optimizerNsPerByte *= calibration.optimizer;
  remakeRankProfiles(profile.topology, [&](const RankProfile& own, std::size_t) {
    Calibration computing = calibration;
    computing.perMessage = 0;
    return calibrated(*own.costs, computing);
  });
  add(profile.topology.sameNode, calibration.perMessage);
  add(profile.topology.network, calibration.perMessage);
  for (RankLink& link : profile.topology.links) add(link.link, calibration.perMessage);
  return profile;
}

CostTable calibrated(CostTable costs, const Calibration& calibration, Ns actionOverhead, const Placement& placement) {
  const auto action = [&](Ns& time, double factor) {
    const Ns overhead = std::min(time, actionOverhead);
    time = scaled(time - overhead, factor) + overhead + calibration.perAction;
  };
  for (StageCost& stage : costs.stages) {
    action(stage.forward, calibration.forward);
    for (Ns* time : {&stage.backward, &stage.backwardInput, &stage.backwardWeight}) action(*time, calibration.backward);
    stage.optimizer = scaled(stage.optimizer, calibration.optimizer);
  }
  addTimeOfSends(costs, placement, calibration.perSend);
  for (MessageCost& message : costs.messages) message.latency = std::max<Ns>(0, message.latency + calibration.perMessage);
  for (Ns& slot : costs.overlap) slot = scaled(slot, (calibration.forward + calibration.backward) / 2) + 2 * calibration.perAction;
  return costs;
}

}  // namespace pw
