#include "engine/reducer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/messages/buffer_math.h"
#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"

namespace pw {
namespace {

constexpr std::uint32_t kGroupsPerStage = 8;  // more element types than there are

std::int64_t elementsOf(const ParameterGroup& group) { return static_cast<std::int64_t>(group.values.bytes) / widthOf(group.dtype); }

Buffer part(Buffer whole, DType dtype, std::pair<std::int64_t, std::int64_t> elements) {
  const std::int64_t width = widthOf(dtype);
  return {whole.data + elements.first * width, static_cast<std::size_t>((elements.second - elements.first) * width)};
}

/// The stages whose holders all have a REDUCE_GRAD, in an order that agrees with every row; none if there is no such order, because two
/// collectives that two ranks start in different orders may never end.
std::set<Stage> reducedInOneOrder(const Schedule& schedule) {
  std::vector<std::vector<Stage>> rows;
  for (const auto& actions : schedule.rows) {
    auto& row = rows.emplace_back();
    for (const Action& action : actions) {
      if (action.kind == ActionKind::ReduceGrad && std::ranges::count(row, action.stage) == 0) row.push_back(action.stage);
    }
  }
  std::set<Stage> stages;
  for (std::size_t s = 0; s < schedule.placement.stages(); ++s) {
    bool everywhere = true;
    for (std::size_t r = 0; r < rows.size(); ++r)
      everywhere = everywhere && (!schedule.placement.holds(Rank(r), Stage(s)) || std::ranges::count(rows[r], Stage(s)) > 0);
    if (everywhere) stages.insert(Stage(s));
  }
  // A topological sort: repeatedly takes a stage that no row has after another remaining one.
  for (auto& row : rows) std::erase_if(row, [&](Stage stage) { return !stages.contains(stage); });
  for (std::set<Stage> left = stages; !left.empty();) {
    const auto isNext = [&](Stage stage) {
      return std::ranges::all_of(rows, [&](const auto& row) { return std::ranges::count(row, stage) == 0 || row.front() == stage; });
    };
    const auto next = std::ranges::find_if(left, isNext);
    if (next == left.end()) return {};
    for (auto& row : rows) std::erase(row, *next);
    left.erase(next);
  }
  return stages;
}

}  // namespace

Reducer::Reducer(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, std::uint32_t firstTag,
                 const ReducerOptions& options, FlightRecord& flights, StepTimes& times)
    : plan_(plan),
      stages_(stages),
      communicator_(communicator),
      device_(stages.empty() ? hostDevice() : stages.begin()->second->device()),
      flights_(flights),
      times_(times),
      deadline_(options.deadline),
      rank_(replicasOf(plan.schedule).rank(communicator.rank())),
      firstTag_(firstTag) {
  // A barrier within the step may wait for the device, and so for a collective that another rank starts only after the barrier.
  if (options.inRowOrder && !plan.schedule.lockstep && !plan.cuts) early_ = reducedInOneOrder(plan.schedule);
  const bool shardOptimizer = options.shardOptimizer;
  const auto sets = static_cast<std::uint32_t>(plan.cuts ? plan.cuts->summed.size() : plan.partition.stages.size());
  for (const auto& [stage, module] : stages) {
    const auto groups = module->groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].shared) {
        const std::size_t set = groups[g].summed.value_or(stage.index());
        const auto alike = std::ranges::count(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(g), groups[g].summed,
                                              &ParameterGroup::summed);  // of other element types
        auto members = groups[g].summed ? holders(plan.cuts.value().summed.at(set)) : holders({stage});
        const std::size_t owners = members.size();
        addReduction(static_cast<std::uint32_t>(set) * kGroupsPerStage + static_cast<std::uint32_t>(alike), stage, g, std::move(members),
                     owners, shardOptimizer);
        continue;
      }
      const SharedParameter& shared = plan.partition.shared[*groups[g].shared];
      const bool transmit = shared.sharing == Sharing::Transmit;
      auto members = holders(shared.stages);
      const std::size_t owners = transmit ? holders({shared.stages.front()}).size() : members.size();
      addReduction(sets * kGroupsPerStage + static_cast<std::uint32_t>(*groups[g].shared), stage, g, std::move(members), owners,
                   shardOptimizer || transmit);
    }
  }
  std::sort(reductions_.begin(), reductions_.end(), [](const Reduction& a, const Reduction& b) { return a.id < b.id; });
  // An upper bound of the number of holders of a parameter, the same on all ranks.
  for (const SharedParameter& shared : plan.partition.shared)
    mostMembers_ = std::max(mostMembers_, static_cast<std::uint32_t>(holders(shared.stages).size()));
  mostMembers_ = std::max(mostMembers_, static_cast<std::uint32_t>(holders({Stage(0)}).size()));
  const std::uint64_t reductions = std::uint64_t{sets} * kGroupsPerStage + plan.partition.shared.size();
  requireTags(kPlanTags, firstTag_ + reductions * mostMembers_ * mostMembers_ * 3);
}

