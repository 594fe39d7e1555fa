#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schedules/job_rank.h"

namespace pw {

/// Who started this process as one rank of a job.
enum class StartedBy : std::uint8_t { Us, Torchrun, Slurm };  // Torchrun: or anything else that sets RANK

/// A rank's place in its job, as given by its environment.
struct RankEnvironment {
  JobRank rank;
  int worldSize = 1;
  std::string masterAddress;
  int masterPort = 0;
  int listenFd = -1;              ///< inherited listening socket of the store on rank 0 (ours only; PIPEWRIGHT_LISTEN_FD)
  int statusFd = -1;              ///< pipe to our launcher (PIPEWRIGHT_STATUS_FD); −1 when another launcher started us
  int localRank = 0;              ///< among the ranks its launcher started on this host
  int localSize = 0;              ///< the number of these ranks; 0: unknown
  bool oneHost = false;           ///< all ranks are on this host for certain
  std::string token;              ///< a secret of this job's ranks: PIPEWRIGHT_JOB_TOKEN, otherwise derived from the launcher's job ids
  bool storeIsElsewhere = false;  ///< torchrun's agent serves the store (TORCHELASTIC_USE_AGENT_STORE)
  StartedBy startedBy = StartedBy::Torchrun;
};

/// What tells this start of a job from others in records that ranks leave: the same on all of them, and no secret. Empty where
/// another launcher than ours started the ranks.
[[nodiscard]] std::string jobMark(const RankEnvironment& environment);

/// Environment variables by name.
using Variables = std::map<std::string, std::string>;

/// A rank's place, from these variables; nothing if they describe none; `run` then starts its own ranks.
/// - RANK set: WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be too, as torchrun and our launcher set them. LOCAL_RANK and LOCAL_WORLD_SIZE
///   may be missing; then all ranks are taken to be here where MASTER_ADDR is this host's loopback.
/// - Else a task of `srun`: SLURM_PROCID and SLURM_STEP_ID set and the step has several tasks (SLURM_STEP_NUM_TASKS, else SLURM_NTASKS). In
///   a batch script and a shell of `salloc`, whose steps have reserved ids or none, this does not hold. MASTER_ADDR: if not set, 127.0.0.1
///   where the step has one host, else the first of SLURM_STEP_NODELIST (else SLURM_NODELIST), where task 0 is. MASTER_PORT: if not set,
///   20000 + (job + 7919·step) mod 10000 of SLURM_JOB_ID and SLURM_STEP_ID, below the ports that Linux gives to connections.
/// The token: PIPEWRIGHT_JOB_TOKEN, which our launcher sets to 256 random bits. Without it a digest of TORCHELASTIC_RUN_ID and
/// TORCHELASTIC_RESTART_COUNT, or of Slurm's job and step: jobs do not mix then, but users of that host may know these.
/// Throws UsageError naming the variable that is missing, no number or out of range.
[[nodiscard]] std::optional<RankEnvironment> rankEnvironment(const Variables& variables);

/// The same for this process. Descriptors passed by our launcher are not inherited by programs that the rank starts.
[[nodiscard]] std::optional<RankEnvironment> rankEnvironment();

/// Throws UsageError naming the variable that counts the processes and the cure, when a job for `ranks` was started with another number.
/// `plan`: the name of the plan's file, for the message.
void requireWorldSize(const RankEnvironment& environment, int ranks, const std::string& plan);

/// Hosts of Slurm's compressed list, in its order: `node[003-005,9],gpu1` → node003 node004 node005 node9 gpu1; several brackets in a name
/// multiply, the last fastest: `r[1-2]n[0-1]`. Throws UsageError where it is none, or has more than 2^20 hosts.
[[nodiscard]] std::vector<std::string> hostsOf(const std::string& list);

/// Tasks on each host, of Slurm's `2(x3),1` → 2 2 2 1. Throws UsageError where it is none, or has more than 2^20 hosts.
[[nodiscard]] std::vector<int> tasksPerHost(const std::string& list);

/// Begins the lines of `reportStartUp`; a digit that says how far it is follows.
inline constexpr char kStartUpMark = '+';

/// How far a rank has got towards its first step.
enum class StartUp : std::uint8_t { Loading, Meeting, Connecting, Done };

/// In a rank: reports start-up progress to the launcher, which watches for stuck ranks; does nothing without statusFd.
void reportStartUp(const RankEnvironment& environment, StartUp reached) noexcept;

/// In a rank: tells the launcher why it fails (one line) and whether that is unusable input; does nothing without statusFd. The launcher
/// names the rank in front of sentences that do not begin with it. Async-signal-unsafe, never throws.
void reportFailure(const RankEnvironment& environment, const std::string& sentence, bool unusable = false) noexcept;

}  // namespace pw
