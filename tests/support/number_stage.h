#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/messages/in_memory_communicator.h"
#include "backends/stages/stage_module.h"
#include "engine/executor.h"
#include "schedules/error.h"
#include "simulator/plan/plan.h"

namespace pw::test {

/// A stage without tensors: y = 2 · (sum of its inputs) + 1 goes out on all its transfers, the input of a stage without any is the
/// microbatch's number + 1; every input gets twice the sum of the output gradients, which is 1 more on the last stage. The loss is the sum
/// of the last y. Every parameter's gradient is the sum of the output gradients, element by element times its position + 1. Whatever breaks
/// the life of a microbatch that StageModule documents is an exception. All numbers are integers, so their order does not matter.
class NumberStage final : public StageModule {
 public:
  using Slot = std::pair<std::size_t, Microbatch>;
  static constexpr int kElements = 5;

  NumberStage(const Plan& plan, Stage stage, int replica) : plan_(plan), stage_(stage), replica_(replica) {
    own_.push_back({std::nullopt, std::vector<double>(kElements, 1), std::vector<double>(kElements)});
    for (std::size_t s = 0; s < plan.partition.shared.size(); ++s) {
      const auto& stages = plan.partition.shared[s].stages;
      if (std::ranges::count(stages, stage) > 0) own_.push_back({s, std::vector<double>(kElements, 1), std::vector<double>(kElements)});
    }
  }

  const Device& device() const override { return on != nullptr ? *on : hostDevice(); }
  void beginStep(int /*step*/, StepMode mode) override {
    mode_ = mode;
    loss_ = 0;
    flights_.clear();
    done.clear(), given.clear(), taken.clear(), allocated.clear(), ranges.clear();
    for (Group& group : own_) std::ranges::fill(group.gradients, 0);
  }

  HeldBuffer allocate(std::size_t t, Microbatch m) override {
    require(allocated.insert({t, m}).second, "allocates twice");
    return hold(std::make_shared<double>(std::nan("")));
  }
  void setInput(std::size_t t, Microbatch m, HeldBuffer value) override {
    require(plan_.partition.transfers.at(t).to == stage_ && !flights_[m].ran, "an input comes too late, or is another stage's");
    given[{t, m}] = value.buffer.data;
    require(flights_[m].inputs.emplace(t, std::move(value)).second, "an input comes twice");
  }
  HeldBuffer takeOutput(std::size_t t, Microbatch m) override { return take(flights_.at(m).outputs, t, m); }
  void setOutputGradient(std::size_t t, Microbatch m, HeldBuffer gradient) override {
    require(plan_.partition.transfers.at(t).from == stage_ && plan_.partition.transfers[t].gradient && mode_ == StepMode::Train,
            "no gradient belongs here");
    require(!flights_.at(m).answered, "a gradient comes too late");
    given[{t, m}] = gradient.buffer.data;
    require(flights_[m].outputGradients.emplace(t, std::move(gradient)).second, "a gradient comes twice");
  }
  HeldBuffer takeInputGradient(std::size_t t, Microbatch m) override { return take(flights_.at(m).inputGradients, t, m); }

