#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backends/stages/stage_module.h"
#include "backends/torch/program/program.h"
#include "backends/torch/stage/stage.h"

namespace c10 {
struct Device;
}
namespace at {
class Tensor;
using c10::Device;
}  // namespace at

namespace pw {

class CheckpointFile;
class Optimizer;
struct OptimizerPiece;

/// Parameters, gradients, buffers, constants and optimizer state of one stage. Trained parameters of a group (see ParameterGroup) lie one
/// after the other in one flat tensor, their gradients in another, so that a group is reduced and updated as a whole.
class StageParameters {
 public:
  StageParameters(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options);
  ~StageParameters();
  StageParameters(const StageParameters&) = delete;
  StageParameters& operator=(const StageParameters&) = delete;

  /// Clears the gradients; those that autograd accumulates are set to zero.
  void beginStep(int step);
  /// Puts parameters, buffers and constants into a frame, by value.
  void fill(Frame& frame) const;
  /// By value index, for ProgramOptions.
  [[nodiscard]] std::vector<ParameterGradient> gradients();
  /// Adds to each trained parameter's gradient what this returns for it; undefined: nothing.
  void add(const std::function<at::Tensor(const at::Tensor& parameter)>& gradientOf);
  /// Autograd itself accumulates the gradients of these parameters, so they are set to zero at the begin of each step.
  void addedByAutograd(const std::vector<ValueId>& parameters);
  /// From the next step on all gradients start from zero and every addition accumulates; otherwise the first of a step overwrites, which
  /// saves a pass over the gradients.
  void addFromZero() { fromZero_ = true; }
  [[nodiscard]] at::Device device() const;

  /// On the device; what `parameters` and `state` return is on the host, of a GPU a copy that stays until the next call.
  [[nodiscard]] std::vector<ParameterGroup> groups();
  void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale);
  void setOptimizer(const OptimizerSpec& optimizer);  ///< see StageModule
  [[nodiscard]] std::vector<ParameterView> parameters();
  [[nodiscard]] std::vector<StatePiece> state();
  /// Restores the buffers from the start of the step, if they are kept.
  void undoBuffers();

 private:
  struct Parameter;
  struct Group;
  struct Fixed;
  /// A trained parameter in the order of the groups (`StageModule::groups`), each by element type.
  struct Place {
    std::size_t shared = 0;               ///< its index and 1; 0: not shared
    std::optional<std::size_t> summed{};  ///< as of ParameterGroup
    DType dtype = DType::Unknown;
    std::size_t parameter = 0;  ///< of `parameters_`

    auto operator<=>(const Place&) const = default;
  };

  void arrange(const ModelGraph& graph, const Plan& plan, Stage stage);
  [[nodiscard]] std::vector<Place> addParameters(const ModelGraph& graph, const Plan& plan, Stage stage);
  void addGroup(const ModelGraph& graph, std::span<const Place> places);
  void read(const ModelGraph& graph, const StageSpec& spec, const StageOptions& options);
  void settle();
  void resumeOptimizer(std::size_t group);
  void takeGroups(const OptimizerSpec& optimizer);
  [[nodiscard]] std::vector<OptimizerPiece> piecesOf(std::size_t group, std::int64_t first, std::int64_t last) const;
  [[nodiscard]] at::Tensor unread(const StateTensor& state) const;

  [[nodiscard]] Buffer onHost(const at::Tensor& tensor);

  const ModelGraph& graph_;
  std::vector<const StateTensor*> unread_;  // parts of the model's state dict that belong to no stage; held by the first stage
  bool random_;
  std::uint64_t seed_;
  bool resetsOptimizer_;
  std::size_t values_;
  int device_;
  std::vector<at::Tensor> copies_;  // for the host
  std::vector<Parameter> parameters_;
  std::vector<Group> groups_;
  std::vector<Fixed> fixed_;  // buffers and constants
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<CheckpointFile> resume_;
  std::set<std::size_t> resumed_;  // groups whose optimizer state was taken from it
  int step_ = 0;
  bool fromZero_ = false;
  bool keepsBuffers_ = false;
  std::vector<at::Tensor> kept_;  // copies, in the order of `fixed_`
};

}  // namespace pw
