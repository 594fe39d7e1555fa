#include "engine/autograd/linked_worker.h"

#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "backends/messages/channel/message_channel.h"
#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

using std::chrono::milliseconds;

/// How long a worker that leaves waits for its last messages to be handled.
constexpr milliseconds kLastMessages{2000};

/// A number for the job's messages out of its secret.
std::uint64_t tokenNumber(const std::string& token) {
  const auto digest = Sha256().addField("remote calls").addField(token).finish();
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

}  // namespace

/// The first messages come, and are answered, while this thread is still making the channel: those who answer wait for it.
Remote::Send LinkedWorker::sender(Sends sends) {
  return
      [channel = channelOnceConnected_, sends = std::move(sends), maker = std::this_thread::get_id()](JobRank to, ChannelMessage message) {
        if (std::this_thread::get_id() == maker && channel.wait_for(milliseconds(0)) != std::future_status::ready)
          throw UsageError("This worker is not connected yet; make calls after it has been made, not while its functions are defined.");
        if (sends && !sends(to, message)) return;
        if (MessageChannel* connected = channel.get()) connected->send(to, std::move(message));
      };
}

LinkedWorker::LinkedWorker(RemoteSettings settings, const LinkMaker& link, milliseconds lostAfter, const Define& define, Sends sends) {
  settings.token = tokenNumber(link.token);
  remote_ = std::make_unique<Remote>(std::move(settings), sender(std::move(sends)));
  autograd_ = std::make_unique<DistributedAutograd>(*remote_);
  try {
    if (define) define(*remote_, *autograd_);
    channel_ = std::make_unique<MessageChannel>(
        link, [this](JobRank from, ChannelMessage message) { remote_->deliver(from, std::move(message)); },
        [this](JobRank worker, const std::string& why) { remote_->lost(worker, why); }, ChannelOptions{.lostAfter = lostAfter});
  } catch (...) {  // no destructor runs for what was connected already
    leave();
    throw;
  }
  connected_.set_value(channel_.get());
}

/// First no message comes in any more, then what waits for messages ends.
void LinkedWorker::leave() {
  const std::lock_guard lock(leaving_);
  if (std::exchange(hasLeft_, true)) return;
  channel_ != nullptr ? static_cast<void>(channel_->close(kLastMessages)) : connected_.set_value(nullptr);
  remote_->close();
}

LinkedWorker::~LinkedWorker() { leave(); }

}  // namespace pw
