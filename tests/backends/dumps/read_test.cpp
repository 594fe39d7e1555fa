#include "backends/dumps/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backends/host/files.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "simulator/hang/diagnose.h"
#include "simulator/hang/inquiry.h"
#include "simulator/hang/report.h"
#include "tests/support/folder.h"
#include "tests/support/hostile.h"
#include "tests/support/mutate.h"

namespace pw {
namespace {

using hang::OpKind;
using hang::OpState;
using nlohmann::ordered_json;
using testing::HasSubstr;

const std::string kData = std::string(PW_SOURCE_DIR) + "/tests/data/torch_hangs";

hang::Dumps readText(const test::Folder& folder, const std::string& name, const std::string& text) {
  writeFile(folder.file(name), text);
  return readDumps({folder.file(name)});
}

std::string refusalOf(const std::vector<std::string>& paths) {
  try {
    static_cast<void>(readDumps(paths));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// ---- torch on Gloo -----------------------------------------------------------------------------------------------

TEST(HangDumps, OfRealTorchProcessesNameRankAndAction) {
  const ordered_json truths = ordered_json::parse(readFile(kData + "/truths.json"));
  ASSERT_EQ(truths.size(), 8U);
  for (const auto& [name, truth] : truths.items()) {
    SCOPED_TRACE(name);
    const std::string file = kData + "/" + name + "/schedule.csv";
    const Schedule schedule = parseCsv(readFile(file), name, file);
    const hang::Diagnosis d = hang::diagnose(readDumps({kData + "/" + name}), &schedule);
    EXPECT_EQ(nameOf(d.verdict), truth["verdict"].get<std::string>()) << d.sentence;
    ASSERT_TRUE(d.firstStuck && d.firstStuck->action);
    if (truth.contains("action_of")) {  // which of them came first is not known
      EXPECT_EQ(toString(*d.firstStuck->action), truth["action_of"][std::to_string(d.firstStuck->rank.value)].get<std::string>());
    } else {
      EXPECT_EQ(d.firstStuck->rank.value, truth["rank"].get<int>()) << d.sentence;
      EXPECT_EQ(toString(*d.firstStuck->action), truth["action"].get<std::string>()) << d.sentence;
    }
    if (truth.contains("cause_rank")) {
      EXPECT_EQ(d.cause->rank.value, truth["cause_rank"].get<int>());
      EXPECT_EQ(toString(*d.cause->action), truth["cause_action"].get<std::string>());
    }
    if (truth.contains("silent")) {
      ASSERT_EQ(d.silent.size(), 1U);
      EXPECT_EQ(d.silent.front().rank.value, truth["silent"].get<int>());
      EXPECT_EQ(toString(*d.silent.front().next->action), truth["next"].get<std::string>());
    }
    EXPECT_EQ(d.checkWouldCatch, truth.value("check_would_catch", false));
  }
}

/// A place against what its rank said itself: which action's message did not come, or that it was one of the set-up. Ranks that post
/// messages the schedule does not have, or died in the wait, cannot be compared.
void expectAsSaid(const hang::Spot& spot, const ordered_json& truth) {
  const std::string rank = std::to_string(spot.rank.value);
  const bool faulty = spot.rank.value == truth["rank"].get<int>();
  if (faulty && (truth["fault"] == "few_microbatches" || truth["fault"] == "wrong_size")) return;
  if (truth["fault"] == "wrong_size" && !truth["stuck"].contains(rank)) return;  // its other end
  ASSERT_TRUE(truth["stuck"].contains(rank)) << rank;
  const ordered_json& said = truth["stuck"][rank];
  EXPECT_EQ(spot.operation, said["operation"].get<std::string>());
  const ordered_json action = spot.action ? ordered_json(toString(*spot.action)) : ordered_json(nullptr);
  EXPECT_EQ(action, said["action"]);
  EXPECT_EQ(spot.setsUp, said["action"].is_null());
}

TEST(HangDumps, OfTorchPipelinesNameWhatWasDoneToTheJob) {
  const std::string data = std::string(PW_SOURCE_DIR) + "/tests/data/torch_pipelines";
  const ordered_json truths = ordered_json::parse(readFile(data + "/truths.json"));
  ASSERT_EQ(truths.size(), 25U);
  for (const auto& [name, truth] : truths.items()) {
    SCOPED_TRACE(name);
    const std::string file = data + "/" + name + "/schedule.csv";
    const Schedule schedule = parseCsv(readFile(file), name, file);
    const hang::Diagnosis d = hang::diagnose(readDumps({data + "/" + name}), &schedule);
    SCOPED_TRACE(d.sentence);
    const std::string fault = truth["fault"];
    const int rank = truth["rank"];
    ASSERT_TRUE(d.firstStuck);
    expectAsSaid(*d.firstStuck, truth);
    int firsts = 0;
    for (const hang::Spot& wait : d.waits) {
      expectAsSaid(wait, truth);
      const bool isFirst =
          wait.rank == d.firstStuck->rank && wait.posted == d.firstStuck->posted && wait.operation == d.firstStuck->operation;
      if (!isFirst) continue;
      ++firsts;
      EXPECT_EQ(hang::textOf(wait), hang::textOf(*d.firstStuck)) << "one operation has one name";
    }
    EXPECT_EQ(firsts, 1);
    for (const auto& entry : truth["stuck"].items()) {
      const std::string& stuck = entry.key();
      EXPECT_TRUE(std::ranges::any_of(d.waits, [&](const hang::Spot& wait) { return std::to_string(wait.rank.value) == stuck; })) << stuck;
    }
    if (fault == "wrong_size") {
      EXPECT_EQ(nameOf(d.verdict), "size_mismatch");
      EXPECT_EQ(d.firstStuck->rank.value, rank);
      EXPECT_EQ(toString(*d.firstStuck->action), truth["action"].get<std::string>());
    } else if (truth.contains("action")) {  // killed or stopped
      EXPECT_EQ(nameOf(d.verdict), "silent_rank");
      ASSERT_EQ(d.silent.size(), 1U);
      EXPECT_EQ(d.silent[0].rank.value, rank);
      if (truth["action"].is_null()) continue;  // in the set-up
      std::vector<std::string> possible;
      for (const Action& action : d.silent[0].possible) possible.push_back(toString(action));
      EXPECT_THAT(possible, testing::Contains(truth["action"].get<std::string>()));
      EXPECT_EQ(d.silent[0].next->step, truth["step"].get<int>());
      if (d.silent[0].file.empty()) continue;
      EXPECT_EQ(toString(*d.silent[0].next->action), truth["action"].get<std::string>());
    } else if (d.verdict == hang::Verdict::SilentRank) {
      // Dumps do not tell a rank that took its messages for two steps, and ended, from one that died then.
      EXPECT_EQ(fault, "few_microbatches");
      EXPECT_EQ(ordered_json::array({d.silent.at(0).rank.value}), truth["ended"]);
    } else if (d.verdict == hang::Verdict::Cycle) {
      EXPECT_EQ(fault, "inverted_order");
      EXPECT_TRUE(std::ranges::any_of(d.cycle, [&](const hang::Spot& spot) { return spot.rank.value == rank; }));
      for (const hang::Spot& spot : d.cycle) expectAsSaid(spot, truth);
    } else {
      EXPECT_EQ(nameOf(d.verdict), "missing_message");
      EXPECT_EQ(d.cause->rank.value, rank);
      EXPECT_EQ(toString(*d.cause->action), truth["expected"].get<std::string>());
    }
  }
}

// ---- torch's Flight Recorder -------------------------------------------------------------------------------------

ordered_json entry(const std::string& name, const std::string& state, int record) {
  return {{"record_id", record},
          {"process_group", {"7", "pipeline"}},
          {"profiling_name", name},
          {"state", state},
          {"is_p2p", name.find("all_") == std::string::npos},
          {"p2p_seq_id", record + 1},
          {"collective_seq_id", 4},
          {"time_created_ns", 1000 + record},
          {"input_sizes", {{2, 8}}},
          {"input_dtypes", {"BFloat16"}},
          {"output_sizes", {{2, 8}}},
          {"output_dtypes", {"BFloat16"}},
          {"retired", false}};
}

ordered_json recorder(const std::vector<ordered_json>& entries) {
  return {{"version", "2.10"}, {"pg_config", {{"7", {{"name", "7"}, {"desc", "pipeline"}, {"ranks", "[2, 6]"}}}}}, {"entries", entries}};
}

TEST(HangDumps, RanksOfMessagesCountInTheirGroupAndNameTheDump) {
  const test::Folder folder;
  const hang::Dumps dumps =
      readText(folder, "trace_9", recorder({entry("nccl:recv 1<-0", "completed", 0), entry("nccl:all_reduce", "started", 1)}).dump());
  ASSERT_EQ(dumps.dumps.size(), 1U);
  EXPECT_EQ(dumps.ranks, 7);
  EXPECT_EQ(dumps.dumps[0].rank, JobRank{6});
  const std::vector<hang::RecordedOp>& ops = dumps.dumps[0].ops;
  ASSERT_EQ(ops.size(), 2U);
  EXPECT_EQ(ops[0].kind, OpKind::Receive);
  EXPECT_EQ(ops[0].peer, JobRank{2});
  EXPECT_EQ(ops[0].state, OpState::Done);
  EXPECT_EQ(ops[0].bytes, 2 * 8 * 2);
  EXPECT_EQ(ops[1].kind, OpKind::Collective);
  EXPECT_EQ(ops[1].sequence, 4);
  EXPECT_EQ(ops[1].state, OpState::Started);
  EXPECT_TRUE(dumps.dumps[0].complete);
}

/// An entry of a message of one tensor.
ordered_json shaped(const std::string& name, int record, const ordered_json& size, const std::string& type) {
  ordered_json made = entry(name, "completed", record);
  made["input_sizes"] = made["output_sizes"] = ordered_json::array({size});
  made["input_dtypes"] = made["output_dtypes"] = ordered_json::array({type});
  return made;
}

TEST(HangDumps, MessagesOfTorchsSetUpAreToldByTheirShapes) {
  const test::Folder folder;
  const ordered_json none = ordered_json::array();
  const auto setUp = [&](const std::vector<ordered_json>& entries) {
    const hang::Dumps dumps = readText(folder, "trace_2", recorder(entries).dump());
    std::string marks;
    for (const hang::RecordedOp& op : dumps.dumps.at(0).ops) marks += op.setsUp ? 's' : '-';
    return marks;
  };
  const ordered_json take = shaped("nccl:recv 0<-1", 0, {1}, "Float"), greet = shaped("nccl:send 0->1", 1, none, "Float");
  const ordered_json length = shaped("nccl:send 0->1", 2, {1}, "Long"), object = shaped("nccl:send 0->1", 3, {311}, "Byte");
  const ordered_json sent = entry("nccl:send 0->1", "started", 4), bytes = shaped("nccl:send 0->1", 5, {8, 8}, "Byte");
  EXPECT_EQ(setUp({take, greet, length, object, sent}), "ssss-");
  EXPECT_EQ(setUp({greet, take, sent, sent, greet, take, length, object, sent}), "ss--ssss-");  // of a second schedule object
  EXPECT_EQ(setUp({take, greet, length}), "sss");                                               // it hangs there
  EXPECT_EQ(setUp({take}), "s");
  EXPECT_EQ(setUp({take, sent, take, sent}), "----");       // boundaries of one element
  EXPECT_EQ(setUp({object, bytes, length, sent}), "----");  // boundaries of bytes, and of one number
  const ordered_json sum = entry("nccl:all_reduce", "completed", 6);
  EXPECT_EQ(setUp({sum, take, greet, sum, length, object, sent}), "-ss-ss-");
}

TEST(HangDumps, OperationsOfACoalescedGroupHaveItsState) {
  const test::Folder folder;
  std::vector<ordered_json> entries{entry("nccl:send 0->1", "scheduled", 3), entry("nccl:recv 0<-1", "scheduled", 4),
                                    entry("nccl:coalesced", "started", 5), entry("nccl:recv 0<-1", "scheduled", 6)};
  for (int i = 0; i < 3; ++i) entries[static_cast<std::size_t>(i)]["p2p_seq_id"] = 9;
  const hang::Dumps dumps = readText(folder, "trace_2", recorder(entries).dump());
  const std::vector<hang::RecordedOp>& ops = dumps.dumps.at(0).ops;
  ASSERT_EQ(ops.size(), 3U);
  EXPECT_EQ(ops[0].state, OpState::Started);
  EXPECT_EQ(ops[1].state, OpState::Started);
  EXPECT_EQ(ops[0].batch, ops[1].batch);
  EXPECT_GT(ops[0].batch, 0U);
  EXPECT_EQ(ops[2].state, OpState::Posted);
  EXPECT_EQ(ops[2].batch, 0U);
  EXPECT_FALSE(dumps.dumps[0].complete);  // it begins with the fourth
}

/// torch 2.4 counts each batch of messages as a collective of its rank, too: two of rank 6 before the sum, one of rank 2.
TEST(HangDumps, CollectivesThatRanksNumberDifferentlyArePairedByTheirOrder) {
  enum class Lost { Nothing, Numbers, BeginningOfOne };
  for (const Lost lost : {Lost::Nothing, Lost::Numbers, Lost::BeginningOfOne}) {
    const bool whole = lost != Lost::Numbers;
    const test::Folder folder;
    std::vector<std::string> files;
    for (const int batches : {1, 2}) {
      std::vector<ordered_json> entries;
      const auto add = [&](const std::string& name, const std::string& state, int launch) {
        entries.push_back(entry(name, state, static_cast<int>(entries.size()) + (whole ? 0 : 50)));
        entries.back()["collective_seq_id"] = entries.back()["p2p_seq_id"] = launch;
      };
      add("nccl:all_gather", "completed", 1);
      for (int batch = 1; batch <= batches; ++batch) {
        add(batches == 1 ? "nccl:send 0->1" : "nccl:recv 1<-0", "completed", batch + 1);
        add("nccl:coalesced", "completed", batch + 1);
      }
      add("nccl:all_reduce", "completed", batches + 2);
      if (batches == 1) add("nccl:all_gather", "started", batches + 3);  // the number of the other's all_reduce
      if (lost == Lost::BeginningOfOne && batches == 2) entries.erase(entries.begin(), entries.end() - 1);
      files.push_back(folder.with("rank" + std::to_string(batches == 1 ? 2 : 6), recorder(entries).dump()));
    }
    const hang::Diagnosis d = hang::diagnose(readDumps(files), nullptr);
    const bool isTold = std::ranges::any_of(d.notes, [](const std::string& note) { return note.find("torch (2.4)") != std::string::npos; });
    EXPECT_EQ(isTold, lost != Lost::Nothing);
    if (lost != Lost::Nothing) continue;
    EXPECT_EQ(d.verdict, hang::Verdict::SilentRank) << d.sentence;
    ASSERT_EQ(d.silent.size(), 1U);
    EXPECT_EQ(d.silent[0].rank, JobRank{6});
    EXPECT_EQ(d.firstStuck->operation, "nccl:all_gather");
  }
}

TEST(HangDumps, AnotherEndOfALaunchLeavesWhatWasEndedBefore) {
  const test::Folder folder;
  std::vector<ordered_json> entries{entry("nccl:send 0->1", "scheduled", 0), entry("nccl:coalesced", "completed", 1),
                                    entry("nccl:recv 0<-1", "scheduled", 2), entry("nccl:coalesced", "started", 3)};
  for (ordered_json& one : entries) one["p2p_seq_id"] = 9;
  const hang::Dumps dumps = readText(folder, "trace_2", recorder(entries).dump());
  const std::vector<hang::RecordedOp>& ops = dumps.dumps.at(0).ops;
  ASSERT_EQ(ops.size(), 2U);
  EXPECT_EQ(ops[0].state, OpState::Done);
  EXPECT_EQ(ops[1].state, OpState::Started);
  EXPECT_NE(ops[0].batch, ops[1].batch);
}

TEST(HangDumps, GroupsThatAreNotListedStayApartAndAreOfAllRanks) {
  const test::Folder folder;
  std::vector<ordered_json> entries{entry("nccl:all_reduce", "started", 0), entry("nccl:all_reduce", "started", 1),
                                    entry("nccl:all_reduce", "started", 2)};
  entries[1]["process_group"] = {"8", "other"};
  entries[2]["process_group"] = {"9", "third"};
  ordered_json json = recorder(entries);
  json["rank"] = 3;
  for (const bool listed : {true, false}) {
    SCOPED_TRACE(listed);
    if (!listed) json["pg_config"] = ordered_json::object();
    const hang::Dumps dumps = readText(folder, "trace_3", json.dump());
    const std::vector<hang::RecordedOp>& ops = dumps.dumps.at(0).ops;
    ASSERT_EQ(ops.size(), 3U);
    ASSERT_EQ(dumps.groups.size(), 3U);
    EXPECT_EQ(dumps.groups[ops[2].group].name, "9");
    EXPECT_TRUE(dumps.groups[ops[2].group].ranks.empty());
    EXPECT_EQ(dumps.sizeOf(ops[2].group), listed ? 7U : 4U);  // the listed group has rank 6
    EXPECT_EQ(dumps.memberAt(ops[2].group, 2), JobRank{2});
    EXPECT_EQ(dumps.placeOf(ops[2].group, JobRank{3}), 3U);
    EXPECT_EQ(dumps.placeOf(ops[2].group, JobRank{7}), std::nullopt);
    EXPECT_EQ(dumps.sizeOf(ops[0].group), listed ? 2U : 4U);
  }
}

TEST(HangDumps, TheOnlyGroupListedWithoutANameIsThatOfTheFirstNameOnly) {
  const test::Folder folder;
  std::vector<ordered_json> entries{entry("gloo:all_reduce", "started", 0), entry("gloo:all_reduce", "started", 1)};
  entries[1]["process_group"] = {"8", "other"};
  ordered_json json = recorder(entries);
  json["rank"] = 2;
  json["pg_config"] = {{"", {{"name", ""}, {"ranks", "[2, 6]"}}}};
  const hang::Dumps dumps = readText(folder, "trace_2", json.dump());
  const std::vector<hang::RecordedOp>& ops = dumps.dumps.at(0).ops;
  EXPECT_EQ(dumps.sizeOf(ops.at(0).group), 2U);
  EXPECT_EQ(dumps.sizeOf(ops.at(1).group), 7U);
}

TEST(HangDumps, DamagedOnesInAFolderAreNotedWithTheReason) {
  const test::Folder folder;
  const std::string whole = recorder({entry("nccl:send 0->1", "started", 0)}).dump();
  writeFile(folder.file("trace_2"), whole);
  writeFile(folder.file("trace_6"), whole.substr(0, whole.size() / 2));
  writeFile(folder.file("readme"), "of this job");
  writeFile(folder.file("schedule.csv"), "0F0\n");
  EXPECT_THAT(readDumps({folder.file("")}).notes, testing::UnorderedElementsAre(HasSubstr("readme is left out: it is no dump"),
                                                                                HasSubstr("trace_6 is left out: it is damaged (")));
}

TEST(HangDumps, PickledDumpsAreRefusedWithTheWayToJson) {
  const test::Folder folder;
  for (const char* const start : {"\x80\x02}q", "\x80\x05\x95", "(dp0\nS'entries'", "}q\x01(U"}) {
    writeFile(folder.file("nccl_trace_rank_0"), start);
    EXPECT_THAT(refusalOf({folder.file("nccl_trace_rank_0")}), HasSubstr("_dump_fr_trace_json()"));
    EXPECT_THAT(refusalOf({folder.file("")}), HasSubstr("is a pickled dump"));
  }
}

TEST(HangDumps, FilesThatAreNoneAreRefusedWhenNamedAndNotedInAFolder) {
  const test::Folder folder;
  writeFile(folder.file("notes.json"), "{}");
  EXPECT_THAT(refusalOf({folder.file("notes.json")}), HasSubstr("is no dump of torch's Flight Recorder, NCCL RAS or this program"));
  EXPECT_THAT(refusalOf({folder.file("")}), HasSubstr("holds no dump"));
  EXPECT_THAT(refusalOf({folder.file("missing.json")}), HasSubstr("cannot be read"));
  writeFile(folder.file("trace_0"), recorder({entry("nccl:send 0->1", "started", 0)}).dump());
  const hang::Dumps dumps = readDumps({folder.file("")});
  EXPECT_EQ(dumps.dumps.size(), 1U);
  EXPECT_THAT(dumps.notes, testing::ElementsAre(HasSubstr("notes.json is left out")));
}

// ---- NCCL RAS ----------------------------------------------------------------------------------------------------

/// As `ncclras -f json` writes it (NCCL 2.28, src/ras/client_support.cc).
ordered_json ras() {
  const auto rank = [](int r, int reduces) {
    return ordered_json{
        {"rank", r},
        {"host", "10.0.0.1"},
        {"pid", 100 + r},
        {"cuda_dev", r},
        {"nvml_dev", r},
        {"status", {{"init_state", 0}, {"async_error", 0}, {"finalize_called", false}, {"destroy_flag", false}, {"abort_flag", false}}},
        {"collective_counts", {{"AllReduce", reduces}, {"Send", 3}, {"Recv", 1}}}};
  };
  return {{"nccl_version", "2.28.3"},
          {"communicators_count", 1},
          {"communicators", ordered_json::array({{{"hash", "0xabc"},
                                                  {"secondary_hash", "0x1:0x2"},
                                                  {"size", 4},
                                                  {"ranks_count", 3},
                                                  {"missing_ranks_count", 0},
                                                  {"ranks", ordered_json::array({rank(0, 7), rank(1, 6), rank(2, 7)})},
                                                  {"missing_ranks", ordered_json::array()}}})},
          {"ras", {{"collection_time_sec", 0.1}, {"timeouts_count", 0}}}};
}

TEST(HangDumps, OfRasNameTheRankThatIsBehindAndRanksThatAreMissing) {
  const test::Folder folder;
  ordered_json json = ras();
  const hang::Diagnosis behind = hang::diagnose(readText(folder, "ras.json", json.dump()), nullptr);
  EXPECT_EQ(nameOf(behind.verdict), "silent_rank");
  ASSERT_EQ(behind.silent.size(), 1U);
  EXPECT_EQ(behind.silent[0].rank, JobRank{1});
  EXPECT_THAT(behind.sentence, HasSubstr("it enqueued AllReduce 6 times, others of communicator 0xabc 7 times"));
  json["communicators"][0]["missing_ranks"].push_back({{"rank", 3},
                                                       {"host", "10.0.0.2"},
                                                       {"pid", 9},
                                                       {"cuda_dev", 3},
                                                       {"nvml_dev", 3},
                                                       {"status", {{"unresponsive", true}, {"considered_dead", true}}}});
  const hang::Diagnosis dead = hang::diagnose(readText(folder, "ras.json", json.dump()), nullptr);
  ASSERT_EQ(dead.silent.size(), 1U);
  EXPECT_EQ(dead.silent[0].rank, JobRank{3});
  EXPECT_EQ(dead.silent[0].why, "NCCL considers it dead");
}

// ---- our own -----------------------------------------------------------------------------------------------------

TEST(HangDumps, OfThisProgramNameActionsWithoutASchedule) {
  const test::Folder folder;
  const auto record = [](int rank, const ordered_json& entries, const ordered_json& awaited) {
    return ordered_json{{"awaited", awaited}, {"oldest_open", awaited}, {"rank", rank},        {"ranks", 2},        {"step", 3},
                        {"failure", "late"},  {"failed_ns", 9},         {"entries_before", 0}, {"entries", entries}};
  };
  const ordered_json sent{{"what", "SEND 0F1 to rank 1"},
                          {"kind", "send"},
                          {"state", "done"},
                          {"enqueued_ns", 5},
                          {"ended_ns", 6},
                          {"bytes", 8},
                          {"peer", 1},
                          {"tag", 1}};
  const ordered_json waits{{"what", "1B1 from rank 1"}, {"kind", "receive"}, {"state", "waiting"}, {"enqueued_ns", 7},
                           {"ended_ns", nullptr},       {"bytes", 8},        {"peer", 1},          {"tag", 2}};
  const ordered_json got{{"what", "0F1 from rank 0"},
                         {"kind", "receive"},
                         {"state", "done"},
                         {"enqueued_ns", 5},
                         {"ended_ns", 6},
                         {"bytes", 8},
                         {"peer", 0},
                         {"tag", 1}};
  writeFile(folder.file("flight-rank-0.json"), record(0, {sent, waits}, waits).dump());
  writeFile(folder.file("flight-rank-1.json"), record(1, ordered_json::array({got}), nullptr).dump());
  const hang::Diagnosis d = hang::diagnose(readDumps({folder.file("")}), nullptr);
  EXPECT_EQ(nameOf(d.verdict), "silent_rank") << d.sentence;
  ASSERT_TRUE(d.firstStuck && d.firstStuck->action);
  EXPECT_EQ(toString(*d.firstStuck->action), "0RECV_B1");
  EXPECT_EQ(d.firstStuck->rank, JobRank{0});
  EXPECT_EQ(d.firstStuck->step, 3);
  ASSERT_EQ(d.silent.size(), 1U);
  EXPECT_EQ(toString(*d.silent[0].last->action), "1RECV_F1");
}

TEST(HangDumps, OfAnEarlierStartOfTheJobAreLeftOut) {
  const test::Folder folder;
  const auto write = [&](int rank, const std::string& job, const std::string& failure) {
    const ordered_json record{
        {"awaited", nullptr}, {"oldest_open", nullptr}, {"rank", rank},        {"ranks", 2}, {"step", 1},
        {"failure", failure}, {"failed_ns", 9},         {"entries_before", 0}, {"job", job}, {"entries", ordered_json::array()}};
    writeFile(folder.file("flight-rank-" + std::to_string(rank) + ".json"), record.dump());
  };
  write(0, "first", "no message came");
  write(1, "second", "no call and no gradient came for 2 s.");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(folder.file("flight-rank-0.json"), now - std::chrono::hours(1));
  const hang::Dumps dumps = readDumps({folder.file("")});
  ASSERT_EQ(dumps.dumps.size(), 1U);
  EXPECT_EQ(dumps.dumps.front().rank, JobRank(1));
  EXPECT_THAT(dumps.notes, testing::Contains(HasSubstr("is of another start of the job")));
  const hang::Diagnosis d = hang::diagnose(dumps, nullptr);
  EXPECT_EQ(nameOf(d.verdict), "cannot_tell");
  EXPECT_THAT(d.sentence, HasSubstr("rank 1 gave up, and none of what it posted is open: no call and no gradient came for 2 s; rank 0 left "
                                    "no record"));
}

// ---- hostile -----------------------------------------------------------------------------------------------------

TEST(HangDumps, DamagedOnesAreDiagnosedOrRefused) {
  const test::Folder folder;
  const std::string file = kData + "/killed/schedule.csv";
  const Schedule schedule = parseCsv(readFile(file), "killed", file);
  const std::string whole = readFile(kData + "/killed/nccl_trace_rank_1.json");
  const std::string other = kData + "/killed/nccl_trace_rank_0.json";
  ordered_json own = ordered_json::parse(R"({"awaited":null,"oldest_open":null,"rank":0,"ranks":3,"step":0,"entries_before":0,"entries":[
    {"what":"SEND 0F1 to rank 1","kind":"send","state":"waiting","enqueued_ns":5,"bytes":8,"peer":1,"tag":1},
    {"what":"gradients of stage 0 with ranks 0 1","kind":"collective","state":"unknown","enqueued_ns":6}]})");
  const auto read = [&](const std::string& text) {
    writeFile(folder.file("rank_1"), text);
    const hang::Dumps dumps = readDumps({folder.file("rank_1"), other});
    for (const Schedule* const one : {static_cast<const Schedule*>(nullptr), &schedule}) {
      const hang::Diagnosis d = hang::diagnose(dumps, one);
      static_cast<void>(hang::diagnosisJson(dumps, d));
      static_cast<void>(hang::diagnosisText(dumps, d));
    }
  };
  const std::string pipeline =
      readFile(std::string(PW_SOURCE_DIR) + "/tests/data/torch_pipelines/1f1b-3-wrong_size-1/nccl_trace_rank_1.json");
  for (const std::string& seed : {whole, pipeline, ras().dump(), own.dump()}) {
    test::survive(
        "dump", test::mutations(200), [&](std::mt19937_64& random) { return test::damaged(seed, random); }, read);
    test::survive(
        "dump text", test::mutations(200), [&](std::mt19937_64& random) { return test::mutate(seed, random); }, read);
  }
}

}  // namespace
}  // namespace pw
