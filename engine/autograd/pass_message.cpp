#include "engine/autograd/pass_message.h"

#include <utility>

#include "backends/host/packed.h"
#include "engine/remote/value_wire.h"
#include "schedules/error.h"

namespace pw {
namespace {

template <class List, class Add>
void addList(Packer& out, const List& list, const Add& add) {
  out.add(static_cast<std::uint32_t>(list.size()));
  for (const auto& element : list) add(element);
}

/// Each element takes at least one byte, so a count larger than what is left is damaged.
template <class Take>
void takeList(Unpacker& in, const Take& take) {
  const auto count = in.next<std::uint32_t>();
  if (count > in.left()) throw Error("a message of a backward pass is cut off");
  for (std::uint32_t i = 0; i < count && in.isSound(); ++i) take();
}

}  // namespace

std::string writeMessage(const PassMessage& message, const AutogradFunctions& functions, std::vector<HeldBuffer>& parts) {
  Packer out;
  out.add(static_cast<std::uint8_t>(message.step));
  out.add(message.context.value);
  out.add(message.pass.value);
  for (const bool flag : {message.keepGraph, message.all, message.waits}) out.add(flag);
  addList(out, message.shares, [&](Share share) { out.add(share.exponent); });
  addList(out, message.messages, [&](AutogradMessageId id) { out.add(id.value); });
  addList(out, message.gradients, [&](const TensorHandle& gradient) { writeTensor(out, parts, gradient, functions); });
  if (message.step == PassStep::Failed) {
    for (const std::string* text : {&message.type, &message.text, &message.worker}) out.add(*text);
  }
  if (message.step == PassStep::Answer) {
    for (const auto* numbers : {&message.sent, &message.received}) addList(out, *numbers, [&](std::uint64_t number) { out.add(number); });
  }
  return out.finish();
}

PassMessage readMessage(std::string_view body, std::vector<HeldBuffer> parts, const AutogradFunctions& functions) {
  Unpacker in(body);
  PassMessage message;
  message.step = static_cast<PassStep>(in.within<std::uint8_t>(0, static_cast<std::uint8_t>(PassStep::Answer)));
  in.take(message.context.value);
  in.take(message.pass.value);
  for (bool* flag : {&message.keepGraph, &message.all, &message.waits}) in.take(*flag);
  std::size_t next = 0;
  takeList(in, [&] { message.shares.push_back(Share{in.within<int>(0, 1 << 30)}); });
  takeList(in, [&] { message.messages.emplace_back(in.next<std::uint64_t>()); });
  takeList(in, [&] { message.gradients.push_back(readTensor(in, parts, next, functions)); });
  if (message.step == PassStep::Failed) {
    for (std::string* text : {&message.type, &message.text, &message.worker}) in.take(*text);
  }
  if (message.step == PassStep::Answer) {
    for (auto* numbers : {&message.sent, &message.received}) takeList(in, [&] { numbers->push_back(in.next<std::uint64_t>()); });
  }
  if (!in.isComplete() || next != parts.size()) throw Error("a message of a backward pass is damaged");
  return message;
}

}  // namespace pw
