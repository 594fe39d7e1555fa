#include "engine/checkpoint.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <optional>
#include <tuple>

#include "backends/checkpoints/safetensors.h"
#include "backends/checkpoints/writer.h"
#include "backends/host/packed.h"
#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Commands of rank 0; smaller numbers are positions in the peer's `own`.
constexpr std::uint64_t kDone = ~std::uint64_t{0}, kFailed = kDone - 1, kStillWriting = kDone - 2;
constexpr std::size_t kMostDimensions = 64;

/// Alternating messages between rank 0 and a peer; both sides count them, so each has a unique tag.
class Channel {
 public:
  Channel(Communicator& communicator, JobRank peer) : communicator_(communicator), peer_(peer) {}

  void send(Buffer buffer) { communicator_.wait(communicator_.send(peer_, tag_++, buffer)); }
  void receive(Buffer buffer) { communicator_.wait(communicator_.receive(peer_, tag_++, buffer)); }
  void send(std::uint64_t number) { send(Buffer{reinterpret_cast<std::byte*>(&number), sizeof(number)}); }
  std::uint64_t receiveNumber() {
    std::uint64_t number = 0;
    receive(Buffer{reinterpret_cast<std::byte*>(&number), sizeof(number)});
    return number;
  }
  void send(std::string text) {
    send(text.size());
    if (!text.empty()) send(Buffer{reinterpret_cast<std::byte*>(text.data()), text.size()});
  }
  std::string receiveText() {
    std::string text(receiveNumber(), '\0');
    if (!text.empty()) receive(Buffer{reinterpret_cast<std::byte*>(text.data()), text.size()});
    return text;
  }

 private:
  Communicator& communicator_;
  JobRank peer_;
  std::uint32_t tag_ = kStateTags.first;
};

/// What a rank holds, without the values: name, type, shape, first element and bytes of each piece.
std::string manifestOf(const std::vector<StatePiece>& pieces) {
  Packer packer;
  for (const StatePiece& piece : pieces) {
    packer.add(piece.name);
    packer.add(static_cast<std::int32_t>(piece.dtype));
    packer.add(std::uint64_t{piece.shape.size()});
    for (const std::int64_t size : piece.shape) packer.add(size);
    packer.add(piece.first);
    packer.add(std::uint64_t{piece.data.bytes});
  }
  return packer.finish();
}

std::vector<StatePiece> parseManifest(std::string_view bytes, int rank) {
  std::vector<StatePiece> pieces;
  Unpacker unpacker(bytes);
  while (unpacker.left() > 0) {
    StatePiece& piece = pieces.emplace_back();
    unpacker.take(piece.name);
    piece.dtype = static_cast<DType>(unpacker.within(0, static_cast<std::int32_t>(DType::BFloat16)));
    piece.shape.resize(unpacker.within(std::uint64_t{0}, std::uint64_t{kMostDimensions}));
    for (std::int64_t& size : piece.shape) unpacker.take(size);
    unpacker.take(piece.first);
    piece.data.bytes = unpacker.next<std::uint64_t>();
  }
  if (!unpacker.isComplete())
    throw Error(fmt::format("Rank {} sent an unreadable list of tensors; all ranks must run the same version.", rank));
  return pieces;
}

/// Elements [first, last) of a tensor, which lie in `own[index]` of a rank.
struct Part {
  std::int64_t first = 0, last = 0;
  int rank = 0;
  std::size_t index = 0;
};

/// A tensor of the file, and the parts it is assembled from.
struct FileTensor {
  StatePiece what;  ///< name, type and shape
  std::int64_t elements = 0;
  std::vector<Part> parts;
};

FileTensor describe(const StatePiece& piece, int rank) {
  FileTensor tensor{piece, 1, {}};
  for (const std::int64_t size : piece.shape) {
    if (size < 0 || __builtin_mul_overflow(tensor.elements, size, &tensor.elements)) {
      throw Error(fmt::format("Rank {} gave {} an impossible shape for the checkpoint.", rank, piece.name));
    }
  }
  return tensor;
}

/// Keeps only the parts that are needed to cover the tensor from the first element to the last.
void cover(FileTensor& tensor) {
  std::ranges::sort(tensor.parts, {}, [](const Part& part) { return std::tuple(part.first, part.rank, part.index); });
  std::int64_t covered = 0;
  std::vector<Part> needed;
  for (const Part& part : tensor.parts) {
    if (part.first > covered) break;
    if (part.last <= covered) continue;
    needed.push_back(part);
    covered = part.last;
  }
  if (covered != tensor.elements) {
    throw Error(
        fmt::format("The checkpoint would lack {} from element {} of {}: no rank holds it.", tensor.what.name, covered, tensor.elements));
  }
  tensor.parts = std::move(needed);
}

