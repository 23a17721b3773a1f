// SPDX-License-Identifier: Apache-2.0
// The sockets of an NVMe/TCP target: one thread with epoll, in which nothing blocks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "tcp/connection.hpp"
#include "tcp/target.hpp"

namespace kvdrive::tcp {

// A file descriptor that is closed by its destructor, and in children of this process at once.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1);
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

class Server {
 public:
  // Listens at a numeric address; port 0 takes any free port. Throws std::runtime_error when it cannot listen. Throws
  // std::invalid_argument for an address other than loopback if some host may connect without a secret.
  Server(nvme::Subsystem& subsystem, const std::string& host, std::uint16_t port, TargetOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const { return port_; }
  Target& target() { return target_; }

 private:
  struct Client {
    Client(Descriptor socket, Target& target, Address local, Clock::time_point now)
        : socket(std::move(socket)), connection(target, std::move(local), now) {}
    Descriptor socket;
    Connection connection;
    bool closing = false;  // nothing more is sent; the host has to close
    Clock::time_point closing_since{};
    std::uint32_t events = 0;
  };

  void run();
  void accept_all();
  // Moves bytes in and out. Returns false when the client must be removed.
  bool serve(Client& client, std::uint32_t events);
  bool read_some(Client& client);
  bool write_all(Client& client);
  void serve_all();
  void watch(int fd, std::uint32_t events, bool add);

  Descriptor epoll_, wake_, listener_;
  std::uint16_t port_ = 0;
  Target target_;
  std::map<int, std::unique_ptr<Client>> clients_;
  std::array<std::byte, Connection::kLargeRead> buffer_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace kvdrive::tcp
