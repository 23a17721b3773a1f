// SPDX-License-Identifier: Apache-2.0
#include "engine/hls/run_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

extern char** environ;

namespace kvdrive::hls {
namespace {

[[noreturn]] void fail(int error, const std::string& program) {
  throw std::system_error(error, std::generic_category(), "cannot start " + program);
}

// What comes out of `from`, to its end.
std::string read_all(int from) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t count = ::read(from, part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

Said run_program(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail(errno, command.front());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // a lock would live as long as the child
#endif
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    fail(error, command.front());
  }
  Said said{-1, read_all(ends[0])};
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) said.status = WEXITSTATUS(status);
  while (!said.text.empty() && said.text.back() == '\n') said.text.pop_back();
  return said;
}

}  // namespace kvdrive::hls
