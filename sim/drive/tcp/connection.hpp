// SPDX-License-Identifier: Apache-2.0
// One TCP connection, which is one queue: it takes bytes of PDUs and returns bytes of PDUs. It knows nothing of
// sockets.
//
// A connection starts with ICReq and ICResp, Connect, and authentication if the host must prove its identity. Then
// commands follow. A command's data come in its capsule or after an R2T. Commands wait until the pool of all
// connections has room for their data, in either direction. They execute in the order in which their data are complete.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tcp/buffer_pool.hpp"
#include "tcp/pdu.hpp"
#include "tcp/pdu_reader.hpp"
#include "tcp/target.hpp"

namespace kvdrive::tcp {

class Connection {
 public:
  // `local` is the address at which the host reached the target.
  Connection(Target& target, Address local, Clock::time_point now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Takes bytes that arrived. PDUs are handled until their answers fill the output; `proceed` handles the rest later.
  void receive(ByteView bytes, Clock::time_point now);
  void proceed(Clock::time_point now);
  // True if arriving bytes should stay in the socket for now.
  bool is_full() const {
    return output_bytes_ >= kOutputLimitBytes || output_bytes_ - answer_bytes_ >= kUnaskedLimitBytes;
  }
  // Bytes to read from the socket at once. When the pool is full these are few, but enough for commands without data.
  std::size_t read_bytes() const { return incoming_.empty() && target_.pool().full() ? kSmallRead : kLargeRead; }

  static constexpr std::size_t kLargeRead = 256 << 10, kSmallRead = 4096;
  // Data that were asked for have to arrive within the target's `data_timeout`, and the time that all of them on this
  // connection take at this rate.
  static constexpr std::uint64_t kLeastRate = 256 << 10;  // bytes per second

  // PDUs to send, oldest first. `sent` removes bytes from the front.
  const std::deque<Bytes>& output() const { return output_; }
  std::size_t output_begin() const { return output_begin_; }
  void sent(std::size_t bytes, Clock::time_point now);

  // True if no more bytes are wanted: close the connection when the output is sent.
  bool ending() const { return ending_; }
  // True if the connection must be closed at once.
  bool dropped() const { return dropped_; }
  // Ends a connection that exceeded a time limit.
  void check_time(Clock::time_point now);
  // The target was busy with other work for so long: data that were asked for may come so much later.
  void excuse(Clock::duration time);

  // Takes a completion that came after its command's `execute`.
  void deliver(const nvme::Response& response);
  // Called when the association has ended.
  void leave();

 private:
  static constexpr std::size_t kOutputLimitBytes = 4 << 20;
  static constexpr std::size_t kUnaskedLimitBytes = 64 << 10;  // of them completions and headers
  static constexpr std::size_t kSmallPdu = 4096;               // small PDUs are sent together

  // A command that was answered with an R2T and whose data are arriving.
  struct Incoming {
    abi::Sqe command;
    std::uint32_t length;
    BufferPool::Lease held;
    Clock::time_point due;
    std::unique_ptr<std::byte[]> data{};  // starts at byte 0 of the command's data
    std::uint32_t received = 0;
    bool damaged = false;
  };
  // A command that waits until the pool has room for its data.
  struct Waiting {
    abi::Sqe command;
    nvme::Direction direction;
    std::uint32_t length;
  };
  // The place of a command's data.
  struct DataPointer {
    nvme::Status status = abi::kSuccess;
    std::uint32_t length = 0;
    std::optional<std::uint32_t> capsule_offset{};
  };
  struct Expected {
    nvme::Direction direction = nvme::Direction::kNone;
    std::optional<std::uint64_t> bytes = 0;
  };

  void handle(const Pdu& pdu);
  void initialize(const Pdu& pdu);
  void take_command(const Pdu& pdu);
  void take_data(const Pdu& pdu);
  void terminate(Fault fault, ByteView header);
  void end();
  void detach();
  void send(Bytes pdu);
  bool is_idle() const;

  DataPointer locate(const abi::Sqe& command, nvme::Direction direction, std::size_t capsule_bytes) const;
  Expected expected(const abi::Sqe& command) const;
  nvme::Status check_order(const abi::Sqe& command) const;
  bool may_hold(const Waiting& command) const;
  void serve_waiting(Clock::time_point now);
  void request_data(const Waiting& waiting, Clock::time_point now);
  void answer(const Waiting& waiting);
  void execute(const abi::Sqe& command, ByteView data, std::uint32_t room);
  void count_output();
  void execute_fabrics(const abi::Sqe& command, ByteView data, std::uint32_t room);
  void respond(const nvme::Response& response);
  void complete(const abi::Sqe& command, nvme::Status status, std::uint64_t result = 0, Bytes data = {},
                bool retry = false);

  // Fabrics commands (fabrics.cpp).
  void connect(const abi::Sqe& command, ByteView data);
  void get_property(const abi::Sqe& command);
  void set_property(const abi::Sqe& command);
  void authenticate(const abi::Sqe& command, ByteView data);
  void note_authentication();
  void answer_authentication(const abi::Sqe& command, std::uint32_t room);

  Target& target_;
  const Address local_;
  PduReader reader_{kInCapsuleBytes};
  PduWriter writer_{};

  std::shared_ptr<Association> association_{};
  nvme::QueueId queue_ = 0;
  std::uint32_t entries_ = 0;
  bool flow_control_ = true;  // flow control of the submission queue
  std::optional<Authentication> authentication_{};
  bool authenticated_ = true;

  BufferPool::Account held_;
  std::map<std::uint16_t, Incoming> incoming_{};  // by transfer tag (TTAG)
  std::deque<Waiting> waiting_{};
  std::uint64_t incoming_bytes_ = 0;
  std::uint16_t next_tag_ = 0;

  std::deque<Bytes> output_{};
  std::size_t output_begin_ = 0;    // bytes of the first PDU that were sent already
  std::uint64_t output_bytes_ = 0;  // bytes to send
  std::uint64_t answer_bytes_ = 0;  // of them data that `held_` counts
  bool ending_ = false, dropped_ = false;
  Clock::time_point opened_, progress_;
};

}  // namespace kvdrive::tcp