  void forward(Microbatch m) override {
    note('F', m);
    Flight& flight = flights_[m];
    require(!std::exchange(flight.ran, true), "runs a forward twice");
    double x = 0;
    bool any = false;
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].to != stage_) continue;
      any = true;
      require(flight.inputs.contains(t), "runs without an input");
      x += number(flight.inputs.at(t));
    }
    if (!any) x = replica_ * plan_.schedule.microbatches + m.value + 1;
    const double y = 2 * x + 1;
    const auto shared = std::make_shared<double>(y);  // all transfers of one value show the same memory
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      if (plan_.partition.transfers[t].from == stage_) flight.outputs.emplace(t, hold(shared));
    }
    if (isLast()) loss_ += y;
    if (mode_ == StepMode::Train) mostLive = std::max(mostLive, ++live_);
  }
  void backward(Microbatch m) override {
    note('B', m);
    addWeights(propagate(m));
    --live_;
  }
  void backwardInput(Microbatch m) override {
    note('I', m);
    flights_.at(m).deferred = propagate(m);
    mostWaiting = std::max(mostWaiting, ++waiting_);
  }
  void backwardWeight(Microbatch m) override {
    note('W', m);
    require(flights_.at(m).deferred.has_value(), "runs W before I");
    addWeights(*std::exchange(flights_.at(m).deferred, std::nullopt));
    --waiting_;
    --live_;
  }

  /// All gradients are times this; one of a parameter that is then larger than `largest` overflows.
  void setLossScale(double scale) override { scale_ = scale; }
  std::optional<double> stepLoss() const override { return isLast() ? std::optional<double>(loss_) : std::nullopt; }
  HeldBuffer takeModelOutput(std::size_t /*output*/, Microbatch /*m*/) override { return {}; }
  std::vector<ParameterGroup> groups() override {
    std::vector<ParameterGroup> groups;
    for (Group& group : own_)
      groups.push_back({group.shared, std::nullopt, DType::Float64, bufferOf(group.values), bufferOf(group.gradients)});
    return groups;
  }
  /// Half of the gradient is taken off.
  void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) override {
    ranges.push_back({group, first, last});
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i)
      own_.at(group).values[i] -= 0.5 * gradientScale * own_[group].gradients[i];
  }
  std::vector<ParameterView> parameters() override { return {}; }
  std::vector<StatePiece> state() override { return {}; }
  Bytes bytesAlive() const override { return 42; }
  Bytes peakBytes() override { return 43; }

  [[nodiscard]] const std::vector<double>& values(std::size_t group) const { return own_.at(group).values; }
  [[nodiscard]] std::vector<double>& values(std::size_t group) { return own_.at(group).values; }
  [[nodiscard]] std::vector<double>& gradients(std::size_t group) { return own_.at(group).gradients; }
  [[nodiscard]] Stage stage() const { return stage_; }

  struct Range {
    std::size_t group;
    std::int64_t first, last;
  };
  std::vector<std::string> done;            ///< actions of the step
  std::map<Slot, std::byte*> given, taken;  ///< memory by transfer and microbatch, values and gradients by direction of the transfer
  std::set<Slot> allocated;
  std::vector<Range> ranges;                                 ///< optimizer steps
  int mostLive = 0, mostWaiting = 0;                         ///< over all steps
  double largest = std::numeric_limits<double>::infinity();  ///< gradient of a parameter
  const Device* on = nullptr;                                ///< null: the host
  std::string failAt;                                        ///< the action that runs out of memory: "F2"
  std::vector<std::string>* log = nullptr;                   ///< also notes actions here

 private:
  struct Flight {
    std::map<std::size_t, HeldBuffer> inputs, outputs, outputGradients, inputGradients;
    bool ran = false, answered = false;
    std::optional<double> deferred;
  };
  struct Group {
    std::optional<std::size_t> shared;
    std::vector<double> values, gradients;
  };

  static void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
  }
  static HeldBuffer hold(const std::shared_ptr<double>& value) {
    return {{reinterpret_cast<std::byte*>(value.get()), sizeof(double)}, value};
  }
  static double number(const HeldBuffer& value) { return *reinterpret_cast<const double*>(value.buffer.data); }
  static Buffer bufferOf(std::vector<double>& numbers) {
    return {reinterpret_cast<std::byte*>(numbers.data()), numbers.size() * sizeof(double)};
  }
  [[nodiscard]] bool isLast() const { return stage_.index() + 1 == plan_.partition.stages.size(); }

  void note(char kind, Microbatch m) {
    const std::string action = kind + std::to_string(m.value);
    if (action == failAt) throw std::bad_alloc();
    done.push_back(action);
    if (log != nullptr)
      log->push_back(toString({stage_,
                               kind == 'F'   ? ActionKind::Forward
                               : kind == 'B' ? ActionKind::Backward
                               : kind == 'I' ? ActionKind::BackwardInput
                                             : ActionKind::BackwardWeight,
                               m}));
  }
  HeldBuffer take(std::map<std::size_t, HeldBuffer>& from, std::size_t t, Microbatch m) {
    require(from.contains(t), "a value is taken twice, or before it is there");
    taken[{t, m}] = from.at(t).buffer.data;
    return from.extract(t).mapped();
  }
  double propagate(Microbatch m) {
    Flight& flight = flights_.at(m);
    require(flight.ran && !std::exchange(flight.answered, true), "runs a backward before its forward, or twice");
    double gradient = isLast() ? scale_ : 0;
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      const Transfer& transfer = plan_.partition.transfers[t];
      if (transfer.from != stage_ || !transfer.gradient) continue;
      require(flight.outputGradients.contains(t), "runs without a gradient");
      gradient += number(flight.outputGradients.at(t));
    }
    for (std::size_t t = 0; t < plan_.partition.transfers.size(); ++t) {
      const Transfer& transfer = plan_.partition.transfers[t];
      if (transfer.to == stage_ && transfer.gradient) flight.inputGradients.emplace(t, hold(std::make_shared<double>(2 * gradient)));
    }
    flight.inputs.clear();
    flight.outputGradients.clear();
    return gradient;
  }
  void addWeights(double gradient) {
    for (Group& group : own_) {
      for (std::size_t i = 0; i < group.gradients.size(); ++i) {
        group.gradients[i] += gradient * static_cast<double>(i + 1);
        if (group.gradients[i] > largest) group.gradients[i] = std::numeric_limits<double>::infinity();
      }
    }
  }

  const Plan& plan_;
  Stage stage_;
  int replica_;
  StepMode mode_ = StepMode::Train;
  double loss_ = 0, scale_ = 1;
  int live_ = 0, waiting_ = 0;
  std::map<Microbatch, Flight> flights_;
  std::vector<Group> own_;
};