std::vector<FileTensor> mergePieces(const std::vector<std::vector<StatePiece>>& ranks) {
  std::vector<FileTensor> tensors;
  std::map<std::string, std::size_t> places;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t i = 0; i < ranks[rank].size(); ++i) {
      const StatePiece& piece = ranks[rank][i];
      const auto [place, isNew] = places.emplace(piece.name, tensors.size());
      if (isNew) tensors.push_back(describe(piece, static_cast<int>(rank)));
      FileTensor& tensor = tensors[place->second];
      const auto count = static_cast<std::int64_t>(piece.data.bytes) / std::max<std::int64_t>(1, widthOf(piece.dtype));
      if (piece.dtype != tensor.what.dtype || piece.shape != tensor.what.shape || piece.first < 0 ||
          piece.first > tensor.elements - count) {
        throw Error(
            fmt::format("Rank {} holds {} with a different type or shape from an earlier rank; plan the model again.", rank, piece.name));
      }
      tensor.parts.push_back({piece.first, piece.first + count, static_cast<int>(rank), i});
    }
  }
  std::ranges::for_each(tensors, cover);
  return tensors;
}

/// The sentence of the Error that `work` throws; empty without one. Caught here because all ranks must hear of it, not only rank 0.
std::string failureOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// `failureOf` work that may take longer than the peers' deadline, as a disk does: they hear meanwhile that it goes on.
std::string failureWhileTelling(std::vector<Channel>& peers, const std::function<void()>& work) {
  constexpr std::chrono::milliseconds kBetween{250};
  std::future<std::string> failure = std::async(std::launch::async, [&] { return failureOf(work); });
  while (failure.wait_for(kBetween) != std::future_status::ready) {
    for (Channel& peer : peers) peer.send(kStillWriting);
  }
  return failure.get();
}

/// The tensor's bytes on rank 0: its own memory where that holds all of it, else `memory`.
const std::byte* assemble(const FileTensor& tensor, const std::vector<StatePiece>& own, std::vector<Channel>& peers,
                          std::vector<std::byte>& memory) {
  if (tensor.parts.size() == 1 && tensor.parts.front().rank == 0) return own[tensor.parts.front().index].data.data;
  const std::size_t width = widthOf(tensor.what.dtype);
  memory.resize(static_cast<std::size_t>(tensor.elements) * width);
  for (const Part& part : tensor.parts) {
    const Buffer target{memory.data() + static_cast<std::size_t>(part.first) * width,
                        static_cast<std::size_t>(part.last - part.first) * width};
    if (part.rank == 0) {
      std::memcpy(target.data, own[part.index].data.data, target.bytes);
      continue;
    }
    Channel& peer = peers[static_cast<std::size_t>(part.rank) - 1];
    peer.send(part.index);
    peer.receive(target);
  }
  return memory.data();
}

void giveState(const std::string& path, const std::vector<StatePiece>& own, Channel channel, Communicator& communicator) {
  channel.send(manifestOf(own));
  while (true) {
    const std::uint64_t command = channel.receiveNumber();
    if (command == kStillWriting) continue;
    if (command == kDone) return communicator.barrier();
    if (command == kFailed) {
      const std::string failure = channel.receiveText();
      communicator.barrier();
      throw Error(failure);
    }
    if (command >= own.size()) throw Error(fmt::format("Rank 0 requested a tensor that this rank does not hold while saving {}.", path));
    channel.send(own[command].data);
  }
}

/// What all ranks hold, on every rank.
std::vector<std::vector<StatePiece>> manifestsOf(const std::vector<StatePiece>& own, Communicator& communicator) {
  struct Manifests {
    std::string own;
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> lengths;
    std::vector<std::string> texts;
  };
  const int size = communicator.size();
  std::vector<std::vector<StatePiece>> ranks(static_cast<std::size_t>(size));
  const MessageMemory<Manifests> posted(communicator, {manifestOf(own), 0, std::vector<std::uint64_t>(ranks.size()), {}});
  auto& [text, bytes, lengths, texts] = *posted;
  bytes = text.size();
  const auto toAll = [&](std::uint32_t tag, Buffer buffer, const auto& place) {
    std::vector<Communicator::Request> requests;
    for (int r = 0; r < size; ++r) {
      if (JobRank(r) == communicator.rank()) continue;
      requests.push_back(communicator.receive(JobRank(r), tag, place(r)));
      requests.push_back(communicator.send(JobRank(r), tag, buffer));
    }
    for (const auto request : requests) communicator.wait(request);
  };
  toAll(kStateTags.first, {reinterpret_cast<std::byte*>(&bytes), sizeof bytes}, [&](int r) {
    return Buffer{reinterpret_cast<std::byte*>(&lengths[static_cast<std::size_t>(r)]), sizeof(std::uint64_t)};
  });
  texts.reserve(lengths.size());
  for (const std::uint64_t length : lengths) texts.emplace_back(length, '\0');
  toAll(kStateTags.first + 1, {reinterpret_cast<std::byte*>(text.data()), text.size()}, [&](int r) {
    std::string& place = texts[static_cast<std::size_t>(r)];
    return Buffer{reinterpret_cast<std::byte*>(place.data()), place.size()};
  });
  for (int r = 0; r < size; ++r)
    ranks[static_cast<std::size_t>(r)] = JobRank(r) == communicator.rank() ? own : parseManifest(texts[static_cast<std::size_t>(r)], r);
  return ranks;
}

}  // namespace

