#include "engine/workers/remote_worker.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>
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
/// Where workers fail to connect, rank 0 serves the meeting for so long, so that the others can find out by themselves who is missing.
constexpr milliseconds kGoodbye{2000};

/// Who is in the job, and how this worker reaches them.
struct Connected {
  std::vector<std::string> names;
  LinkMaker link;
  std::optional<Meeting> meeting;  ///< of a job of several workers
};

std::string keyOf(const char* what, int rank) { return fmt::format("workers/{}/{}", what, rank); }

/// Rank 0, which serves the meeting, waits until all have come so far: one that goes on, or fails, ends the meeting for the others.
void waitForAll(const KeyValueStore& store, const RankEnvironment& environment, const char* what) {
  store.set(keyOf(what, environment.rank.value), "");
  if (environment.rank != JobRank(0)) return;
  for (int r = 0; r < environment.worldSize; ++r) (void)store.get(keyOf(what, r));
}

Connected meetWorkers(const RankEnvironment& environment, const RemoteWorkerSettings& settings, const std::string& name) {
  if (environment.worldSize == 1) return {{name}, inMemoryLinks(1).front(), {}};
  const Rendezvous rendezvous = rendezvousOf(environment, settings.startDeadline);
  reportStartUp(environment, StartUp::Meeting);
  const Meeting meeting = openMeeting(rendezvous);
  const KeyValueStore store = meeting.dictionary();
  store.set(keyOf("name", rendezvous.rank.value), name);  // before they agree, so that nobody waits for it afterwards
  agree(meeting, rendezvous,
        {{"the version of pipewright", PW_VERSION, PW_VERSION},
         {"the transport", std::string(nameOf(settings.transport)), std::string(nameOf(settings.transport))}});
  std::vector<std::string> names;
  for (int r = 0; r < rendezvous.size; ++r) names.push_back(store.get(keyOf("name", r)));
  waitForAll(store, environment, "met");
  reportStartUp(environment, StartUp::Connecting);
  return {std::move(names), linkRanks(settings.transport, rendezvous, store, torchBackend()), meeting};
}

/// To be called by a worker that fails after the meeting.
void sayGoodbye(const Meeting& meeting, const RankEnvironment& environment) noexcept {
  const auto until = std::chrono::steady_clock::now() + kGoodbye;
  try {
    meeting.set(keyOf("failed", environment.rank.value), "");
    for (int r = 0; environment.rank == JobRank(0) && r < environment.worldSize; ++r) {
      const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
      (void)meeting.find(keyOf("failed", r), std::max(left, milliseconds(0)));
    }
  } catch (const std::exception&) {
    return;  // rank 0 is gone: nobody else waits for this worker's word
  }
}

/// A number for the job's messages out of its secret.
std::uint64_t tokenNumber(const std::string& token) {
  const auto digest = Sha256().addField("remote calls").addField(token).finish();
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number;
}

/// The first messages come, and are answered, while this thread is still making the channel: those who answer wait for it.
Remote::Send senderOver(std::shared_future<MessageChannel*> channel, std::function<bool(JobRank, const ChannelMessage&)> sends) {
  return [channel = std::move(channel), sends = std::move(sends), maker = std::this_thread::get_id()](JobRank to, ChannelMessage message) {
    if (std::this_thread::get_id() == maker && channel.wait_for(milliseconds(0)) != std::future_status::ready)
      throw UsageError("This worker is not connected yet; make calls after it has been made, not while its functions are defined.");
    if (sends && !sends(to, message)) return;
    if (MessageChannel* connected = channel.get()) connected->send(to, std::move(message));
  };
}

}  // namespace

struct RemoteWorker::Parts {
  Parts() = default;
  ~Parts() { leave(); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  void connect(const LinkMaker& link, milliseconds lostAfter);
  void leave();

  std::promise<MessageChannel*> connected;
  std::shared_future<MessageChannel*> channelOnceConnected{connected.get_future()};
  std::unique_ptr<MessageChannel> channel;  ///< goes last: threads of the others may send until they have gone
  std::unique_ptr<Remote> remote;
  std::unique_ptr<DistributedAutograd> autograd;
  std::mutex leaving;  ///< held until all has ended, so that who comes second may destroy it
  bool hasLeft = false;
};

void RemoteWorker::Parts::connect(const LinkMaker& link, milliseconds lostAfter) {
  channel = std::make_unique<MessageChannel>(
      link, [this](JobRank from, ChannelMessage message) { remote->deliver(from, std::move(message)); },
      [this](JobRank worker, const std::string& why) { remote->lost(worker, why); }, ChannelOptions{.lostAfter = lostAfter});
  connected.set_value(channel.get());
}

/// First no message comes in any more, then what waits for messages ends.
void RemoteWorker::Parts::leave() {
  const std::lock_guard lock(leaving);
  if (std::exchange(hasLeft, true) || remote == nullptr) return;
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
                                          senderOver(parts.channelOnceConnected, settings.sends));
  parts.autograd = std::make_unique<DistributedAutograd>(*parts.remote);
  try {
    if (define) define(*parts.remote, *parts.autograd);
    parts.connect(job.link, settings.lostAfter);
    if (job.meeting) waitForAll(job.meeting->dictionary(), environment, "connected");
  } catch (...) {
    if (job.meeting) sayGoodbye(*job.meeting, environment);
    throw;
  }
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
