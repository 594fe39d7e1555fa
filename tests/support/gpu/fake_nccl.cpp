#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/support/collectives.h"
#include "tests/support/gpu/fake_cuda.h"

using pw::Buffer;
using pw::DType;

namespace pw::test {

enum class Call : std::uint8_t { Send, Receive, AllReduce, ReduceScatter, AllGather, Reduce, Broadcast };

/// An operation that one member of a communicator posted.
struct Asked {
  Call call = Call::Send;
  const void* from = nullptr;
  void* into = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  int root = 0;  ///< of a message: the other
};

/// The operations of all members that meet.
struct Meeting {
  std::map<int, Asked> members;
  bool done = false;
};

/// What the members of a communicator share.
struct Clique {
  int members = 0;
  std::set<int> joined;
  std::set<int> leaving;
  std::map<std::pair<int, std::size_t>, Meeting> meetings;  ///< by number of the call and place in its group
};

/// One member's part.
struct Member {
  std::shared_ptr<Clique> clique;
  int place = 0, gpu = 0;
  int calls = 0;
  ncclResult_t error = ncclSuccess;
  std::uint64_t asks = 0;      ///< until NCCL has done what it is at
  std::function<void()> next;  ///< then
  bool connecting = true, leaving = false, aborted = false;
  std::shared_ptr<Moment> last;  ///< when its operations so far are over; null: it had none
};

namespace {

DType dtypeOf(ncclDataType_t type) {
  switch (static_cast<int>(type)) {
    case ncclInt8: return DType::Int8;
    case ncclInt32: return DType::Int32;
    case ncclInt64: return DType::Int64;
    case ncclFloat16: return DType::Float16;
    case ncclFloat32: return DType::Float32;
    case ncclFloat64: return DType::Float64;
    case ncclBfloat16: return DType::BFloat16;
    default: return DType::UInt8;
  }
}

std::size_t bytesOf(const Asked& asked) { return asked.count * widthOf(dtypeOf(asked.type)); }

/// All members came: their memory is read and written.
void perform(FakeCuda& cuda, const Meeting& meeting) {
  const Asked& first = meeting.members.begin()->second;
  const std::size_t ranks = meeting.members.size(), bytes = bytesOf(first);
  for (const auto& [place, asked] : meeting.members) {
    if (bytesOf(asked) != bytes) return cuda.violate("operations of two sizes met");
    const auto isGone = [&cuda](const void* memory) { return memory != nullptr && !cuda.isAlive(memory); };
    if (isGone(asked.from) || isGone(asked.into)) return cuda.violate("memory freed while an operation uses it, or not of the device");
    if (first.call > Call::Receive && (asked.call != first.call || asked.type != first.type || asked.root != first.root)) {
      return cuda.violate("collectives of two kinds met");
    }
  }
  if (first.call <= Call::Receive) {
    const Asked& second = meeting.members.at(1);
    if (first.call != Call::Send || second.call != Call::Receive) return cuda.violate("a send met no receive");
    std::memcpy(second.into, first.from, bytes);
    return;
  }
  const auto given = [&](int place) { return Buffer{static_cast<std::byte*>(const_cast<void*>(meeting.members.at(place).from)), bytes}; };
  std::vector<std::byte> sum(first.call == Call::ReduceScatter ? bytes * ranks : bytes);
  const std::size_t inputs = first.call == Call::ReduceScatter ? bytes * ranks : bytes;
  std::memcpy(sum.data(), given(0).data, inputs);
  if (first.call == Call::AllReduce || first.call == Call::Reduce || first.call == Call::ReduceScatter) {
    for (int place = 1; place < static_cast<int>(ranks); ++place)
      sumInto(dtypeOf(first.type), {sum.data(), inputs}, {given(place).data, inputs});
  } else if (first.call == Call::Broadcast) {
    std::memcpy(sum.data(), given(first.root).data, bytes);
  } else {
    sum.resize(bytes * ranks);
    for (int place = 0; place < static_cast<int>(ranks); ++place)
      std::memcpy(sum.data() + static_cast<std::size_t>(place) * bytes, given(place).data, bytes);
  }
  for (const auto& [place, asked] : meeting.members) {
    if (first.call == Call::Reduce && place != first.root) continue;
    if (first.call == Call::ReduceScatter)
      std::memcpy(asked.into, sum.data() + static_cast<std::size_t>(place) * bytes, bytes);
    else
      std::memcpy(asked.into, sum.data(), sum.size());
  }
}

/// A stream's part of an operation: it waits until the others have come.
void meet(FakeCuda& cuda, const CUstream_st& stream, const Member& member, std::pair<int, std::size_t> number, const Asked& asked) {
  std::unique_lock lock(cuda.mutex);
  Meeting& meeting = member.clique->meetings[number];
  if (member.aborted || stream.ending) return;
  meeting.members[member.place] = asked;
  if (static_cast<int>(meeting.members.size()) == member.clique->members) {
    perform(cuda, meeting);
    meeting.done = true;
    cuda.changed.notify_all();
  }
  cuda.changed.wait(lock, [&] { return meeting.done || member.aborted || stream.ending; });
  if (!meeting.done) meeting.members.erase(member.place);
}

/// A group call of one thread.
struct Group {
  int depth = 0;
  std::shared_ptr<Member> member;
  cudaStream_t stream = nullptr;
  std::vector<Asked> asked;
  std::vector<std::shared_ptr<Member>> aborted;
};
thread_local Group group;

}  // namespace
}  // namespace pw::test

