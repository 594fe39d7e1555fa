#include "engine/workers/remote_worker.h"

#include <atomic>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backends/messages/channel/in_memory_link.h"
#include "backends/messages/channel/message_channel.h"
#include "backends/torch/backend.h"
#include "engine/processes/connect.h"
#include "engine/processes/meeting.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

using std::chrono::milliseconds;

/// How long a worker that ends in good order waits for its last messages to be handled.
constexpr milliseconds kLastMessages{2000};

/// Who is in the job, and how this worker reaches them.
struct Connected {
  std::vector<std::string> names;
  LinkMaker link;
  std::optional<Meeting> meeting;  ///< of a job of several workers
};

std::string keyOf(const char* what, int rank) { return fmt::format("workers/{}/{}", what, rank); }

Connected meetWorkers(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const std::string& name) {
  if (environment.worldSize == 1) return {{name}, inMemoryLinks(1).front(), {}};
  const Rendezvous rendezvous = rendezvousOf(environment, settings.startDeadline);
  reportStartUp(environment, StartUp::Meeting);
  const Meeting meeting = openMeeting(rendezvous);
  agree(meeting, rendezvous,
        {{"the version of pipewright", PW_VERSION, PW_VERSION},
         {"the transport", std::string(nameOf(settings.transport)), std::string(nameOf(settings.transport))}});
  reportStartUp(environment, StartUp::Connecting);
  const KeyValueStore store = meeting.dictionary();
  store.set(keyOf("name", rendezvous.rank.value), name);
  std::vector<std::string> names;
  for (int r = 0; r < rendezvous.size; ++r) names.push_back(store.get(keyOf("name", r)));
  return {std::move(names), linkRanks(settings.transport, rendezvous, store, torchBackend()), meeting};
}

/// A number for the job's messages out of its secret.
std::uint64_t tokenNumber(const std::string& token) {
  const auto digest = Sha256().addField("remote calls").addField(token).finish();
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

/// Rank 0 serves the meeting until all have connected.
void leaveMeeting(const Meeting& meeting, const RankEnvironment& environment) {
  const KeyValueStore store = meeting.dictionary();
  store.set(keyOf("connected", environment.rank.value), "");
  if (environment.rank != JobRank(0)) return;
  for (int r = 0; r < environment.worldSize; ++r) (void)store.get(keyOf("connected", r));
}

}  // namespace

struct RemoteWorker::Parts {
  Parts() = default;
  ~Parts() { leave(); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  void leave();

  std::promise<MessageChannel*> connected;
  std::shared_future<MessageChannel*> channelOnceConnected{connected.get_future()};
  std::unique_ptr<Remote> remote;
  std::unique_ptr<DistributedAutograd> autograd;
  std::unique_ptr<MessageChannel> channel;
  std::atomic<bool> hasLeft = false;
};

/// First no message comes in any more, then what waits for messages ends.
void RemoteWorker::Parts::leave() {
  if (hasLeft.exchange(true) || remote == nullptr) return;
  if (channel != nullptr) {
    channel->close(kLastMessages);
  } else {
    connected.set_value(nullptr);
  }
  remote->close();
}

RemoteWorker::RemoteWorker(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const Define& define)
    : parts_(std::make_unique<Parts>()) {
  if (factsOf(settings.transport).onGpu)
    throw UsageError(fmt::format("Remote calls go over {}, not {}; tensors of GPUs travel through the memory of their hosts.",
                                 hostTransports(" or "), nameOf(settings.transport)));
  Connected job =
      meetWorkers(environment, settings, settings.name.empty() ? fmt::format("worker{}", environment.rank.value) : settings.name);
  Parts& parts = *parts_;
  parts.remote = std::make_unique<Remote>(RemoteSettings{.self = environment.rank,
                                                         .names = std::move(job.names),
                                                         .token = tokenNumber(environment.token),
                                                         .deadline = settings.deadline,
                                                         .runningCalls = settings.runningCalls,
                                                         .mostThreads = settings.mostThreads,
                                                         .functions = &torchBackend().autograd()},
                                          // The first messages come, and are answered, while the channel is still being made.
                                          [connected = parts.channelOnceConnected](JobRank to, ChannelMessage message) {
                                            if (MessageChannel* channel = connected.get()) channel->send(to, std::move(message));
                                          });
  parts.autograd = std::make_unique<DistributedAutograd>(*parts.remote);
  Remote& remote = *parts.remote;
  if (define) define(remote, *parts.autograd);
  parts.channel = std::make_unique<MessageChannel>(
      job.link, [&remote](JobRank from, ChannelMessage message) { remote.deliver(from, std::move(message)); },
      [&remote](JobRank worker, const std::string& why) { remote.lost(worker, why); }, ChannelOptions{.lostAfter = settings.lostAfter});
  parts.connected.set_value(parts.channel.get());
  if (job.meeting) leaveMeeting(*job.meeting, environment);
  reportStartUp(environment, StartUp::Done);
}

RemoteWorker::~RemoteWorker() = default;

Remote& RemoteWorker::remote() { return *parts_->remote; }
DistributedAutograd& RemoteWorker::autograd() { return *parts_->autograd; }

void RemoteWorker::shutdown(Remote::Deadline deadline) {
  try {
    parts_->remote->shutdown(deadline);
  } catch (...) {
    parts_->leave();
    throw;
  }
  parts_->leave();
}

void RemoteWorker::leave() { parts_->leave(); }

}  // namespace pw