Reducer::~Reducer() {
  for (Reduction& reduction : reductions_) {
    for (auto& [member, received] : reduction.received) {
      for (Received& one : received) communicator_.keep(std::move(one.buffer));
    }
  }
}

/// Stage by stage (so that an owner's come first), replica by replica, the mirrored rank last.
std::vector<Reducer::Member> Reducer::holders(const std::vector<Stage>& stages) const {
  const Placement& placement = plan_.schedule.placement;
  const Replicas replicas = replicasOf(plan_.schedule);
  std::vector<Member> members;
  for (const Stage s : stages) {
    for (int d = 0; d < plan_.replicas; ++d) {
      members.push_back({replicas.jobRank(d, placement.rankOfStage[s.index()]), s});
      if (placement.bidirectional() && placement.mirrorOfStage[s.index()] != placement.rankOfStage[s.index()]) {
        members.push_back({replicas.jobRank(d, placement.mirrorOfStage[s.index()]), s});
      }
    }
  }
  return members;
}

std::vector<Reducer::Member> Reducer::holders(const SummedParameters& together) const {
  const Replicas replicas = replicasOf(plan_.schedule);
  std::vector<Member> members;
  for (const Stage stage : together.stages)
    members.push_back({replicas.jobRank(static_cast<int>(members.size()), plan_.schedule.placement.rankOfStage[stage.index()]), stage});
  return members;
}

void Reducer::addReduction(std::uint32_t id, Stage stage, std::size_t group, std::vector<Member> members, std::size_t owners, bool pieces) {
  auto found = std::find_if(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return r.id == id; });
  if (found == reductions_.end()) {
    Reduction reduction;
    reduction.id = id;
    for (std::size_t k = 0; k < owners; ++k) reduction.updaters.push_back(k);
    reduction.pieces = pieces && members.size() > 1;
    std::set<JobRank> ranks;
    for (const Member& member : members) ranks.insert(member.rank);
    if (members.size() > 1 && ranks.size() == members.size() && owners == members.size()) {
      std::ranges::sort(members, {}, &Member::rank);  // so that a member's piece matches its position in the group
      reduction.group.assign(ranks.begin(), ranks.end());
    }
    reduction.members = std::move(members);
    found = reductions_.insert(reductions_.end(), std::move(reduction));
  }
  const auto own =
      static_cast<std::size_t>(std::ranges::find(found->members, Member{communicator_.rank(), stage}) - found->members.begin());
  found->own.push_back(own);
  found->groupOf[own] = group;
}

ParameterGroup Reducer::groupOf(const Reduction& reduction, std::size_t member) const {
  return stages_.at(reduction.members[member].stage)->groups().at(reduction.groupOf.at(member));
}

std::uint32_t Reducer::tag(const Reduction& reduction, std::size_t from, std::size_t to, Phase phase) const {
  const auto pair = (reduction.id * mostMembers_ + static_cast<std::uint32_t>(from)) * mostMembers_ + static_cast<std::uint32_t>(to);
  return firstTag_ + pair * 3 + static_cast<std::uint32_t>(phase);
}

