#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/tags.h"
#include "schedules/error.h"

namespace pw::test {

/// Collectives of float64 over the messages of another communicator, which must keep the order of messages. As with NCCL, ranks match
/// collectives by order alone: if orders differ, a wait throws. Undefined results are not a number.
class CollectiveCommunicator final : public Communicator {
 public:
  explicit CollectiveCommunicator(std::unique_ptr<Communicator> inner, bool offers = true) : inner_(std::move(inner)), offers_(offers) {}

  [[nodiscard]] JobRank rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override {
    ++messages;
    return inner_->send(to, tag, buffer);
  }
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override { return inner_->receive(from, tag, buffer); }
  void wait(Request request) override {
    if (const auto found = collectives_.extract(request)) return end(found.mapped());
    inner_->wait(request);
  }
  [[nodiscard]] std::optional<bool> isDone(Request request) override { return request >= kFirst ? std::nullopt : inner_->isDone(request); }
  [[nodiscard]] std::size_t waitAny(std::span<const Request> requests) override { return inner_->waitAny(requests); }
  void progress() override { inner_->progress(); }
  void barrier() override { inner_->barrier(); }
  void abort() noexcept override { inner_->abort(); }

  [[nodiscard]] std::optional<Request> startCollective(Collective what, std::span<const JobRank> group, DType dtype,
                                                       Buffer buffer) override {
    asked.push_back({what, {group.begin(), group.end()}});
    if (!offers_ || dtype != DType::Float64) return std::nullopt;
    const Request request = kFirst + next_++;
    Begun& begun = collectives_[request];
    begun = {what, {group.begin(), group.end()}, buffer, {}, {}};
    begun.all.resize(group.size());
    std::vector<double> own = headOf(begun);
    own.insert(own.end(), numbers(buffer).begin(), numbers(buffer).end());
    for (std::size_t k = 0; k < group.size(); ++k) {
      begun.all[k] = own;
      const Buffer part{reinterpret_cast<std::byte*>(begun.all[k].data()), own.size() * sizeof(double)};
      if (group[k] == rank()) continue;
      inner_->wait(inner_->send(group[k], kTag, {reinterpret_cast<std::byte*>(own.data()), part.bytes}));
      begun.requests.push_back(inner_->receive(group[k], kTag, part));
    }
    return request;
  }

  struct Asked {
    Collective what;
    std::vector<JobRank> group;
    bool operator==(const Asked&) const = default;
  };
  std::vector<Asked> asked;  ///< of `startCollective`
  int messages = 0;          ///< sent, beside those of collectives

 private:
  static constexpr Request kFirst = Request{1} << 62;
  static constexpr std::uint32_t kTag = kTestTags.first;
  struct Begun {
    Collective what{};
    std::vector<JobRank> group;
    Buffer buffer;
    std::vector<std::vector<double>> all;  ///< the members' data, after what they have posted
    std::vector<Request> requests;
  };
  static std::span<double> numbers(Buffer buffer) { return {reinterpret_cast<double*>(buffer.data), buffer.bytes / sizeof(double)}; }
  static std::vector<double> headOf(const Begun& begun) {
    std::vector<double> head{static_cast<double>(begun.what)};
    for (const JobRank member : begun.group) head.push_back(member.value);
    return head;
  }

  void end(const Begun& begun) {
    for (const Request request : begun.requests) inner_->wait(request);
    const std::vector<double> head = headOf(begun);
    const std::span<double> values = numbers(begun.buffer);
    const std::size_t members = begun.group.size(), n = values.size();
    for (const auto& other : begun.all) {
      if (!std::equal(head.begin(), head.end(), other.begin())) throw Error("two ranks began their collectives in different orders");
    }
    for (std::size_t k = 0; k < members; ++k) {
      for (std::size_t i = k * n / members; i < (k + 1) * n / members; ++i) {
        const auto of = [&](std::size_t member) { return begun.all[member][head.size() + i]; };
        double sum = 0;
        for (std::size_t member = 0; member < members; ++member) sum += of(member);
        switch (begun.what) {
          case Collective::AllReduce: values[i] = sum; break;
          case Collective::ReduceScatter: values[i] = begun.group[k] == rank() ? sum : std::nan(""); break;
          case Collective::AllGather: values[i] = of(k); break;
        }
      }
    }
  }

  std::unique_ptr<Communicator> inner_;
  bool offers_;
  Request next_ = 0;
  std::map<Request, Begun> collectives_;
};

}  // namespace pw::test
