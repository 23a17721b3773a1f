// SPDX-License-Identifier: Apache-2.0
// Namespace 4: the commands of the Key Value command set.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "commands/drive_state.hpp"
#include "commands/table.hpp"
#include "storage/transfer_schedule.hpp"

namespace kvdrive::nvme {
namespace {

static_assert(kMaxValueBytes == ValueStore::kMostBytes && kMaxKeyBytes == sizeof(Key::bytes));

constexpr std::uint32_t kStoreOptions =
    kStoreMustExist | kStoreMustNotExist | kStoreUncompressed | kStoreFua | kStorePart;
constexpr std::uint32_t kRetrieveOptions = kRetrieveRaw | kRetrieveOffset | kRetrieveAhead | kRetrieveUrgent;
constexpr std::uint32_t kDeleteReports = 1;  // bit of the feature: DELETE of a key that does not exist is an error

constexpr Reply invalid(std::size_t location) {
  return {.status = abi::kInvalidField, .location = static_cast<std::uint16_t>(location)};
}

ValueCommand fields_of(const abi::Sqe& command) { return std::bit_cast<ValueCommand>(command); }

std::optional<std::uint64_t> size_of(const abi::Sqe& command, const Drive&) { return fields_of(command).size; }

Key key_of(const ValueCommand& command) {
  Key key{.bytes = {}, .length = command.key_bytes};
  std::ranges::copy(command.key_low, key.bytes.begin());
  std::ranges::copy(command.key_high, key.bytes.begin() + sizeof command.key_low);
  std::fill(key.bytes.begin() + key.length, key.bytes.end(), std::uint8_t{0});
  return key;
}

// Refuses keys that are too long, and empty ones unless the command allows them.
std::optional<Reply> refuse_key(const ValueCommand& command, bool may_be_empty = false) {
  if (command.key_bytes > kMaxKeyBytes) return invalid(offsetof(ValueCommand, key_bytes));
  if (command.key_bytes == 0 && !may_be_empty) {
    return Reply{.status = kScInvalidKeySize, .location = offsetof(ValueCommand, key_bytes)};
  }
  return std::nullopt;
}

// Refuses options that the command lacks, and values in fields that are valid only with another option.
std::optional<Reply> refuse_fields(const ValueCommand& command, std::uint32_t options, bool offset, bool upload) {
  if (command.options & ~options) return invalid(offsetof(ValueCommand, options));
  if (command.offset != 0 && !offset) return invalid(offsetof(ValueCommand, offset));
  if (command.upload != 0 && !upload) return invalid(offsetof(ValueCommand, upload));
  if (command.total != 0 && !upload) return invalid(offsetof(ValueCommand, total));
  return std::nullopt;
}

// Refuses a store whose condition is not met.
std::optional<Reply> refuse_condition(const DriveState& drive, const ValueCommand& command) {
  const bool exists = drive.volume.values().find(key_of(command)) != nullptr;
  if (command.options & kStoreMustExist && !exists) return Reply{.status = kScKeyDoesNotExist};
  if (command.options & kStoreMustNotExist && exists) return Reply{.status = kScKeyExists};
  return std::nullopt;
}

Ns accept(DriveState& drive, std::size_t bytes) {
  const Ns accepted = drive.volume.device().accept_write(bytes, drive.now);
  drive.volume.ftl().set_time(accepted);
  return accepted;
}

Reply finish_store(DriveState& drive, const ValueCommand& command, Ns accepted) {
  ++drive.counters.value_stores;
  return {.done = command.options & kStoreFua ? drive.flush() : accepted};
}

Reply store_whole(DriveState& drive, const ValueCommand& command, std::span<const std::byte> data) {
  if (command.size > kMaxValueBytes) return {.status = kScInvalidValueSize};
  if (const auto refused = refuse_condition(drive, command)) return *refused;
  const Ns accepted = accept(drive, data.size());
  ValueStore& values = drive.volume.values();
  Value value;
  try {
    values.append(key_of(command), value, data);
    values.publish(key_of(command), value);
  } catch (const DriveFull&) {
    values.discard(value);
    return {.status = abi::kCapacityExceeded};
  } catch (...) {
    values.discard(value);
    throw;
  }
  return finish_store(drive, command, accepted);
}

// Refuses a part that is no part of a value, whatever the drive holds.
std::optional<Reply> refuse_part(const ValueCommand& command) {
  const std::uint64_t end = std::uint64_t{command.offset} + command.size;
  if (command.total > kMaxValueBytes || end > command.total) return Reply{.status = kScInvalidValueSize};
  const bool ragged = command.size % abi::kPageBytes != 0 && end != command.total;
  if (command.size == 0 || ragged) return invalid(offsetof(ValueCommand, size));
  if (command.offset % abi::kPageBytes != 0) return invalid(offsetof(ValueCommand, offset));
  if ((command.offset == 0) != (command.upload == 0)) return invalid(offsetof(ValueCommand, upload));
  return std::nullopt;
}

Reply store_part(DriveState& drive, const Request& request, const ValueCommand& command) {
  if (const auto refused = refuse_part(command)) return *refused;
  if (command.size == command.total) return store_whole(drive, command, request.data.in);
  if (const auto refused = refuse_condition(drive, command)) return *refused;
  ValueStore& values = drive.volume.values();
  if (command.offset == 0 && !values.fits(command.total)) return {.status = abi::kCapacityExceeded};
  const Key key = key_of(command);
  const auto controller = static_cast<std::uint16_t>(request.queue >> 16);
  Upload* const upload = command.offset == 0 ? &drive.uploads.begin(controller, key, command.total, kMaxUploads)
                                             : drive.uploads.find(command.upload);
  const bool known = upload != nullptr && upload->controller == controller && upload->key == key;
  if (!known || upload->total != command.total || command.offset > upload->value.bytes) {
    return {.status = kScCommandSequence, .location = offsetof(ValueCommand, upload)};
  }
  const std::uint16_t number = upload->number;
  if (command.offset + command.size <= upload->value.bytes) return {.result = number};  // it was sent again
  if (command.offset != upload->value.bytes) {
    return {.status = kScCommandSequence, .location = offsetof(ValueCommand, offset)};
  }
  const Ns accepted = accept(drive, request.data.in.size());
  try {
    values.append(key, upload->value, request.data.in);
    if (upload->value.bytes < command.total) return {.result = number, .done = accepted};
    values.publish(key, upload->value);
  } catch (const DriveFull&) {
    drive.uploads.discard(number);
    return {.status = abi::kCapacityExceeded};
  } catch (...) {
    drive.uploads.discard(number);
    throw;
  }
  drive.uploads.end(number);
  return finish_store(drive, command, accepted);
}

Reply store(DriveState& drive, const Request& request) {
  const ValueCommand command = fields_of(request.command);
  const bool part = command.options & kStorePart;
  if (request.data.in.size() != command.size) return {.status = abi::kDataLength};
  if (const auto refused = refuse_key(command)) return *refused;
  if (const auto refused = refuse_fields(command, kStoreOptions, part, part)) return *refused;
  constexpr std::uint32_t kConditions = kStoreMustExist | kStoreMustNotExist;
  if ((command.options & kConditions) == kConditions) return invalid(offsetof(ValueCommand, options));
  return part ? store_part(drive, request, command) : store_whole(drive, command, request.data.in);
}

Reply retrieve(DriveState& drive, const Request& request) {
  const ValueCommand command = fields_of(request.command);
  if (request.data.room < command.size) return {.status = abi::kDataLength};
  if (const auto refused = refuse_key(command)) return *refused;
  if (const auto refused = refuse_fields(command, kRetrieveOptions, command.options & kRetrieveOffset, false)) {
    return *refused;
  }
  const Value* const value = drive.volume.values().find(key_of(command));
  if (value == nullptr) return {.status = kScKeyDoesNotExist};
  Reply reply{.result = value->bytes | std::uint64_t{drive.volume.values().version(*value)} << 32};
  const std::uint32_t count = std::min(command.size, value->bytes - std::min(value->bytes, command.offset));
  const bool ahead = command.options & kRetrieveAhead, urgent = command.options & kRetrieveUrgent;
  if (urgent && !ahead) return invalid(offsetof(ValueCommand, options));
  std::optional<TransferKind> start;
  if (ahead) start = urgent ? TransferKind::kWeights : TransferKind::kAhead;
  Ns ready = drive.now + drive.volume.device().firmware_read(count);
  if (ahead && count == 0 && value->list != GroupMap::kNoList) {
    ready = drive.volume.ftl().join(value->list, command.offset / abi::kPageBytes, ready);
  }
  const ReadResult found = drive.volume.values().read(*value, command.offset, count, ready, reply.data, start);
  reply.done = found.done;
  if (!found.whole) return {.status = kScUnrecoveredError, .done = found.done};
  ++drive.counters.value_retrieves;
  return reply;
}

Reply list(DriveState& drive, const Request& request) {
  const ValueCommand command = fields_of(request.command);
  if (request.data.room < command.size) return {.status = abi::kDataLength};
  if (const auto refused = refuse_key(command, true)) return *refused;
  if (const auto refused = refuse_fields(command, 0, false, false)) return *refused;
  std::uint32_t count = 0;
  if (command.size < sizeof count) return invalid(offsetof(ValueCommand, size));
  Reply reply{.data = bytes_of(count), .done = drive.now};
  const auto& values = drive.volume.values().values();
  for (auto entry = values.lower_bound(key_of(command)); entry != values.end(); ++entry, ++count) {
    const Key& key = entry->first;
    const std::size_t at = reply.data.size(), bytes = (sizeof(std::uint16_t) + key.length + 3) / 4 * 4;
    if (at + bytes > command.size) break;
    const auto length = static_cast<std::uint16_t>(key.length);
    reply.data.resize(at + bytes);
    std::memcpy(reply.data.data() + at, &length, sizeof length);
    std::memcpy(reply.data.data() + at + sizeof length, key.bytes.data(), key.length);
  }
  std::memcpy(reply.data.data(), &count, sizeof count);
  return reply;
}

// Refuses what DELETE and EXIST have in common.
std::optional<Reply> refuse_key_only(const ValueCommand& command) {
  if (const auto refused = refuse_key(command)) return refused;
  if (command.size != 0) return invalid(offsetof(ValueCommand, size));
  return refuse_fields(command, 0, false, false);
}

Reply remove_value(DriveState& drive, const Request& request) {
  const ValueCommand command = fields_of(request.command);
  if (const auto refused = refuse_key_only(command)) return *refused;
  ValueStore& values = drive.volume.values();
  if (values.find(key_of(command)) != nullptr) {
    values.remove(key_of(command));
  } else if (drive.volume.health().saved_feature(kFeatureKeyValue).value_or(0) & kDeleteReports) {
    return {.status = kScKeyDoesNotExist};
  }
  return {.done = drive.now};
}

Reply exist(DriveState& drive, const Request& request) {
  const ValueCommand command = fields_of(request.command);
  if (const auto refused = refuse_key_only(command)) return *refused;
  if (drive.volume.values().find(key_of(command)) == nullptr) return {.status = kScKeyDoesNotExist};
  return {.done = drive.now};
}

constexpr StatusField kValueFields[] = {{kScInvalidValueSize, offsetof(ValueCommand, size)},
                                        {kScKeyDoesNotExist, offsetof(ValueCommand, key_low)},
                                        {kScKeyExists, offsetof(ValueCommand, key_low)}};

constexpr Command kValueCommands[] = {
    {.opcode = kValueStore,
     .nsid = kNsidValues,
     .name = "STORE",
     .direction = Direction::kToController,
     .length = size_of,
     .effects = kChangesContents,
     .handler = store,
     .fields = kValueFields},
    {.opcode = kValueRetrieve,
     .nsid = kNsidValues,
     .name = "RETRIEVE",
     .direction = Direction::kToHost,
     .length = size_of,
     .handler = retrieve,
     .fields = kValueFields},
    {.opcode = kValueList,
     .nsid = kNsidValues,
     .name = "LIST",
     .direction = Direction::kToHost,
     .length = size_of,
     .handler = list},
    {.opcode = kValueDelete,
     .nsid = kNsidValues,
     .name = "DELETE",
     .effects = kChangesContents,
     .handler = remove_value,
     .fields = kValueFields},
    {.opcode = kValueExist, .nsid = kNsidValues, .name = "EXIST", .handler = exist, .fields = kValueFields},
    {.opcode = kNvmFlush,
     .nsid = kNsidValues,
     .name = "FLUSH_VALUES",
     .handler = [](DriveState& drive, const Request&) -> Reply { return {.done = drive.flush()}; }},
};

}  // namespace

std::span<const Command> value_commands() { return kValueCommands; }

}  // namespace kvdrive::nvme
