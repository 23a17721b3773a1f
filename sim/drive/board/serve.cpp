// SPDX-License-Identifier: Apache-2.0
// Serves a drive over NVMe/TCP without Python, for boards: kvdrive-drive FILE HOST:PORT [option value]...
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "commands/subsystem.hpp"
#include "drive.hpp"
#include "tcp/server.hpp"

namespace {

using kvdrive::tcp::DhchapSecret;

constexpr const char* kUsage =
    "usage: kvdrive-drive FILE HOST:PORT [--capacity BYTES] [--preset NAME] [--threads N] [--nqn NQN] [--hosts FILE]\n"
    "Serves the drive in FILE until it is interrupted, and makes a new drive where there is no file.\n"
    "--preset plain: no flash model (the default). --hosts: a line \"NQN [SECRET [CONTROLLER_SECRET]]\" for each host\n"
    "that may come in; without it all hosts of this machine may.\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<kvdrive::tcp::HostAccess> read_hosts(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) throw UsageError("cannot read " + path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw UsageError(path + " holds secrets: make it yours alone with chmod 600");
  }
  std::vector<kvdrive::tcp::HostAccess> hosts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string nqn, secret, controller_secret;
    if (!(words >> nqn) || nqn.front() == '#') continue;
    kvdrive::tcp::HostAccess host{.nqn = nqn, .secret = {}, .controller_secret = {}};
    if (words >> secret) host.secret = DhchapSecret::parse(secret);
    if (words >> controller_secret) host.controller_secret = DhchapSecret::parse(controller_secret);
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw UsageError(path + " names no host: nobody could come in");
  return hosts;
}

std::uint64_t number(const std::string& text, std::uint64_t most) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || text.front() == '-' || value > most) {
    throw UsageError("'" + text + "' is no number from 0 to " + std::to_string(most));
  }
  return value;
}

void serve(const std::string& path, const std::string& address, std::map<std::string, std::string>& options) {
  const auto take = [&options](const char* name, std::string otherwise) {
    const auto found = options.find(name);
    return found == options.end() ? otherwise : found->second;
  };
  sigset_t ends{};
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before any thread starts, so that all threads leave them to this one
  const kvdrive::tcp::Descriptor signals(::signalfd(-1, &ends, 0));
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) throw UsageError("'" + address + "' is no address: write HOST:PORT");
  kvdrive::VolumeOptions volume;
  volume.capacity_bytes = number(take("--capacity", "1073741824"), std::uint64_t{1} << 50);
  volume.preset = take("--preset", std::filesystem::exists(path) ? "" : "plain");
  const auto most_threads = std::to_string(std::max(1u, std::thread::hardware_concurrency()));
  const int threads = static_cast<int>(number(take("--threads", most_threads), 256));
  kvdrive::Drive drive(path, kvdrive::make_fast_engine(threads), volume);
  kvdrive::nvme::Subsystem subsystem(drive, {.serial = "BOARD", .nqn = take("--nqn", "")});
  kvdrive::tcp::TargetOptions target;
  if (options.contains("--hosts")) target.hosts = read_hosts(options.at("--hosts"));

  const auto port = static_cast<std::uint16_t>(number(address.substr(colon + 1), 65535));
  kvdrive::tcp::Server server(subsystem, address.substr(0, colon), port, std::move(target));
  std::printf("serving %s (engine %s) at %s:%u, %s; Ctrl-C ends it\n", path.c_str(), drive.engine(),
              address.substr(0, colon).c_str(), server.port(), subsystem.nqn().c_str());
  std::fflush(stdout);
  pollfd waiting{.fd = signals.get(), .events = POLLIN, .revents = 0};
  while (::poll(&waiting, 1, -1) <= 0) continue;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() < 2 || words.size() % 2 != 0) throw UsageError("say which file and where");
    std::map<std::string, std::string> options;
    for (std::size_t i = 2; i < words.size(); i += 2) options[words[i]] = words[i + 1];
    for (const auto& [name, value] : options) {
      if (std::string(kUsage).find("[" + name + " ") == std::string::npos) throw UsageError("no option " + name);
    }
    serve(words[0], words[1], options);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "kvdrive-drive: %s\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kvdrive-drive: %s\n", error.what());
    return 1;
  }
  return 0;
}
