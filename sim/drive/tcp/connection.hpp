// SPDX-License-Identifier: Apache-2.0
// One TCP connection, which is one queue: PDUs in, PDUs out. Knows nothing of sockets.
//
// ICReq and ICResp, Connect, authentication where the host must prove who it is, then commands. A command's data come
// in its capsule or after an R2T; commands whose data would exceed the budget wait for theirs. Commands execute in the
// order in which their data are complete.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tcp/pdu.hpp"
#include "tcp/pdu_reader.hpp"
#include "tcp/target.hpp"

namespace kvdrive::tcp {

class Connection {
 public:
  // `local` is where the host reached the target.
  Connection(Target& target, Address local, Clock::time_point now);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Bytes that arrived. PDUs are handled until their answers fill the output; `proceed` goes on with the rest.
  void receive(ByteView bytes, Clock::time_point now);
  void proceed(Clock::time_point now);
  // Whether bytes are better left in the socket for now.
  bool is_full() const { return output_bytes_ >= kOutputLimitBytes; }

  // PDUs to be sent, oldest first; `sent` takes bytes off the front.
  const std::deque<Bytes>& output() const { return output_; }
  std::size_t output_begin() const { return output_begin_; }
  void sent(std::size_t bytes, Clock::time_point now);

  // No bytes are wanted any more: close when the output is sent.
  bool ending() const { return ending_; }
  // Close at once.
  bool dropped() const { return dropped_; }
  // Ends a connection that has not come forward in time.
  void check_time(Clock::time_point now);

  // A completion that came late.
  void deliver(const nvme::Response& response);
  // The association is gone.
  void leave();

 private:
  static constexpr std::size_t kOutputLimitBytes = 4 << 20;

  struct Incoming {
    abi::Sqe command;
    Bytes data;
    std::uint32_t received = 0;
    bool damaged = false;
  };
  // Where a command's data are.
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
  void detach();
  void send(Bytes pdu);
  bool is_idle() const;

  DataPointer locate(const abi::Sqe& command, nvme::Direction direction, std::size_t capsule_bytes) const;
  Expected expected(const abi::Sqe& command) const;
  nvme::Status check_order(const abi::Sqe& command) const;
  void request_data();
  void execute(const abi::Sqe& command, ByteView data, std::uint32_t room);
  void execute_fabrics(const abi::Sqe& command, ByteView data, std::uint32_t room);
  void respond(const nvme::Response& response);
  void complete(const abi::Sqe& command, nvme::Status status, std::uint64_t result = 0, Bytes data = {},
                bool retry = false);

  // Fabrics commands (fabrics.cpp).
  void connect(const abi::Sqe& command, ByteView data);
  void get_property(const abi::Sqe& command);
  void set_property(const abi::Sqe& command);
  void authenticate(const abi::Sqe& command, ByteView data);
  void answer_authentication(const abi::Sqe& command, std::uint32_t room);

  Target& target_;
  const Address local_;
  PduReader reader_{kInCapsuleBytes};
  PduWriter writer_{};

  std::shared_ptr<Association> association_{};
  nvme::QueueId queue_ = 0;
  std::uint32_t entries_ = 0;
  bool flow_control_ = true;  // of the submission queue
  std::optional<Authentication> authentication_{};
  bool authenticated_ = true;

  std::map<std::uint16_t, Incoming> incoming_{};  // by TTAG
  std::deque<Incoming> waiting_{};                // for their R2T
  std::uint64_t incoming_bytes_ = 0;
  std::uint16_t next_tag_ = 0;

  std::deque<Bytes> output_{};
  std::size_t output_begin_ = 0;  // within the first one
  std::size_t output_bytes_ = 0;
  bool ending_ = false, dropped_ = false;
  Clock::time_point opened_, progress_;
};

}  // namespace kvdrive::tcp
