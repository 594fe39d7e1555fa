#include "engine/reducer.h"

#include <algorithm>
#include <cmath>
#include <set>


namespace pw {
namespace {

constexpr std::uint32_t kGroupsPerStage = 8;  // more element types than there are
// The transports have the tags from 0x7FFF0200 to 0x7FFF03FF, the worker those around.
constexpr std::uint32_t kNumberTag = 0x7FFF0400, kNumbersPerStep = 4;  // the loss, the norm

std::int64_t elementsOf(const ParameterGroup& group) { return static_cast<std::int64_t>(group.values.bytes) / bytesPerElement(group.dtype); }

Buffer part(Buffer whole, DType dtype, std::pair<std::int64_t, std::int64_t> elements) {
  const Bytes width = bytesPerElement(dtype);
  return {whole.data + elements.first * width, static_cast<std::size_t>((elements.second - elements.first) * width)};
}

}  // namespace

Reducer::Reducer(const Plan& plan, const std::map<Stage, StageModule*>& stages, Communicator& communicator, std::uint32_t firstTag, bool shardOptimizer)
    : plan_(plan), stages_(stages), communicator_(communicator), device_(stages.empty() ? hostDevice() : stages.begin()->second->device()),
      rank_(communicator.rank().value % static_cast<int>(plan.schedule.rows.size())), firstTag_(firstTag) {
  const auto allStages = static_cast<std::uint32_t>(plan.partition.stages.size());
  for (const auto& [stage, module] : stages) {
    const auto groups = module->groups();
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].shared) {
        auto members = holders({stage});
        const std::size_t owners = members.size();
        addReduction(static_cast<std::uint32_t>(stage.index()) * kGroupsPerStage + static_cast<std::uint32_t>(g), stage, g, std::move(members), owners, shardOptimizer);
        continue;
      }
      const SharedParameter& shared = plan.partition.shared[*groups[g].shared];
      const bool transmit = shared.sharing == Sharing::Transmit;
      auto members = holders(shared.stages);
      const std::size_t owners = transmit ? holders({shared.stages.front()}).size() : members.size();
      addReduction(allStages * kGroupsPerStage + static_cast<std::uint32_t>(*groups[g].shared), stage, g, std::move(members), owners, shardOptimizer || transmit);
    }
  }
  std::sort(reductions_.begin(), reductions_.end(), [](const Reduction& a, const Reduction& b) { return a.id < b.id; });
  // The same on all ranks: the most holders that any parameter can have.
  for (const SharedParameter& shared : plan.partition.shared) mostMembers_ = std::max(mostMembers_, static_cast<std::uint32_t>(holders(shared.stages).size()));
  mostMembers_ = std::max(mostMembers_, static_cast<std::uint32_t>(holders({Stage(0)}).size()));
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
  const int ranks = static_cast<int>(plan_.schedule.rows.size());
  std::vector<Member> members;
  for (const Stage s : stages) {
    for (int d = 0; d < plan_.replicas; ++d) {
      members.push_back({Rank(d * ranks + placement.rankOfStage[s.index()].value), s});
      if (placement.bidirectional() && placement.mirrorOfStage[s.index()] != placement.rankOfStage[s.index()]) {
        members.push_back({Rank(d * ranks + placement.mirrorOfStage[s.index()].value), s});
      }
    }
  }
  return members;
}

void Reducer::addReduction(std::uint32_t id, Stage stage, std::size_t group, std::vector<Member> members, std::size_t owners, bool pieces) {
  const auto own = static_cast<std::size_t>(std::find(members.begin(), members.end(), Member{communicator_.rank(), stage}) - members.begin());
  auto found = std::find_if(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return r.id == id; });
  if (found == reductions_.end()) {
    Reduction reduction;
    reduction.id = id;
    reduction.members = std::move(members);
    reduction.pieces = pieces && reduction.members.size() > 1;
    for (std::size_t k = 0; k < owners; ++k) reduction.updaters.push_back(k);
    found = reductions_.insert(reductions_.end(), std::move(reduction));
  }
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
  return {at * elements / parts, (at + 1) * elements / parts};
}

void Reducer::start(Stage stage) {
  for (Reduction& reduction : reductions_) {
    if (reduction.members.size() < 2 || std::ranges::count(reduction.started, stage) > 0) continue;
    for (const std::size_t member : reduction.own) {
      if (reduction.members[member].stage != stage) continue;
      if (reduction.started.empty()) reduction.begin = device_.mark();
      reduction.started.push_back(stage);
      startIn(reduction, member);
    }
  }
}

void Reducer::startIn(Reduction& reduction, std::size_t member) {
  const ParameterGroup group = groupOf(reduction, member);
  const std::int64_t elements = elementsOf(group);
  for (const std::size_t k : reduction.updaters) {
    const Buffer gradients = part(group.gradients, group.dtype, piece(reduction, k, elements));
    if (k != member) {
      if (reduction.members[k].rank != communicator_.rank()) {
        reduction.sends.push_back(communicator_.send(reduction.members[k].rank, tag(reduction, member, k, Phase::Sum), gradients));
      }
      continue;
    }
    auto& received = reduction.received[member];
    received.resize(reduction.members.size());
    for (std::size_t from = 0; from < reduction.members.size(); ++from) {
      if (reduction.members[from].rank == communicator_.rank()) continue;
      received[from].buffer = device_.allocate(gradients.bytes);
      received[from].ticket = communicator_.receive(reduction.members[from].rank, tag(reduction, from, member, Phase::Sum), received[from].buffer.buffer);
    }
  }
}

