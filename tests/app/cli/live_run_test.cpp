// `run --live`: what a real run tells is what it stores.
#include "backends/store/run_store.h"
#include "engine/live_spans.h"
#include "tests/app/cli/job.h"
#include "tests/support/whole_run.h"

namespace pw::test {
namespace {

TEST(LiveRun, TellsWhatItStores) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"}),
                    live = folder.with("live", "of a run before"), store = folder.file("runs.db");
  const Outcome outcome = finish({"run", plan, "--steps", "2", "--live", live, "--store", store});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  LiveReader reader(2, 2);
  EXPECT_TRUE(reader.feed(contentOf(live)));
  const StepRecord last = wholeRun(store).steps.back();
  EXPECT_EQ(reader.newest(), (LiveStep{last.step, last.measured, true}));
}

TEST(LiveRun, TellsTheReplicasByTheirRanks) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "2", "--replicas", "2"}),
                    live = folder.file("live"), store = folder.file("runs.db");
  const Outcome outcome = finish({"run", plan, "--live", live, "--store", store, "--backend", "gloo"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  LiveReader reader(4, 2);
  reader.feed(contentOf(live));
  const StepRecord last = wholeRun(store).steps.back();
  EXPECT_EQ(reader.newest(), (LiveStep{last.step, last.measured, true}));
}

TEST(LiveRun, RefusesAFileItCannotWriteBeforeItTrains) {
  const Folder folder;
  const std::string plan = planned(folder, {"gpt_small"}, {"--ranks", "2", "--microbatches", "4"});
  expectRefusal(finish({"run", plan, "--live", folder.file("no/such/folder/live")}), 1, {"no/such/folder/live"});
}

}  // namespace
}  // namespace pw::test
