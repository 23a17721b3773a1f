// SPDX-License-Identifier: Apache-2.0
#include "nvme/ring_link.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "process.hpp"

namespace kvdrive::nvme {
namespace {

constexpr std::uint64_t kLargestSegment = std::uint64_t{64} << 30;

enum class Refusal : std::uint64_t { kNone, kVersion, kSize, kMemory, kFull };

// The first message of a host. The server answers with the same message and either the segment's descriptor or the
// reason for a refusal.
struct Hello {
  std::uint32_t magic = kRingMagic;
  std::uint32_t version = kRingVersion;
  std::uint64_t segment_bytes = 0;
  Refusal refusal = Refusal::kNone;
};

std::string sentence(Refusal refusal, std::uint64_t segment_bytes) {
  switch (refusal) {
    case Refusal::kVersion:
      return "speaks another version of the rings: use the same kvdrive on both sides";
    case Refusal::kSize:
      return "serves no segment of " + std::to_string(segment_bytes) + " bytes: " + std::to_string(kLargestSegment) +
             " are the most";
    case Refusal::kMemory:
      return "has no memory for a segment of " + std::to_string(segment_bytes) + " bytes";
    case Refusal::kFull:
      return "has all the hosts that it takes: try again when one of them has ended";
    default:
      return "closed the connection: is it still running, and of the same version of kvdrive?";
  }
}

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

sockaddr_un socket_address(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path.string();
  if (name.size() >= sizeof address.sun_path) throw std::runtime_error("the socket's path is too long: " + name);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return address;
}

// A descriptor that no child of this process keeps.
int ours(int fd) {
  if (fd >= 0) close_in_children(fd);
  return fd;
}

void close_ours(int fd) {
  forget_in_children(fd);
  close(fd);
}

bool connected(int socket, const std::filesystem::path& path) {
  const sockaddr_un address = socket_address(path);
  return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

bool send_hello(int socket, const Hello& hello) {
  return send(socket, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

bool send_with_descriptor(int socket, const Hello& hello, int fd) {
  iovec part{.iov_base = const_cast<Hello*>(&hello), .iov_len = sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

// Returns -1 when the message carries no descriptor.
int receive_descriptor(int socket, Hello& hello) {
  iovec part{.iov_base = &hello, .iov_len = sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  // A server that refuses may close before it has read. Its answer can still be received after this error.
  if (got < 0 && errno == ECONNRESET) got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got != static_cast<ssize_t>(sizeof hello)) return -1;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (!head || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int))) return -1;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return fd;
}

}  // namespace

ServedRings::ServedRings(Subsystem& subsystem, std::uint64_t segment_bytes, ControllerOptions options, bool threaded)
    : memory_(RingMemory::create(segment_bytes)), rings_(memory_.bytes(), subsystem, std::move(options)) {
  if (threaded) thread_ = std::thread([this] { rings_.run(stop_); });
}

ServedRings::~ServedRings() {
  stop_ = true;
  rings_.view().wake_device();
  if (thread_.joinable()) thread_.join();
}

RingServer::RingServer(Subsystem& subsystem, std::filesystem::path path, std::chrono::milliseconds greeting_timeout)
    : subsystem_(subsystem), path_(std::move(path)), greeting_timeout_(greeting_timeout) {
  const sockaddr_un address = socket_address(path_);
  listener_ = ours(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (listener_ < 0 || wake_ < 0) fail("cannot make a socket");
  if (std::filesystem::is_socket(path_)) {  // its server has ended, or still answers
    const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (probe < 0) fail("cannot make a socket");
    const bool answers = connected(probe, path_);
    close(probe);
    if (answers) throw std::runtime_error(path_.string() + " is in use by another drive");
    std::filesystem::remove(path_);
  }
  // Whoever reaches the socket reads K and V: it is its owner's alone, whatever the umask.
  if (fchmod(listener_, S_IRUSR | S_IWUSR) != 0) fail("cannot make a socket");
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 16) != 0) {
    fail("cannot listen at " + path_.string());
  }
}

RingServer::~RingServer() {
  for (const Host& host : connected_) close_ours(host.socket);
  close_ours(listener_);
  close_ours(wake_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void RingServer::stop() {
  const std::uint64_t one = 1;
  while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// Handles the first message of a connection. Returns false if the connection must end.
bool RingServer::greet(Host& host) {
  Hello hello;
  if (host.rings || recv(host.socket, &hello, sizeof hello, 0) != static_cast<ssize_t>(sizeof hello)) return false;
  const auto refuse = [&](Refusal refusal) {
    send_hello(host.socket, {.refusal = refusal});
    return false;
  };
  if (hello.magic != kRingMagic) return false;
  if (hello.version != kRingVersion) return refuse(Refusal::kVersion);
  if (hello.segment_bytes > kLargestSegment) return refuse(Refusal::kSize);
  try {
    host.rings = std::make_unique<ServedRings>(subsystem_, hello.segment_bytes, ControllerOptions{}, true);
  } catch (const std::exception&) {
    return refuse(Refusal::kMemory);
  }
  return send_with_descriptor(host.socket, hello, host.rings->memory().fd());
}

int RingServer::close_silent() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::steady_clock::now();
  const auto age = [&](const Host& host) { return std::chrono::duration_cast<milliseconds>(now - host.since); };
  std::erase_if(connected_, [&](const Host& host) {
    if (!host.silent() || age(host) < greeting_timeout_) return false;
    close_ours(host.socket);
    return true;
  });
  const auto oldest = std::ranges::find_if(connected_, &Host::silent);  // the list is in order of arrival
  return oldest == connected_.end() ? -1 : static_cast<int>((greeting_timeout_ - age(*oldest)).count()) + 1;
}

// A connection beyond the limit replaces the oldest one that has asked for nothing. If there is none, the new
// connection is refused.
void RingServer::accept_one() {
  const int accepted = ours(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted < 0) return;
  if (connected_.size() >= kMaxHosts) {
    const auto silent = std::ranges::find_if(connected_, &Host::silent);
    if (silent == connected_.end()) {
      send_hello(accepted, {.refusal = Refusal::kFull});
      close_ours(accepted);
      return;
    }
    close_ours(silent->socket);
    connected_.erase(silent);
  }
  connected_.push_back({.socket = accepted, .since = std::chrono::steady_clock::now()});
}

void RingServer::run() {
  while (true) {
    const int timeout = close_silent();
    hosts_ = connected_.size();
    std::vector<pollfd> watched{{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (const Host& host : connected_) watched.push_back({host.socket, POLLIN, 0});
    if (poll(watched.data(), watched.size(), timeout) < 0) {
      if (errno == EINTR) continue;
      fail("cannot wait for hosts");
    }
    if (watched[1].revents) return;
    std::size_t i = 2;
    for (auto host = connected_.begin(); host != connected_.end(); ++i) {
      if (watched[i].revents == 0 || greet(*host)) {
        ++host;
        continue;
      }
      close_ours(host->socket);
      host = connected_.erase(host);
    }
    if (watched[0].revents) accept_one();
  }
}

RingConnection::RingConnection(const std::filesystem::path& path, std::uint64_t segment_bytes) {
  socket_ = ours(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket_ < 0) fail("cannot make a socket");
  try {
    if (!connected(socket_, path)) {
      throw std::runtime_error("no drive is served at " + path.string() + ": start `kvdrive drive serve` there");
    }
    Hello hello{.segment_bytes = segment_bytes};
    send_hello(socket_, hello);  // if this fails, the answer may have arrived already
    const int fd = receive_descriptor(socket_, hello);
    if (fd < 0)
      throw std::runtime_error("the drive at " + path.string() + " " + sentence(hello.refusal, segment_bytes));
    memory_ = std::make_unique<RingMemory>(RingMemory::attach(fd));
  } catch (...) {
    close_ours(socket_);
    throw;
  }
}

bool RingConnection::alive() const {
  pollfd watched{socket_, POLLIN, 0};
  return poll(&watched, 1, 0) <= 0 || !(watched.revents & (POLLHUP | POLLERR));
}

RingConnection::~RingConnection() { close_ours(socket_); }

}  // namespace kvdrive::nvme
