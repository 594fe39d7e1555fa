#include "backends/dumps/set_up.h"

#include <cstddef>
#include <map>
#include <tuple>

namespace pw::dumps {
namespace {

using hang::OpKind;
using hang::RecordedOp;

/// Greetings: runs of sent numbers and received tensors of one element, with a number in it; or with nothing else in the whole dump, if the
/// rank came no further than to its first receives.
void markGreetings(std::vector<RecordedOp>& ops, const std::vector<Form>& forms, const std::vector<std::size_t>& messages) {
  for (std::size_t begin = 0; begin < messages.size();) {
    bool number = false;
    std::size_t end = begin;
    for (; end < messages.size(); ++end) {
      const std::size_t op = messages[end];
      const bool sends = ops[op].kind == OpKind::Send;
      if (forms[op] != (sends ? Form::Number : Form::One)) break;
      number = number || sends;
    }
    const bool all = begin == 0 && end == messages.size();
    for (std::size_t m = begin; m < end && (number || all); ++m) ops[messages[m]].setsUp = true;
    begin = end + 1;
  }
}

/// Objects: a length, and right after it in its pair and direction bytes, or nothing yet.
void markObjects(std::vector<RecordedOp>& ops, const std::vector<Form>& forms, const std::vector<std::size_t>& messages) {
  std::map<std::tuple<std::size_t, JobRank, OpKind>, std::size_t> lengths;  // the last message of a pair, where it is a length
  for (const std::size_t op : messages) {
    const std::tuple pair{ops[op].group, ops[op].peer, ops[op].kind};
    const auto length = lengths.find(pair);
    if (length != lengths.end()) {
      if (forms[op] == Form::Bytes) ops[length->second].setsUp = ops[op].setsUp = true;
      lengths.erase(length);
    }
    if (forms[op] == Form::Length) lengths.emplace(pair, op);
  }
  for (const auto& [pair, op] : lengths) ops[op].setsUp = true;
}

}  // namespace

void markSetUp(std::vector<RecordedOp>& ops, const std::vector<Form>& forms) {
  std::vector<std::size_t> messages;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (hang::isMessage(ops[i].kind)) messages.push_back(i);
  }
  markGreetings(ops, forms, messages);
  markObjects(ops, forms, messages);
}

}  // namespace pw::dumps