void Reducer::sum(StepLog& log, bool everywhere) {
  for (const auto& [stage, module] : stages_) start(stage);
  for (Reduction& reduction : reductions_) {
    if (reduction.members.size() < 2) continue;
    const ParameterGroup first = groupOf(reduction, reduction.own.front());
    // A stage's own reduction goes on beside its compute from REDUCE_GRAD on; what shared parameters take, the rank waits for.
    const Mark begin = first.shared ? device_.mark() : reduction.begin;
    const Stage shown = first.shared ? Stage(-1) : reduction.members[reduction.own.front()].stage;
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
        communicator_.wait(received[from].ticket);
        device_.addInto(group.dtype, mine, received[from].buffer.buffer);
      }
      received.clear();
    }
    for (const auto ticket : std::exchange(reduction.sends, {})) communicator_.wait(ticket);
    if (!reduction.pieces || everywhere) gather(reduction, false);
    reduction.started.clear();
    log.spans.push_back({rank_, SpanKind::ReduceGrad, shown, Microbatch(-1), rank_, static_cast<Bytes>(first.gradients.bytes), begin, device_.mark()});
  }
}

/// Every updater gives its piece to all other holders.
void Reducer::gather(Reduction& reduction, bool values) {
  const auto bufferOf = [&](std::size_t member) {
    const ParameterGroup group = groupOf(reduction, member);
    return values ? group.values : group.gradients;
  };
  const Phase phase = values ? Phase::Values : Phase::Gather;
  std::vector<Communicator::Ticket> tickets;
  for (const std::size_t member : reduction.own) {
    const ParameterGroup group = groupOf(reduction, member);
    for (const std::size_t k : reduction.updaters) {
      const auto range = piece(reduction, k, elementsOf(group));
      const Buffer mine = part(bufferOf(member), group.dtype, range);
      if (k == member) {
        for (std::size_t to = 0; to < reduction.members.size(); ++to) {
          const Rank rank = reduction.members[to].rank;
          if (to == member) continue;
          if (rank != communicator_.rank()) {
            tickets.push_back(communicator_.send(rank, tag(reduction, member, to, phase), mine));
          } else if (mine.bytes > 0) {
            device_.copy(part(bufferOf(to), group.dtype, range), mine);
          }
        }
      } else if (reduction.members[k].rank != communicator_.rank()) {
        tickets.push_back(communicator_.receive(reduction.members[k].rank, tag(reduction, k, member, phase), mine));
      }
    }
  }
  for (const auto ticket : tickets) communicator_.wait(ticket);
}

double Reducer::norm() {
  double squares = 0;
  for (const Reduction& reduction : reductions_) {
    for (const std::size_t member : reduction.own) {
      if (std::ranges::count(reduction.updaters, member) == 0) continue;
      const ParameterGroup group = groupOf(reduction, member);
      squares += device_.sumOfSquares(group.dtype, part(group.gradients, group.dtype, piece(reduction, member, elementsOf(group))));
    }
  }
  return std::sqrt(allSum(squares));
}

double Reducer::allSum(double number) {
  const int ranks = communicator_.size(), self = communicator_.rank().value;
  const std::uint32_t tag = kNumberTag + numbers_++ % kNumbersPerStep;  // a tag is used once between two barriers
  std::vector<double> all(static_cast<std::size_t>(ranks));
  std::vector<Communicator::Ticket> tickets;
  for (int r = 0; r < ranks; ++r) {
    if (r == self) continue;
    tickets.push_back(communicator_.receive(Rank(r), tag, {reinterpret_cast<std::byte*>(&all[static_cast<std::size_t>(r)]), sizeof(double)}));
    tickets.push_back(communicator_.send(Rank(r), tag, {reinterpret_cast<std::byte*>(&number), sizeof(double)}));
  }
  for (const auto ticket : tickets) communicator_.wait(ticket);
  all[static_cast<std::size_t>(self)] = number;
  double sum = 0;
  for (const double n : all) sum += n;
  return sum;
}

void Reducer::update(double gradientScale, StepLog& log) {
  for (const auto& [stage, module] : stages_) {
    const Mark begin = device_.mark();
    for (const Reduction& reduction : reductions_) {
      for (const std::size_t member : reduction.own) {
        if (reduction.members[member].stage != stage) continue;
        const std::int64_t elements = elementsOf(groupOf(reduction, member));
        std::pair<std::int64_t, std::int64_t> range{0, elements};
        if (reduction.pieces) range = std::ranges::count(reduction.updaters, member) > 0 ? piece(reduction, member, elements) : std::pair<std::int64_t, std::int64_t>{0, 0};
        module->optimizerStep(reduction.groupOf.at(member), range.first, range.second, gradientScale);
      }
    }
    log.spans.push_back({rank_, SpanKind::Optimizer, stage, Microbatch(-1), rank_, 0, begin, device_.mark()});
  }
  for (Reduction& reduction : reductions_) {
    if (reduction.pieces) gather(reduction, true);
  }
}

}  // namespace pw