struct ncclComm {
  std::shared_ptr<pw::test::Member> member;
};

namespace pw::test {
namespace {

/// What a communicator is at; each call is one ask.
ncclResult_t stateOf(Member& member) {
  if (member.error != ncclSuccess) return member.error;
  if (member.connecting && static_cast<int>(member.clique->joined.size()) < member.clique->members) return ncclInProgress;
  if (member.leaving && static_cast<int>(member.clique->leaving.size()) < member.clique->members) return ncclInProgress;
  if (member.asks > 0) {
    --member.asks;
    return ncclInProgress;
  }
  member.connecting = false;
  if (const auto next = std::exchange(member.next, nullptr)) next();
  return ncclSuccess;
}

bool isBusy(const Member& member) { return member.connecting || member.asks > 0 || member.next; }

/// As NCCL's abort, which returns when what its communicator has on a stream is over.
void awaitEnd(FakeCuda& cuda, const Member& member) {
  std::unique_lock lock(cuda.mutex);
  if (!cuda.changed.wait_for(lock, std::chrono::seconds(10), [&] { return !member.last || member.last->done; }))
    cuda.violate("an abort that never returns");
}

/// Of the mutex's holder.
ncclResult_t refuse(FakeCuda& cuda, const std::string& why) {
  cuda.violate(why);
  return ncclInvalidArgument;
}

ncclResult_t endGroup() {
  FakeCuda& cuda = FakeCuda::current();
  if (--group.depth > 0) return ncclSuccess;
  const Group all = std::exchange(group, {});
  for (const auto& member : all.aborted) awaitEnd(cuda, *member);
  if (all.asked.empty()) return ncclSuccess;
  const std::lock_guard lock(cuda.mutex);
  const auto member = all.member;
  const auto put = [&cuda, member, stream = all.stream, asked = all.asked, number = member->calls++] {
    const auto over = member->last = std::make_shared<Moment>();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      stream->add([&cuda, member, stream, number = std::pair(number, i), one = asked[i]] { meet(cuda, *stream, *member, number, one); });
    }
    stream->add([&cuda, over] {
      const std::lock_guard reached(cuda.mutex);
      over->done = true;
    });
  };
  if (cuda.random() % 2 == 0) {
    put();
    return ncclSuccess;
  }
  ++cuda.counted.inProgress;
  member->asks = 1 + cuda.random() % 5;
  member->next = put;
  return ncclInProgress;
}

ncclResult_t ask(const char* function, ncclComm_t communicator, cudaStream_t stream, const Asked& asked) {
  {
    FakeCuda& cuda = FakeCuda::current();
    const std::lock_guard lock(cuda.mutex);
    if (!cuda.communicators.contains(communicator)) return refuse(cuda, "an operation of a communicator that is gone");
    Member& member = *communicator->member;
    if (member.error != ncclSuccess) return member.error;
    if (isBusy(member)) return refuse(cuda, "an operation while the one before is in progress");
    int gpu = 0;
    static_cast<void>(cudaGetDevice(&gpu));
    if (gpu != member.gpu || stream->gpu != member.gpu) return refuse(cuda, "an operation of one GPU enqueued on another");
    ++cuda.counted.asked[function];
    if (group.member && (group.member != communicator->member || group.stream != stream))
      return refuse(cuda, "two communicators in a group");
    group.member = communicator->member;
    group.stream = stream;
    group.asked.push_back(asked);
    ++group.depth;
  }
  return endGroup();
}

}  // namespace

