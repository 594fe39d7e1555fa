#include "engine/autograd/linked_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/channel/in_memory_link.h"
#include "schedules/error.h"
#include "tests/support/tensors.h"

namespace pw::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::unique_ptr<LinkedWorker> workerOver(const LinkMaker& link, const LinkedWorker::Define& define) {
  RemoteSettings settings;
  settings.self = link.rank;
  settings.deadline = 20s;
  settings.functions = &testFunctions();
  for (int r = 0; r < link.size; ++r) settings.names.push_back("worker" + std::to_string(r));
  return std::make_unique<LinkedWorker>(settings, link, 10s, define);
}

std::string failureOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& problem) {
    return problem.what();
  }
  return "nothing was thrown";
}

/// Whatever is called there: those who wait for an answer would wait until their deadline.
TEST(LinkedWorker, MakesNoCallsWhileItsFunctionsAreDefined) {
  for (const char* callee : {"worker0", "worker1"}) {
    const auto links = inMemoryLinks(2);
    const auto define = [&](Remote& remote, DistributedAutograd&) { (void)remote.rpcSync(callee, "f"); };
    EXPECT_THAT(failureOf([&] { (void)workerOver(links[0], define); }), HasSubstr("This worker is not connected yet")) << callee;
  }
}

/// The one that comes second finds a call in its mailbox, and a thread answers it while the channel is still being made.
TEST(LinkedWorker, AnswersCallsThatCameBeforeItWasMade) {
  const auto links = inMemoryLinks(2);
  const auto define = [](Remote& remote, DistributedAutograd&) {
    remote.define("echo", [](Remote&, const RemoteValue& value) { return value; });
  };
  const auto first = workerOver(links[0], define);
  const RemoteFuture answer = first->remote().rpcAsync("worker1", "echo", 3);
  const auto second = workerOver(links[1], define);
  EXPECT_EQ(answer.wait().integer(), 3);
}

TEST(LinkedWorker, EndsWithWhatKeepsItFromConnecting) {
  LinkMaker link = inMemoryLinks(2).front();
  link.connect = [](const LinkEvents&) -> MessageLink { throw Error("rank 1 did not come"); };
  std::weak_ptr<int> kept;
  const auto define = [&](Remote& remote, DistributedAutograd&) {
    const auto object = std::make_shared<int>();
    kept = object;
    remote.define("f", [object](Remote&, const RemoteValue&) { return RemoteValue(); });
  };
  EXPECT_EQ(failureOf([&] { (void)workerOver(link, define); }), "rank 1 did not come");
  EXPECT_TRUE(kept.expired()) << "what it was to answer with is left";
}

TEST(LinkedWorker, EndsItsCallsWhenItLeavesAndMakesNoOthers) {
  const auto links = inMemoryLinks(2);
  const auto worker = workerOver(links[0], {});
  const RemoteFuture waiting = worker->remote().rpcAsync("worker1", "f");  // who never comes
  worker->leave();
  EXPECT_THROW((void)waiting.wait(), Error);
  EXPECT_THROW((void)worker->remote().rpcSync("worker1", "f"), Error);
  worker->leave();
}

}  // namespace
}  // namespace pw::test
