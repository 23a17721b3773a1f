// SPDX-License-Identifier: Apache-2.0
#include "nvme/ring_link.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace kvdrive::nvme {
namespace {

constexpr std::uint64_t kLargestSegment = std::uint64_t{64} << 30;

// What a host says first. The answer is the same message with the segment's descriptor.
struct Hello {
  std::uint32_t magic = kRingMagic;
  std::uint32_t version = kRingVersion;
  std::uint64_t segment_bytes = 0;
};

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = path.string();
  if (name.size() >= sizeof address.sun_path) throw std::runtime_error("the socket's path is too long: " + name);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return address;
}

bool connected(int socket, const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
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

// The descriptor, -1 when there is none.
int receive_descriptor(int socket, Hello& hello) {
  iovec part{.iov_base = &hello, .iov_len = sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof hello)) return -1;
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

RingServer::RingServer(Subsystem& subsystem, std::filesystem::path path)
    : subsystem_(subsystem), path_(std::move(path)) {
  const sockaddr_un address = address_of(path_);
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (listener_ < 0 || wake_ < 0) fail("cannot make a socket");
  if (std::filesystem::is_socket(path_)) {  // of a server that is gone, or of one that answers
    const int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (probe < 0) fail("cannot make a socket");
    const bool answers = connected(probe, path_);
    close(probe);
    if (answers) throw std::runtime_error(path_.string() + " is in use by another drive");
    std::filesystem::remove(path_);
  }
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 16) != 0) {
    fail("cannot listen at " + path_.string());
  }
}

RingServer::~RingServer() {
  for (const Host& host : connected_) close(host.socket);
  close(listener_);
  close(wake_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

void RingServer::stop() {
  const std::uint64_t one = 1;
  while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

// The first message of a connection. False ends it.
bool RingServer::greet(Host& host) {
  Hello hello;
  if (host.rings || recv(host.socket, &hello, sizeof hello, 0) != static_cast<ssize_t>(sizeof hello)) return false;
  if (hello.magic != kRingMagic || hello.version != kRingVersion || hello.segment_bytes > kLargestSegment) return false;
  try {
    host.rings = std::make_unique<ServedRings>(subsystem_, hello.segment_bytes, ControllerOptions{}, true);
  } catch (const std::exception&) {
    return false;
  }
  return send_with_descriptor(host.socket, hello, host.rings->memory().fd());
}

void RingServer::run() {
  while (true) {
    std::vector<pollfd> watched{{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (const Host& host : connected_) watched.push_back({host.socket, POLLIN, 0});
    if (poll(watched.data(), watched.size(), -1) < 0) {
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
      close(host->socket);
      host = connected_.erase(host);
    }
    if (watched[0].revents) {
      const int accepted = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted >= 0 && connected_.size() < kMaxHosts) {
        connected_.push_back({.socket = accepted, .rings = nullptr});
      } else if (accepted >= 0) {
        close(accepted);
      }
    }
    hosts_ = connected_.size();
  }
}

RingConnection::RingConnection(const std::filesystem::path& path, std::uint64_t segment_bytes) {
  socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (socket_ < 0) fail("cannot make a socket");
  try {
    if (!connected(socket_, path)) {
      throw std::runtime_error("no drive is served at " + path.string() + ": start `kvdrive drive serve` there");
    }
    Hello hello{.segment_bytes = segment_bytes};
    const bool sent = send(socket_, &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
    const int fd = sent ? receive_descriptor(socket_, hello) : -1;
    if (fd < 0) throw std::runtime_error("the drive at " + path.string() + " refuses a segment of this size");
    memory_ = std::make_unique<RingMemory>(RingMemory::attach(fd));
  } catch (...) {
    close(socket_);
    throw;
  }
}

bool RingConnection::alive() const {
  pollfd watched{socket_, POLLIN, 0};
  return poll(&watched, 1, 0) <= 0 || !(watched.revents & (POLLHUP | POLLERR));
}

RingConnection::~RingConnection() { close(socket_); }

}  // namespace kvdrive::nvme