std::vector<StateTensorCopy> wholeState(const std::vector<StatePiece>& own, Communicator& communicator) {
  std::vector<StateTensorCopy> copies;
  std::uint32_t tag = kStateTags.first + 2;
  for (const FileTensor& tensor : mergePieces(manifestsOf(own, communicator))) {
    const std::size_t width = widthOf(tensor.what.dtype);
    const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(tensor.elements) * width);
    copies.push_back({tensor.what.name, tensor.what.dtype, tensor.what.shape, {{memory->data(), memory->size()}, memory}});
    for (const Part& part : tensor.parts) {
      const Buffer target{memory->data() + static_cast<std::size_t>(part.first) * width,
                          static_cast<std::size_t>(part.last - part.first) * width};
      ++tag;
      if (JobRank(part.rank) != communicator.rank()) {
        communicator.wait(communicator.receive(JobRank(part.rank), tag, target));
        continue;
      }
      std::memcpy(target.data, own[part.index].data.data, target.bytes);
      const MessageMemory<std::shared_ptr<std::vector<std::byte>>> sent(communicator, memory);
      std::vector<Communicator::Request> requests;
      for (int r = 0; r < communicator.size(); ++r) {
        if (r != part.rank) requests.push_back(communicator.send(JobRank(r), tag, target));
      }
      for (const auto request : requests) communicator.wait(request);
    }
  }
  communicator.barrier();
  return copies;
}

void saveCheckpoint(const std::string& path, const std::map<std::string, double>& numbers, const std::vector<StatePiece>& own,
                    const std::map<std::string, std::string>& aliases, Communicator& communicator,
                    const std::optional<OptimizerLayout>& optimizer) {
  if (communicator.rank() != JobRank(0)) return giveState(path, own, Channel(communicator, JobRank(0)), communicator);
  std::vector<Channel> peers;
  for (int r = 1; r < communicator.size(); ++r) peers.emplace_back(communicator, JobRank(r));
  std::vector<std::string> manifests;
  manifests.reserve(peers.size());
  for (Channel& peer : peers) manifests.push_back(peer.receiveText());
  std::vector<FileTensor> tensors;
  std::optional<CheckpointWriter> writer;
  std::string failure = failureOf([&] {
    std::vector<std::vector<StatePiece>> ranks{own};
    for (const std::string& manifest : manifests) ranks.push_back(parseManifest(manifest, static_cast<int>(ranks.size())));
    tensors = mergePieces(ranks);
    std::size_t headerBytes = 0;
    for (const FileTensor& tensor : tensors) headerBytes += SafetensorsWriter::headerBytesOf(tensor.what.name);
    for (const auto& [name, of] : aliases) headerBytes += SafetensorsWriter::headerBytesOf(name);
    for (const auto& [name, number] : numbers) headerBytes += SafetensorsWriter::headerBytesOf(name);
    writer.emplace(path, headerBytes);
  });
  std::vector<std::byte> memory;
  for (const FileTensor& tensor : tensors) {
    if (!failure.empty()) break;
    const std::byte* bytes = assemble(tensor, own, peers, memory);
    failure = failureWhileTelling(peers, [&] { writer->add(tensor.what.name, tensor.what.dtype, tensor.what.shape, bytes); });
    for (Channel& peer : peers) peer.send(kStillWriting);
  }
  memory = {};
  if (failure.empty()) {
    failure = failureWhileTelling(peers, [&] {
      for (const auto& [name, of] : aliases) writer->alias(name, of);
      writer->finish(numbers, optimizer);
    });
  }
  for (Channel& peer : peers) {
    peer.send(failure.empty() ? kDone : kFailed);
    if (!failure.empty()) peer.send(failure);
  }
  communicator.barrier();
  if (!failure.empty()) throw Error(failure);
}

}  // namespace pw