std::pair<std::int64_t, std::int64_t> Reducer::piece(const Reduction& reduction, std::size_t k, std::int64_t elements) {
  const auto parts = static_cast<std::int64_t>(reduction.updaters.size()), at = static_cast<std::int64_t>(k);
  return {at * elements / parts, (at + 1) * elements / parts};  // as the collectives cut (backends/messages/communicator.h)
}

void Reducer::start(Stage stage) {
  for (Reduction& reduction : reductions_) {
    if (reduction.members.size() < 2) continue;
    for (const std::size_t member : reduction.own) {
      if (reduction.members[member].stage != stage) continue;
      const bool isShared = groupOf(reduction, member).shared.has_value();
      if (reduction.group.empty() || (early_.contains(stage) && !isShared)) begin(reduction, member);
    }
  }
}

/// A second call in a step does nothing.
void Reducer::begin(Reduction& reduction, std::size_t member) {
  const Stage stage = reduction.members[member].stage;
  if (std::ranges::count(reduction.started, stage) > 0) return;
  if (reduction.started.empty()) reduction.begin = device_.timestamp();
  reduction.started.push_back(stage);
  if (!reduction.group.empty()) {
    reduction.collective = startCollective(reduction, reduction.pieces ? Collective::ReduceScatter : Collective::AllReduce, false);
    if (reduction.collective) return;
    reduction.group.clear();  // the transport has none for these elements, on this rank and all others
  }
  startMessages(reduction, member);
}

FlightEntry Reducer::entryOf(const Reduction& reduction, std::size_t member, bool values) const {
  FlightEntry entry{.what = values ? FlightEntry::What::NewValues : FlightEntry::What::Gradients,
                    .action = {reduction.members[member].stage, ActionKind::ReduceGrad, Microbatch(-1)}};
  entry.shared = groupOf(reduction, reduction.own.front()).shared;
  return entry;
}

/// Of the whole group of parameters; nothing where the transport has no such collective.
std::optional<Reducer::Posted> Reducer::startCollective(const Reduction& reduction, Collective what, bool values) {
  const std::size_t member = reduction.own.front();
  const ParameterGroup group = groupOf(reduction, member);
  const Buffer buffer = values ? group.values : group.gradients;
  if (buffer.bytes == 0) return std::nullopt;
  const auto request = communicator_.startCollective(what, reduction.group, group.dtype, buffer);
  if (!request) return std::nullopt;
  FlightEntry entry = entryOf(reduction, member, values);
  entry.group = &reduction.group;
  entry.bytes = buffer.bytes;
  entry.request = request;
  return Posted{*request, flights_.add(entry)};
}

/// Between two members, one of which is on this rank.
Reducer::Posted Reducer::message(const Reduction& reduction, std::size_t from, std::size_t to, Phase phase, Buffer buffer) {
  FlightEntry entry = entryOf(reduction, from, phase == Phase::Values);
  entry.sending = reduction.members[from].rank == communicator_.rank();
  entry.peer = reduction.members[entry.sending ? to : from].rank;
  entry.tag = tag(reduction, from, to, phase);
  entry.bytes = buffer.bytes;
  entry.request = entry.sending ? communicator_.send(entry.peer, entry.tag, buffer) : communicator_.receive(entry.peer, entry.tag, buffer);
  return {*entry.request, flights_.add(entry)};
}

void Reducer::startMessages(Reduction& reduction, std::size_t member) {
  const ParameterGroup group = groupOf(reduction, member);
  const std::int64_t elements = elementsOf(group);
  for (const std::size_t k : reduction.updaters) {
    const Buffer gradients = part(group.gradients, group.dtype, piece(reduction, k, elements));
    if (k != member) {
      if (reduction.members[k].rank != communicator_.rank())
        reduction.sends.push_back(message(reduction, member, k, Phase::Sum, gradients));
      continue;
    }
    auto& received = reduction.received[member];
    received.resize(reduction.members.size());
    for (std::size_t from = 0; from < reduction.members.size(); ++from) {
      if (reduction.members[from].rank == communicator_.rank()) continue;
      received[from].buffer = device_.allocate(gradients.bytes);
      received[from].posted = message(reduction, from, member, Phase::Sum, received[from].buffer.buffer);
    }
  }
}

