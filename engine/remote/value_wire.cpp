#include "engine/remote/value_wire.h"

#include <algorithm>
#include <cstring>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kDeepest = 64;
constexpr int kMostDimensions = 64;  // as LibTorch has it

enum class Tag : std::uint8_t { None, False, True, Integer, Number, Text, Opaque, Tensor, Reference, List, Dict };

const AutogradFunctions& needed(const AutogradFunctions* functions) {
  if (functions == nullptr) throw UsageError("Tensors of remote calls need LibTorch; start the workers with it.");
  return *functions;
}

class Writer {
 public:
  Writer(SentValue& sent, const AutogradFunctions* functions, References& references, bool marks)
      : sent_(sent), functions_(functions), references_(references), marks_(marks) {}

  void write(const RemoteValue& value, int depth) {
    if (depth > kDeepest) throw UsageError("A value of a remote call has more than 64 lists in each other.");
    std::visit([&](const auto& content) { add(content, depth); }, value.content);
  }

 private:
  void tag(Tag tag) { sent_.head.add(static_cast<std::uint8_t>(tag)); }
  void add(std::monostate, int) { tag(Tag::None); }
  void add(bool value, int) { tag(value ? Tag::True : Tag::False); }
  void add(std::int64_t value, int) { tag(Tag::Integer), sent_.head.add(value); }
  void add(double value, int) { tag(Tag::Number), sent_.head.add(value); }
  void add(const std::string& value, int) { tag(Tag::Text), sent_.head.add(value); }
  void add(const Opaque& value, int) { tag(Tag::Opaque), sent_.head.add(value.bytes); }
  void add(const TensorHandle& value, int) {
    tag(Tag::Tensor);
    const bool marked = marks_ && value != nullptr && needed(functions_).needsGradient(value);
    sent_.head.add(marked);
    if (marked) sent_.needGradient.push_back(value);
    writeTensor(sent_.head, sent_.parts, value, needed(functions_));
  }
  void add(const Reference& value, int) {
    const SentReference reference = references_.send(value);
    sent_.shares.add(references_, reference);
    tag(Tag::Reference);
    sent_.head.add(reference.id.value);
    sent_.head.add(reference.owner.value);
    sent_.head.add(reference.share.exponent);
  }
  void add(const Local&, int) {
    throw UsageError("An object of a worker stays there; keep it as the value of a reference, and call functions on its owner with that.");
  }
  void add(const RemoteValue::List& values, int depth) {
    tag(Tag::List);
    sent_.head.add(std::uint64_t{values.size()});
    for (const RemoteValue& value : values) write(value, depth + 1);
  }
  void add(const RemoteValue::Dict& values, int depth) {
    tag(Tag::Dict);
    sent_.head.add(std::uint64_t{values.size()});
    for (const auto& [key, value] : values) {
      sent_.head.add(key);
      write(value, depth + 1);
    }
  }

  SentValue& sent_;
  const AutogradFunctions* functions_;
  References& references_;
  bool marks_;
};

struct Reader {
  Unpacker& head;
  std::vector<HeldBuffer>& parts;
  std::size_t& next;
  std::vector<TensorHandle>& needGradient;
  const AutogradFunctions* functions;
  References& references;

  RemoteValue read(int depth) {
    if (depth > kDeepest) throw Error("a value has too many lists in each other");
    const auto tag = static_cast<Tag>(head.within<std::uint8_t>(0, static_cast<std::uint8_t>(Tag::Dict)));
    switch (tag) {
      case Tag::None: return {};
      case Tag::False: return false;
      case Tag::True: return true;
      case Tag::Integer: return head.next<std::int64_t>();
      case Tag::Number: return head.next<double>();
      case Tag::Text: return head.next<std::string>();
      case Tag::Opaque: return Opaque{head.next<std::string>()};
      case Tag::Tensor: return tensor();
      case Tag::Reference: return reference();
      case Tag::List: return list(depth);
      case Tag::Dict: return dict(depth);
    }
    return {};
  }
  RemoteValue tensor() {
    const bool marked = head.next<bool>();
    TensorHandle tensor = readTensor(head, parts, next, needed(functions));
    if (marked && tensor != nullptr) needGradient.push_back(tensor);
    return tensor;
  }
  RemoteValue reference() {
    SentReference sent;
    sent.id.value = head.next<std::uint64_t>();
    head.take(sent.owner.value);
    sent.share.exponent = head.within<int>(0, 1 << 30);
    return head.isSound() ? RemoteValue(references.receive(sent)) : RemoteValue();
  }
  RemoteValue list(int depth) {
    const auto count = head.within<std::uint64_t>(0, head.left());  // each value takes a byte at least
    RemoteValue::List values;
    for (std::uint64_t i = 0; i < count && head.isSound(); ++i) values.push_back(read(depth + 1));
    return values;
  }
  RemoteValue dict(int depth) {
    const auto count = head.within<std::uint64_t>(0, head.left());
    RemoteValue::Dict values;
    for (std::uint64_t i = 0; i < count && head.isSound(); ++i) {
      std::string key = head.next<std::string>();
      values.emplace_back(std::move(key), read(depth + 1));
    }
    return values;
  }
};

}  // namespace

void writeValue(SentValue& sent, const RemoteValue& value, const AutogradFunctions* functions, References& references,
                bool marksGradients) {
  Writer(sent, functions, references, marksGradients).write(value, 0);
}

RemoteValue readValue(Unpacker& head, std::vector<HeldBuffer>& parts, std::size_t& next, std::vector<TensorHandle>& needGradient,
                      const AutogradFunctions* functions, References& references) {
  RemoteValue value = Reader{head, parts, next, needGradient, functions, references}.read(0);
  if (!head.isSound()) throw Error("a value is cut off");
  return value;
}

void writeTensor(Packer& head, std::vector<HeldBuffer>& parts, const TensorHandle& tensor, const AutogradFunctions& functions) {
  head.add(tensor != nullptr);
  if (tensor == nullptr) return;
  TensorImage image = functions.imageOf(tensor);
  head.add(static_cast<std::uint8_t>(image.dtype));
  head.add(image.onGpu);
  head.add(static_cast<std::uint8_t>(image.shape.size()));
  for (const std::int64_t size : image.shape) head.add(size);
  parts.push_back(std::move(image.memory));
}

TensorHandle readTensor(Unpacker& head, std::vector<HeldBuffer>& parts, std::size_t& next, const AutogradFunctions& functions) {
  if (!head.next<bool>()) return nullptr;
  TensorImage image;
  image.dtype = static_cast<DType>(head.within<std::uint8_t>(1, static_cast<std::uint8_t>(DType::BFloat16)));
  image.onGpu = head.next<bool>();
  const auto dimensions = head.within<std::uint8_t>(0, kMostDimensions);
  for (int i = 0; i < dimensions; ++i) image.shape.push_back(head.next<std::int64_t>());
  if (!head.isSound() || next >= parts.size()) throw Error("a tensor is cut off");
  image.memory = std::move(parts[next++]);
  return functions.tensorOf(image);
}

}  // namespace pw