void FakeCuda::fail(int error, const std::string& last) {
  const std::lock_guard lock(mutex);
  words = last;
  for (const void* const communicator : communicators)
    static_cast<const ncclComm*>(communicator)->member->error = static_cast<ncclResult_t>(error);
}

}  // namespace pw::test

using namespace pw::test;  // NOLINT: the functions below are the library's

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  std::memset(id, 0, sizeof *id);
  const std::uint64_t number = cuda.random();
  std::memcpy(id, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int members, ncclUniqueId id, int place, ncclConfig_t* config) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (config == nullptr || config->blocking != 0) return refuse(cuda, "a communicator that blocks");
  auto& known = cuda.cliques[std::string(id.internal, sizeof id.internal)];
  std::shared_ptr<Clique> clique = known.lock();
  if (!clique) {
    known = clique = std::make_shared<Clique>();
    clique->members = members;
  }
  if (clique->members != members || !clique->joined.insert(place).second || place < 0 || place >= members)
    return refuse(cuda, "a member that does not fit");
  auto member = std::make_shared<Member>();
  member->clique = std::move(clique);
  member->place = place;
  static_cast<void>(cudaGetDevice(&member->gpu));
  member->asks = cuda.random() % 6;
  *communicator = new ncclComm{std::move(member)};
  cuda.communicators.insert(*communicator);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (!cuda.communicators.contains(communicator)) return refuse(cuda, "the state of a communicator that is gone");
  *state = stateOf(*communicator->member);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  Member& member = *communicator->member;
  if (isBusy(member)) return refuse(cuda, "the end of a communicator with something in progress");
  member.leaving = true;
  member.clique->leaving.insert(member.place);
  member.asks = cuda.random() % 4;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  FakeCuda& cuda = FakeCuda::current();
  const std::lock_guard lock(cuda.mutex);
  if (cuda.communicators.erase(communicator) == 0) return refuse(cuda, "a communicator destroyed twice");
  if (!communicator->member->leaving) cuda.violate("a communicator destroyed that was not finalized");
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  {
    FakeCuda& cuda = FakeCuda::current();
    const std::lock_guard lock(cuda.mutex);
    if (cuda.communicators.erase(communicator) == 0) return refuse(cuda, "a communicator aborted twice");
    ++cuda.counted.aborts;
    communicator->member->aborted = true;
    communicator->member->clique->leaving.insert(communicator->member->place);
    ++group.depth;
    group.aborted.push_back(communicator->member);
    delete communicator;
    cuda.changed.notify_all();
  }
  return endGroup();
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return FakeCuda::current().words.c_str(); }

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return endGroup(); }

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
  return ask("send", communicator, stream, {Call::Send, from, nullptr, count, type, peer});
}
ncclResult_t ncclRecv(void* into, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
  return ask("receive", communicator, stream, {Call::Receive, nullptr, into, count, type, peer});
}
ncclResult_t ncclAllReduce(const void* from, void* into, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t communicator,
                           cudaStream_t stream) {
  return ask("all-reduce", communicator, stream, {Call::AllReduce, from, into, count, type});
}
ncclResult_t ncclReduceScatter(const void* from, void* into, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t communicator,
                               cudaStream_t stream) {
  return ask("reduce-scatter", communicator, stream, {Call::ReduceScatter, from, into, count, type});
}
ncclResult_t ncclAllGather(const void* from, void* into, size_t count, ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream) {
  return ask("all-gather", communicator, stream, {Call::AllGather, from, into, count, type});
}
ncclResult_t ncclReduce(const void* from, void* into, size_t count, ncclDataType_t type, ncclRedOp_t, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  return ask("reduce", communicator, stream, {Call::Reduce, from, into, count, type, root});
}
ncclResult_t ncclBroadcast(const void* from, void* into, size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
                           cudaStream_t stream) {
  return ask("broadcast", communicator, stream, {Call::Broadcast, from, into, count, type, root});
}

}  // extern "C"