/// The plan of a schedule over a chain of stages; `skips` are further transfers (from, to, gradient).
struct Skip {
  int from, to;
  bool gradient;
};
inline Plan chainPlan(Schedule schedule, const std::vector<Skip>& skips = {}, int replicas = 1) {
  Plan plan;
  plan.replicas = replicas;
  const int stages = static_cast<int>(schedule.placement.stages());
  plan.schedule = std::move(schedule);
  plan.partition.stages.resize(static_cast<std::size_t>(stages));
  for (int s = 0; s + 1 < stages; ++s)
    plan.partition.transfers.push_back({ValueId(s), Stage(s), Stage(s + 1), true, Bytes(sizeof(double))});
  for (const Skip& skip : skips) {
    if (skip.to < stages && skip.from < skip.to)
      plan.partition.transfers.push_back({ValueId(skip.from), Stage(skip.from), Stage(skip.to), skip.gradient, Bytes(sizeof(double))});
  }
  return plan;
}

/// The result of running the stages one after the other: the loss, and by stage the sum of its output gradients over all microbatches.
struct Expected {
  double loss = 0;
  std::vector<double> gradients;
};
inline Expected expectedOf(const Plan& plan) {
  const std::size_t stages = plan.partition.stages.size();
  Expected expected;
  std::vector<double> gradient(stages);
  gradient.back() = 1;
  for (std::size_t s = stages; s-- > 0;) {
    for (const Transfer& t : plan.partition.transfers) {
      if (t.to.index() == s && t.gradient) gradient[t.from.index()] += 2 * gradient[s];
    }
  }
  const int microbatches = plan.replicas * plan.schedule.microbatches;
  for (const double g : gradient) expected.gradients.push_back(g * microbatches);
  for (int m = 0; m < microbatches; ++m) {
    std::vector<double> x(stages), y(stages);
    for (std::size_t s = 0; s < stages; ++s) {
      bool any = false;
      for (const Transfer& t : plan.partition.transfers) {
        if (t.to.index() != s) continue;
        any = true;
        x[s] += y[t.from.index()];
      }
      y[s] = 2 * (any ? x[s] : m + 1) + 1;
    }
    expected.loss += y.back();
  }
  return expected;
}

/// All ranks of a plan as threads, each with its number stages.
struct NumberJob {
  std::vector<std::map<Stage, std::unique_ptr<NumberStage>>> stages;  ///< by rank
  std::vector<StepLog> logs;
  std::vector<std::string> errors;

  [[nodiscard]] std::string firstError() const {
    for (const std::string& error : errors) {
      if (!error.empty()) return error;
    }
    return {};
  }
};

using Communicators = std::vector<std::unique_ptr<Communicator>>;

inline NumberJob prepareJob(const Plan& plan) {
  NumberJob job;
  const std::size_t pipeline = plan.schedule.rows.size(), ranks = static_cast<std::size_t>(worldSize(plan));
  job.stages.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t s = 0; s < plan.schedule.placement.stages(); ++s) {
      if (plan.schedule.placement.holds(Rank(r % pipeline), Stage(s)))
        job.stages[r][Stage(s)] = std::make_unique<NumberStage>(plan, Stage(s), static_cast<int>(r / pipeline));
    }
  }
  job.logs.resize(ranks);
  job.errors.resize(ranks);
  return job;
}

/// `work(executor, rank)` gives the log of its last step.
template <class Work>
void runJob(NumberJob& job, const Plan& plan, Communicators& communicators, const ExecutorOptions& options, Work work) {
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        std::map<Stage, StageModule*> modules;
        for (const auto& [stage, module] : job.stages[r]) modules[stage] = module.get();
        Executor executor(plan, modules, *communicators[r], options);
        job.logs[r] = work(executor, r);
      } catch (const std::exception& e) {
        job.errors[r] = e.what();
        communicators[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline NumberJob stepOf(const Plan& plan, const ExecutorOptions& options = {}, int steps = 1) {
  NumberJob job = prepareJob(plan);
  Communicators communicators = inMemoryCommunicators(worldSize(plan), std::chrono::seconds(20));
  runJob(job, plan, communicators, options, [&](Executor& executor, std::size_t) {
    for (int s = 0; s + 1 < steps; ++s) static_cast<void>(executor.step(s, {}));
    return executor.step(steps - 1, {});
  });
  return job;
}

}  // namespace pw::test