void Reducer::sum(StepLog& log, bool everywhere) {
  for (Reduction& reduction : reductions_) {
    if (reduction.members.size() < 2) continue;
    for (const std::size_t member : reduction.own) begin(reduction, member);
  }
  for (Reduction& reduction : reductions_) {
    if (reduction.members.size() < 2) continue;
    const ParameterGroup first = groupOf(reduction, reduction.own.front());
    // A stage's own reduction runs in parallel with compute from REDUCE_GRAD on; for shared parameters the rank waits.
    const Timestamp begin = first.shared ? device_.timestamp() : reduction.begin;
    const Stage shown = first.shared ? Stage(-1) : reduction.members[reduction.own.front()].stage;
    if (reduction.collective) {
      await(*std::exchange(reduction.collective, std::nullopt));
      if (reduction.pieces && everywhere) gather(reduction, false);
    } else {
      addUp(reduction);
      if (!reduction.pieces || everywhere) gather(reduction, false);
    }
    reduction.started.clear();
    const Span span{rank_, SpanKind::ReduceGrad, shown, Microbatch(-1), rank_, static_cast<Bytes>(first.gradients.bytes), 0, 0};
    times_.add(log, span, begin, device_.timestamp());
  }
}

/// Every own updater adds the other members' gradients to its piece, in the order of members.
void Reducer::addUp(Reduction& reduction) {
  for (const std::size_t member : reduction.own) {
    if (std::ranges::count(reduction.updaters, member) == 0) continue;
    const ParameterGroup group = groupOf(reduction, member);
    const auto range = piece(reduction, member, elementsOf(group));
    const Buffer mine = part(group.gradients, group.dtype, range);
    auto& received = reduction.received[member];
    for (std::size_t from = 0; from < reduction.members.size(); ++from) {
      if (from == member) continue;
      if (reduction.members[from].rank == communicator_.rank()) {
        const ParameterGroup neighbour = groupOf(reduction, from);
        device_.addInto(group.dtype, mine, part(neighbour.gradients, group.dtype, range));
        continue;
      }
      await(received[from].posted);
      device_.addInto(group.dtype, mine, received[from].buffer.buffer);
    }
    received.clear();
  }
  for (const Posted& posted : std::exchange(reduction.sends, {})) await(posted);
}

/// Every updater gives its piece to all other holders.
void Reducer::gather(Reduction& reduction, bool values) {
  if (!reduction.group.empty()) {
    if (const auto posted = startCollective(reduction, Collective::AllGather, values)) return await(*posted);
  }
  gatherByMessages(reduction, values);
}

void Reducer::gatherByMessages(const Reduction& reduction, bool values) {
  const auto bufferOf = [&](std::size_t member) {
    const ParameterGroup group = groupOf(reduction, member);
    return values ? group.values : group.gradients;
  };
  const Phase phase = values ? Phase::Values : Phase::Gather;
  std::vector<Posted> all;
  for (const std::size_t member : reduction.own) {
    const ParameterGroup group = groupOf(reduction, member);
    for (const std::size_t k : reduction.updaters) {
      const auto range = piece(reduction, k, elementsOf(group));
      const Buffer mine = part(bufferOf(member), group.dtype, range);
      if (k == member) {
        for (std::size_t to = 0; to < reduction.members.size(); ++to) {
          if (to == member) continue;
          if (reduction.members[to].rank != communicator_.rank()) {
            all.push_back(message(reduction, member, to, phase, mine));
          } else if (mine.bytes > 0) {
            device_.copy(part(bufferOf(to), group.dtype, range), mine);
          }
        }
      } else if (reduction.members[k].rank != communicator_.rank()) {
        all.push_back(message(reduction, k, member, phase, mine));
      }
    }
  }
  for (const Posted& posted : all) await(posted);
}

