#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/folder.h"

namespace pw::test {

/// The file of a sample model.
inline std::string sample(const std::string& name) { return PW_SOURCE_DIR "/resources/models/" + name + ".pt2"; }

/// The outcome of a call of the program.
struct Outcome {
  int status = -1;  ///< exit status; −1 when a signal ended it
  std::string out, err;
};

/// Runs the built program to its end. Its stdout and stderr are files, so no terminal.
inline Outcome call(std::vector<std::string> arguments) {
  const Folder folder;
  arguments.insert(arguments.begin(), PIPEWRIGHT);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out = folder.file("out"), err = folder.file("err");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, PIPEWRIGHT, &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child) throw std::runtime_error("cannot run " PIPEWRIGHT);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contentOf(out), contentOf(err)};
}

}  // namespace pw::test
