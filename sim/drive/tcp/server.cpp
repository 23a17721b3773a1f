// SPDX-License-Identifier: Apache-2.0
#include "tcp/server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "process.hpp"

namespace kvdrive::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{50};            // interval between checks of the timeouts
constexpr milliseconds kCloseTimeout{2000};  // time for the host to close after a termination request

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress parse(const std::string& host, std::uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
  } else {
    throw std::invalid_argument("'" + host + "' is no numeric IPv4 or IPv6 address");
  }
  return address;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr);
}

Address local_address(int fd) {
  SocketAddress local;
  if (getsockname(fd, local.get(), &local.size) != 0) fail("cannot read a socket's address");
  char text[INET6_ADDRSTRLEN] = "";
  if (local.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&local.storage);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return {text, ntohs(v4->sin_port), false};
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&local.storage);
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  return {text, ntohs(v6->sin6_port), true};
}

}  // namespace

Descriptor::Descriptor(int fd) : fd_(fd) {
  if (fd_ >= 0) close_in_children(fd_);
}

Descriptor::~Descriptor() {
  if (fd_ < 0) return;
  forget_in_children(fd_);
  close(fd_);
}

Server::Server(nvme::Subsystem& subsystem, const std::string& host, std::uint16_t port, TargetOptions options)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      target_(subsystem, std::move(options), [fd = wake_.get()] {
        const std::uint64_t one = 1;
        // This fails only when the counter is full, and then the thread is awake anyway.
        [[maybe_unused]] const auto written = write(fd, &one, sizeof one);
      }) {
  SocketAddress address = parse(host, port);
  const auto& hosts = target_.options().hosts;
  const bool all_prove = !hosts.empty() && std::ranges::all_of(hosts, [](const HostAccess& h) { return !!h.secret; });
  if (!is_loopback(address) && !all_prove) {
    throw std::invalid_argument(
        "an address other than loopback needs a list of hosts, each with a DH-HMAC-CHAP secret");
  }
  listener_ = Descriptor(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  if (epoll_.get() < 0 || wake_.get() < 0 || listener_.get() < 0 ||
      setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
    fail("cannot make a socket");
  }
  if (bind(listener_.get(), address.get(), address.size) != 0 || listen(listener_.get(), 128) != 0) {
    fail("cannot listen at " + host + " port " + std::to_string(port));
  }
  port_ = local_address(listener_.get()).port;
  watch(listener_.get(), EPOLLIN, true);
  watch(wake_.get(), EPOLLIN, true);
  thread_ = std::thread(&Server::run, this);
}

Server::~Server() {
  stop_ = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Server::watch(int fd, std::uint32_t events, bool add) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0) fail("epoll");
}

void Server::run() {
  std::array<epoll_event, 64> events;
  Clock::time_point next_tick = Clock::now();
  while (!stop_) {
    const int tick_ms = target_.pool().can_serve() ? 0 : static_cast<int>(kTick.count());
    const int timeout = clients_.empty() ? -1 : tick_ms;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    const auto woken = Clock::now();
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener_.get()) {
        accept_all();
      } else if (fd == wake_.get()) {
        std::uint64_t value;
        [[maybe_unused]] const auto got = read(fd, &value, sizeof value);
      } else if (const auto found = clients_.find(fd); found != clients_.end()) {
        if (!serve(*found->second, events[static_cast<std::size_t>(i)].events)) clients_.erase(found);
      }
    }
    target_.deliver_posted();
    // The sockets are served before the timeouts are checked, because arrived commands are signs of life, however long
    // the commands before them took.
    const auto now = Clock::now();
    const bool tick = now >= next_tick;
    if (tick && count < static_cast<int>(events.size())) target_.expire_keep_alives(now);
    if (tick) {
      next_tick = now + kTick;
      for (const auto& [fd, client] : clients_) client->connection.check_time(now);
    }
    serve_all();
    if (const auto busy = Clock::now() - woken; busy > kTick) {  // a command took long
      for (const auto& [fd, client] : clients_) client->connection.excuse(busy);
    }
  }
  clients_.clear();
}

void Server::accept_all() {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    // A connection beyond the limit is closed at once; the host tries again later.
    if (clients_.size() >= target_.options().max_connections) continue;
    const int yes = 1, fd = socket.get();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    try {
      auto client = std::make_unique<Client>(std::move(socket), target_, local_address(fd), Clock::now());
      client->events = EPOLLIN;
      watch(fd, EPOLLIN, true);
      clients_.emplace(fd, std::move(client));
    } catch (const std::exception&) {
      continue;  // the host has disconnected, or memory is short
    }
  }
}

// Serves connections whose state changed through another connection or through time: output to send, or a close.
void Server::serve_all() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    it = serve(*it->second, 0) ? std::next(it) : clients_.erase(it);
  }
}

bool Server::serve(Client& client, std::uint32_t events) try {
  Connection& connection = client.connection;
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !read_some(client)) return false;
  connection.proceed(Clock::now());  // the pool may have room for waiting commands now
  if (connection.dropped() || !write_all(client)) return false;
  if (connection.ending() && connection.output().empty() && !client.closing) {
    shutdown(client.socket.get(), SHUT_WR);
    client.closing = true;
    client.closing_since = Clock::now();
  }
  if (client.closing && Clock::now() - client.closing_since > kCloseTimeout) return false;
  const std::uint32_t wanted = (connection.is_full() ? 0u : std::uint32_t{EPOLLIN}) |
                               (connection.output().empty() ? 0u : std::uint32_t{EPOLLOUT});
  if (wanted != client.events) watch(client.socket.get(), wanted, false);
  client.events = wanted;
  return true;
} catch (const std::exception&) {
  return false;  // memory is short or the system failed: only this connection ends
}

// Reads one buffer at most, so that a busy host leaves time for the others.
bool Server::read_some(Client& client) {
  if (client.connection.is_full()) return true;
  const ssize_t got = recv(client.socket.get(), buffer_.data(), client.connection.read_bytes(), 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  client.connection.receive(ByteView(buffer_).first(static_cast<std::size_t>(got)), Clock::now());
  return true;
}

bool Server::write_all(Client& client) {
  Connection& connection = client.connection;
  while (!connection.output().empty()) {
    std::array<iovec, 64> pieces;
    std::size_t count = 0, skip = connection.output_begin();
    for (const Bytes& pdu : connection.output()) {
      if (count == pieces.size()) break;
      pieces[count++] = {const_cast<std::byte*>(pdu.data()) + skip, pdu.size() - skip};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(client.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    const auto now = Clock::now();
    connection.sent(static_cast<std::size_t>(sent), now);
    if (!connection.is_full()) connection.proceed(now);
  }
  return true;
}

}  // namespace kvdrive::tcp