double Reducer::squares() {
  double squares = 0;
  for (const Reduction& reduction : reductions_) {
    for (const std::size_t member : reduction.own) {
      if (std::ranges::count(reduction.updaters, member) == 0) continue;
      const ParameterGroup group = groupOf(reduction, member);
      squares +=
          device_.sumOfSquares(group.dtype, part(group.gradients, group.dtype, piece(reduction, member, elementsOf(group))), deadline_);
    }
  }
  return squares;
}

std::optional<Stage> Reducer::firstNotFinite() {
  std::optional<Stage> first;
  for (const Reduction& reduction : reductions_) {
    for (const std::size_t member : reduction.own) {
      const Stage stage = reduction.members[member].stage;
      if (std::ranges::count(reduction.updaters, member) == 0 || (first && *first <= stage)) continue;
      const ParameterGroup group = groupOf(reduction, member);
      const Buffer gradients = part(group.gradients, group.dtype, piece(reduction, member, elementsOf(group)));
      const bool finite =
          device_.index < 0 ? allFinite(group.dtype, gradients) : std::isfinite(device_.sumOfSquares(group.dtype, gradients, deadline_));
      if (!finite) first = stage;
    }
  }
  return first;
}

std::vector<StepNumbers> Reducer::exchange(const StepNumbers& own) {
  const int ranks = communicator_.size(), self = communicator_.rank().value;
  const std::uint32_t tag = kNumberTags.first + numbers_++ % kNumberTags.count;  // a tag is used once between two barriers
  const MessageMemory<std::vector<StepNumbers>> heard(communicator_, std::vector<StepNumbers>(static_cast<std::size_t>(ranks)));
  const MessageMemory<StepNumbers> said(communicator_, own);
  std::vector<StepNumbers>& all = *heard;
  StepNumbers& sent = *said;
  std::vector<Posted> posted;
  const auto note = [&](bool sending, JobRank peer, Communicator::Request request) {
    posted.push_back({request, flights_.add({.what = FlightEntry::What::Number,
                                             .sending = sending,
                                             .peer = peer,
                                             .tag = tag,
                                             .bytes = sizeof(StepNumbers),
                                             .request = request})});
  };
  for (int r = 0; r < ranks; ++r) {
    if (r == self) continue;
    note(false, JobRank(r),
         communicator_.receive(JobRank(r), tag, {reinterpret_cast<std::byte*>(&all[static_cast<std::size_t>(r)]), sizeof(StepNumbers)}));
    note(true, JobRank(r), communicator_.send(JobRank(r), tag, {reinterpret_cast<std::byte*>(&sent), sizeof(StepNumbers)}));
  }
  for (const Posted& one : posted) await(one);
  all[static_cast<std::size_t>(self)] = own;
  return all;
}

double Reducer::allSum(double number) {
  double sum = 0;
  for (const StepNumbers& one : exchange({.loss = number})) sum += one.loss;
  return sum;
}

void Reducer::update(double gradientScale, StepLog& log) {
  for (const auto& [stage, module] : stages_) {
    const Timestamp begin = device_.timestamp();
    for (const Reduction& reduction : reductions_) {
      for (const std::size_t member : reduction.own) {
        if (reduction.members[member].stage != stage) continue;
        const std::int64_t elements = elementsOf(groupOf(reduction, member));
        std::pair<std::int64_t, std::int64_t> range{0, elements};
        if (reduction.pieces)
          range = std::ranges::count(reduction.updaters, member) > 0 ? piece(reduction, member, elements)
                                                                     : std::pair<std::int64_t, std::int64_t>{0, 0};
        module->optimizerStep(reduction.groupOf.at(member), range.first, range.second, gradientScale);
      }
    }
    times_.add(log, {rank_, SpanKind::Optimizer, stage, Microbatch(-1), rank_, 0, 0, 0}, begin, device_.timestamp());
  }
  for (Reduction& reduction : reductions_) {
    if (reduction.pieces) gather(reduction, true);
  }
}

}  // namespace pw
