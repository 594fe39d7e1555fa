#include "engine/run/batch_stream.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backends/host/fd.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "backends/messages/transport.h"
#include "backends/torch/backend.h"
#include "engine/processes/process.h"
#include "schedules/error.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeader = std::size_t{1} << 20;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;  // of a tensor

/// The first of the folders of PATH that has such a program.
std::optional<std::string> programInPath(const std::string& program) {
  const char* list = std::getenv("PATH");
  const std::string folders = list == nullptr ? "" : list;
  for (std::size_t begin = 0; begin < folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    std::string found = (fs::path(folders.substr(begin, end - begin)) / program).string();
    if (!isFolder(found) && ::access(found.c_str(), X_OK) == 0) return found;
    begin = end + 1;
  }
  return std::nullopt;
}

std::string pythonProgram() {
  if (const char* given = std::getenv("PIPEWRIGHT_PYTHON"); given != nullptr && *given != '\0') {
    const std::string program = given;
    if (program.find('/') != std::string::npos) return program;
    if (const auto found = programInPath(program)) return *found;
    throw UsageError(fmt::format("There is no {} in PATH; set PIPEWRIGHT_PYTHON to a Python that has torch.", program));
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* folder = std::getenv(name);
    if (folder == nullptr || *folder == '\0') continue;
    if (const std::string python = (fs::path(folder) / "bin" / "python").string(); pathExists(python)) return python;
  }
  if (const auto found = programInPath("python3")) return *found;
  throw UsageError("There is no python3 in PATH for --data with a function; set PIPEWRIGHT_PYTHON to a Python that has torch.");
}

/// A name in a header as an element type.
std::optional<DType> dtypeNamed(const std::string& text) {
  for (int code = static_cast<int>(DType::UInt8); code <= static_cast<int>(DType::BFloat16); ++code) {
    if (nameOf(static_cast<DType>(code)) == text) return static_cast<DType>(code);
  }
  return std::nullopt;
}

/// A process of Python and the batch that it gave last.
class Stream {
 public:
  explicit Stream(StreamRequest request);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  NamedTensors batch(int step);

 private:
  using Part = BasicJsonPart<nlohmann::ordered_json>;

  void read(std::byte* data, std::size_t bytes);
  [[noreturn]] void ended();
  NamedTensors next();
  TensorHandle tensor(const Part& described);

  StreamRequest request_;
  pid_t child_ = -1;
  Pipe pipe_;
  int next_ = 0;  // the step of the next batch in the pipe
  Clock::time_point until_;
  NamedTensors current_;
};

Stream::Stream(StreamRequest request) : request_(std::move(request)), pipe_(makePipe()), next_(request_.firstStep) {
  const std::string script = (fs::path(resourceFolder()) / "stream_batches.py").string();
  ChildProgram python;
  python.argv = {pythonProgram(), script, request_.function, std::to_string(request_.firstStep), std::to_string(request_.seed)};
  python.argv.insert(python.argv.end(), request_.inputs.begin(), request_.inputs.end());
  python.output = pipe_.write.get();
  child_ = startProcess(python);
  pipe_.write.close();
}

Stream::~Stream() {
  ::kill(-child_, SIGKILL);  // its group, which the script makes: workers of a DataLoader
  ::kill(child_, SIGKILL);   // before it has one
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {}
}

void Stream::ended() {
  throw Error(
      fmt::format("The Python process for --data {} exited without an error message; see its output above, and whether {} can be run",
                  request_.function, pythonProgram()));
}

/// All of these bytes, by the time that this batch must be there.
void Stream::read(std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t count = ::read(pipe_.read.get(), data, bytes);
    if (count > 0) {
      data += count;
      bytes -= static_cast<std::size_t>(count);
      continue;
    }
    if (count == 0) ended();
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw Error(fmt::format("cannot read the batches of --data {}: {}", request_.function, std::strerror(errno)));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count();
    if (left <= 0) {
      throw Error(fmt::format("{} gave no batch for step {} within {}; give --timeout more, or make it faster", request_.function, next_,
                              inWords(request_.deadline)));
    }
    pollfd wait{pipe_.read.get(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 1000)));
  }
}

TensorHandle Stream::tensor(const Part& described) {
  TensorImage image;
  const std::string type = described["dtype"].as<std::string>();
  const auto dtype = dtypeNamed(type);
  if (!dtype) described.fail(fmt::format("is of the type {}, which models do not take", type));
  image.dtype = *dtype;
  std::int64_t bytes = widthOf(*dtype);
  for (const std::int64_t size : described["shape"].listOf<std::int64_t>()) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes) || bytes > kMostBytes) described.fail("is too large");
    image.shape.push_back(size);
  }
  const auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
  image.memory = {{memory->data(), memory->size()}, memory};
  read(memory->data(), memory->size());
  return torchBackend().autograd().tensorOf(image);
}

NamedTensors Stream::next() {
  until_ = Clock::now() + request_.deadline;
  std::array<std::byte, 8> prefix{};
  read(prefix.data(), prefix.size());
  const JsonDocument document{"What --data " + request_.function + " sends", "batch", "let it write to stdout by print alone"};
  std::uint32_t length = 0;
  std::memcpy(&length, prefix.data() + 4, sizeof length);
  if (std::memcmp(prefix.data(), "PWB1", 4) != 0 || length > kMostHeader) document.fail("it does not begin as one");
  std::string text(length, '\0');
  read(reinterpret_cast<std::byte*>(text.data()), text.size());
  const nlohmann::ordered_json json = document.parse(text);
  const Part header(json, document);
  if (header.has("error")) throw UsageError(header["error"].as<std::string>());
  if (header.has("end")) {
    throw UsageError(fmt::format("{} ended after {} batches, and step {} needs another; let it give a batch for each of --steps.",
                                 request_.function, header["end"].as<std::int64_t>(), next_));
  }
  NamedTensors tensors;
  for (std::size_t i = 0; i < header["batch"].size(); ++i) {
    const Part described = header["batch"][i];
    tensors[described["name"].as<std::string>()] = tensor(described);
  }
  return tensors;
}

NamedTensors Stream::batch(int step) {
  while (next_ <= step) {
    current_.clear();
    current_ = next();
    ++next_;
  }
  return current_;
}

}  // namespace

bool namesFunction(const std::string& data) {
  const std::size_t colon = data.find(':');
  if (colon == 0 || colon == std::string::npos || colon + 1 == data.size() || pathExists(data)) return false;
  return std::ranges::all_of(data,
                             [&](char c) {
                               const auto letter = static_cast<unsigned char>(c);
                               return std::isalnum(letter) != 0 || letter >= 0x80 || c == '_' || c == '.' || c == ':';
                             }) &&
         data.find(':', colon + 1) == std::string::npos;
}

std::shared_ptr<const BatchFeed> streamBatches(const StreamRequest& request) {
  const auto stream = std::make_shared<Stream>(request);
  return std::make_shared<BatchFeed>(BatchFeed{request.function, [stream](int step) { return stream->batch(step); }});
}

}  // namespace pw
