#include "engine/dynamic/rank_calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/channel/message_channel.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

/// How long a rank that leaves waits for its last messages to be handled.
constexpr std::chrono::milliseconds kLastMessages{2000};
/// A rank is not lost before it has been silent for so long, however short the waits may be.
constexpr std::chrono::milliseconds kShortestLoss{10'000};

/// A number for the job's messages out of its secret.
std::uint64_t tokenNumber(const std::string& token) {
  const auto digest = Sha256().addField("calls between ranks").addField(token).finish();
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

}  // namespace

RankCalls::RankCalls(const LinkMaker& link, const AutogradFunctions& functions, std::chrono::milliseconds deadline, const Define& define) {
  RemoteSettings settings;
  settings.self = link.rank;
  settings.token = tokenNumber(link.token);
  settings.deadline = deadline;
  settings.functions = &functions;
  for (int rank = 0; rank < link.size; ++rank) settings.names.push_back(fmt::format("rank {}", rank));
  // The first messages come, and are answered, while the channel is still being made.
  remote_ = std::make_unique<Remote>(settings, [connected = connected_.get_future().share()](JobRank to, ChannelMessage message) {
    if (MessageChannel* channel = connected.get()) channel->send(to, std::move(message));
  });
  autograd_ = std::make_unique<DistributedAutograd>(*remote_);
  define(*remote_, *autograd_);
  try {
    channel_ = std::make_unique<MessageChannel>(
        link, [this](JobRank from, ChannelMessage message) { remote_->deliver(from, std::move(message)); },
        [this](JobRank rank, const std::string& why) { remote_->lost(rank, why); },
        ChannelOptions{.lostAfter = std::max(kShortestLoss, deadline)});
  } catch (...) {
    connected_.set_value(nullptr);  // nobody waits for it any more
    remote_->close();
    throw;
  }
  connected_.set_value(channel_.get());
}

void RankCalls::leave() {
  channel_->close(kLastMessages);
  remote_->close();
}

RankCalls::~RankCalls() {
  leave();
  autograd_.reset();
  remote_.reset();
}

}  // namespace pw
