// SPDX-License-Identifier: Apache-2.0
#include "session_drive.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "crc32c.hpp"
#include "halves.hpp"

namespace kvdrive::llama {
namespace {

constexpr std::uint32_t kMostAppended = 32768;  // tokens of an append, whose number has 16 bits
constexpr std::uint64_t kMostMoved = 1 << 20;   // bytes of rows that a command moves, where that is more than a row
constexpr float kLog2E = 1.44269504F;
constexpr const char kListKey[] = "llama.cpp";  // of the value that lists the plugin's sessions
constexpr std::size_t kMostListed = 65536;

std::string reason_of(nvme::Status status, const std::string& failure) {
  switch (status) {
    case abi::kCapacityExceeded:
      return "the drive is full: make a larger one (KVDRIVE_CAPACITY), or ask llama.cpp for less context (-c)";
    case abi::kValueNotFinite:
      return "the model computed an infinity or a NaN, which the drive does not store";
    case abi::kUnrecoveredRead:
      return "rows were lost: check the drive with `kvdrive drive check`";
    default:
      break;
  }
  char number[16];
  std::snprintf(number, sizeof number, "%03xh", static_cast<unsigned>(status));
  return "status " + std::string(number) + (failure.empty() ? "" : ", " + failure);
}

[[noreturn]] void refuse(const char* what, nvme::Status status, const std::string& failure) {
  throw std::runtime_error(std::string("the drive failed to ") + what + ": " + reason_of(status, failure));
}

template <typename Command>
void set_key(Command& command) {
  static_assert(sizeof kListKey - 1 > sizeof command.key_low && sizeof kListKey - 1 <= 16);
  command.key_bytes = sizeof kListKey - 1;
  std::memcpy(command.key_low, kListKey, sizeof command.key_low);
  std::memcpy(command.key_high, kListKey + sizeof command.key_low, sizeof kListKey - 1 - sizeof command.key_low);
}

std::uint32_t tokens_together(std::uint32_t token_bytes) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kMostMoved / token_bytes));
}

std::size_t query_bytes(const Query& query) {
  return std::size_t{2} * query.heads * query.group * query.dim + query.valid.size();
}

std::size_t records_bytes(const Query& query) {
  const std::size_t records = (query.group + abi::kMaxGroup - 1) / abi::kMaxGroup;
  return query.heads * records * sizeof(abi::AttentionResult);
}

std::size_t out_numbers(const Query& query) { return std::size_t{query.heads} * query.group * query.dim; }

// Results over chosen units are binary16, others binary32.
std::size_t out_bytes(const Query& query) {
  return out_numbers(query) * (query.choice.chooses() ? sizeof(std::uint16_t) : sizeof(float));
}

void read_out(const Query& query, const std::byte* from) {
  if (!query.choice.chooses()) {
    std::memcpy(query.out, from, out_bytes(query));
    return;
  }
  std::vector<std::uint16_t> halves(out_numbers(query));
  std::memcpy(halves.data(), from, out_bytes(query));
  to_singles(halves.data(), halves.size(), query.out);
}

void write_query(const Query& query, std::byte* row_at, std::byte* data_at) {
  nvme::AttnRow row{};
  row.session = query.session;
  row.heads = static_cast<std::uint8_t>(query.heads);
  row.layer = query.layer;
  row.data_bytes = static_cast<std::uint32_t>(query_bytes(query));
  row.tokens = query.tokens;
  row.mode = query.choice.chooses() ? abi::kGroups : abi::kPartial;
  row.r = query.choice.unit;
  row.k_top = query.choice.units;
  row.local = query.choice.limit;
  row.group = static_cast<std::uint8_t>(query.group);
  row.has_valid = query.valid.empty() ? 0 : 1;
  const float scale = query.scale * kLog2E;
  std::memcpy(&row.scale_log2e, &scale, sizeof scale);
  std::memcpy(row_at, &row, sizeof row);
  const std::size_t q_bytes = 2 * query.q.size();
  std::memcpy(data_at, query.q.data(), q_bytes);
  if (!query.valid.empty()) std::memcpy(data_at + q_bytes, query.valid.data(), query.valid.size());
}

}  // namespace

SessionDrive::SessionDrive(const Configuration& configuration)
    : format_(configuration.format), policy_(configuration.policy), drive_(open_drive(configuration)) {
  if (drive_->exclusive()) remove_leftovers();
}

SessionDrive::~SessionDrive() {
  try {
    for (const std::uint32_t number : std::set(sessions_)) remove({.number = number});
  } catch (const std::exception&) {
    // The list names them for the next process.
  }
}

nvme::Reply SessionDrive::execute(const void* command, std::span<const std::byte> data, std::uint64_t room,
                                  const char* what) {
  abi::Sqe entry;
  std::memcpy(&entry, command, sizeof entry);
  nvme::Reply reply = drive_->execute(entry, data, room);
  if (reply.status != abi::kSuccess) {
    refuse(what, reply.status, reply.status == abi::kInternalError ? drive_->failure() : "");
  }
  return reply;
}

Session SessionDrive::open() {
  const std::lock_guard lock(mutex_);
  const auto taken = drive_->sessions();
  std::random_device random;  // other programs may use the drive later: small numbers are theirs
  std::uint32_t number = 0;
  do {
    number = random();
  } while (number == 0 || sessions_.contains(number) || std::find(taken.begin(), taken.end(), number) != taken.end());
  sessions_.insert(number);
  store_list();
  ++counters_.sessions;
  return {.number = number};
}

void SessionDrive::take(const Session& session) {
  const std::lock_guard lock(mutex_);
  sessions_.insert(session.number);
  store_list();
}

void SessionDrive::release(const Session& session) {
  const std::lock_guard lock(mutex_);
  if (sessions_.erase(session.number) != 0) store_list();
}

void SessionDrive::remove(const Session& session) {
  abi::SessionTrim command{};
  command.opcode = abi::kSessionTrim;
  command.nsid = abi::kNvm;
  command.session = session.number;
  abi::Sqe entry;
  std::memcpy(&entry, &command, sizeof entry);
  const nvme::Reply reply = drive_->execute(entry, {}, 0);
  if (reply.status != abi::kSuccess && reply.status != abi::kUnknownSession) refuse("remove rows", reply.status, "");
  const std::lock_guard lock(mutex_);
  if (sessions_.erase(session.number) != 0) store_list();
}

void SessionDrive::append(Session& session, const LayerRows& rows, std::uint32_t first, std::uint32_t tokens,
                          std::span<const std::uint16_t> halves) {
  const std::uint32_t row_bytes = row_bytes_of(format_, rows.dim);
  std::vector<std::byte> encoded;
  for (std::uint32_t done = 0; done < tokens;) {
    const std::uint32_t part = std::min({tokens - done, kMostAppended, tokens_together(rows.heads * row_bytes)});
    std::span<const std::byte> data = std::as_bytes(halves);
    if (format_ != nvme::kBinary16 || part < tokens) {
      encoded.resize(std::size_t{rows.heads} * part * row_bytes);
      for (std::uint32_t head = 0; head < rows.heads; ++head) {
        const std::uint16_t* from = halves.data() + (std::size_t{head} * tokens + done) * rows.dim;
        encode_rows(format_, rows.dim, from, part, encoded.data() + std::size_t{head} * part * row_bytes);
      }
      data = encoded;
    }
    abi::KvAppend command{};
    command.opcode = abi::kKvAppend;
    command.nsid = abi::kNvm;
    command.session = session.number;
    command.heads = static_cast<std::uint8_t>(rows.heads);
    command.layer = rows.layer;
    command.first_token = first + done;
    command.tokens = static_cast<std::uint16_t>(part);
    command.kind = rows.kind;
    command.type = static_cast<std::uint8_t>(format_);
    command.row_bytes = row_bytes;
    if (policy_.groups) command.options = abi::kAppendGroups;
    command.sequence = session.appends;
    command.crc32c = crc32c(data);
    execute(&command, data, 0, "store K and V");
    ++session.appends;
    ++counters_.appends;
    counters_.appended_rows += part;
    done += part;
  }
}

void SessionDrive::read(const Session& session, const LayerRows& rows, std::uint32_t first_head, std::uint32_t heads,
                        std::uint32_t first, std::uint32_t tokens, std::uint16_t* out) {
  const std::uint32_t together = tokens_together(heads * row_bytes_of(format_, rows.dim));
  if (tokens <= together) return read_together(session, rows, first_head, heads, first, tokens, out);
  for (std::uint32_t head = 0; head < heads; ++head) {
    const std::uint32_t of_head = tokens_together(row_bytes_of(format_, rows.dim));
    for (std::uint32_t done = 0; done < tokens; done += of_head) {
      read_together(session, rows, first_head + head, 1, first + done, std::min(of_head, tokens - done),
                    out + (std::size_t{head} * tokens + done) * rows.dim);
    }
  }
}

void SessionDrive::read_together(const Session& session, const LayerRows& rows, std::uint32_t first_head,
                                 std::uint32_t heads, std::uint32_t first, std::uint32_t tokens, std::uint16_t* out) {
  nvme::KvRead command{};
  command.opcode = abi::kKvRead;
  command.nsid = abi::kNvm;
  command.session = session.number;
  command.head = static_cast<std::uint8_t>(first_head);
  command.heads = static_cast<std::uint8_t>(heads);
  command.layer = rows.layer;
  command.first_token = first;
  command.tokens = tokens;
  command.row_bytes = row_bytes_of(format_, rows.dim);
  command.kind = rows.kind;
  const nvme::Reply reply = execute(&command, {}, std::uint64_t{heads} * tokens * command.row_bytes, "read K and V");
  if (format_ == nvme::kBinary16) {
    std::memcpy(out, reply.data.data(), reply.data.size());
  } else {
    decode_rows(format_, rows.dim, reply.data, out);
  }
  ++counters_.reads;
  counters_.read_rows += tokens;
}

void SessionDrive::trim(const Session& session, std::uint32_t from) {
  abi::SessionTrim command{};
  command.opcode = abi::kSessionTrim;
  command.nsid = abi::kNvm;
  command.session = session.number;
  command.from_token = from;
  execute(&command, {}, 0, "forget rows");
  ++counters_.trims;
}

Session SessionDrive::fork(const Session& session, std::uint32_t tokens) {
  const Session target = open();
  abi::SessionFork command{};
  command.opcode = abi::kSessionFork;
  command.nsid = abi::kNvm;
  command.session = session.number;
  command.target = target.number;
  command.tokens = tokens;
  execute(&command, {}, 0, "copy a sequence");
  ++counters_.forks;
  return target;
}

void SessionDrive::attend(std::span<const Query> queries) {
  while (!queries.empty()) {
    const auto together = queries.first(std::min<std::size_t>(queries.size(), nvme::kMaxAttnRows));
    attend_together(together);
    queries = queries.subspan(together.size());
  }
}

void SessionDrive::attend_together(std::span<const Query> queries) {
  std::size_t bytes = queries.size() * sizeof(nvme::AttnRow);
  std::size_t room = queries.size() * sizeof(nvme::AttnRowResult);
  for (const Query& query : queries) {
    bytes += query_bytes(query);
    room += records_bytes(query) + out_bytes(query);
  }
  std::vector<std::byte> data(bytes);
  std::size_t at = queries.size() * sizeof(nvme::AttnRow);
  for (std::size_t row = 0; row < queries.size(); ++row) {
    write_query(queries[row], data.data() + row * sizeof(nvme::AttnRow), data.data() + at);
    at += query_bytes(queries[row]);
  }
  nvme::AttnRows command{};
  command.opcode = abi::kAttnSubmitRows;
  command.nsid = abi::kCp;
  command.rows = static_cast<std::uint32_t>(queries.size());
  command.data_bytes = static_cast<std::uint32_t>(bytes);
  command.crc32c = crc32c(data);
  const std::uint64_t before = drive_->bytes_read().value_or(0);
  const nvme::Reply submitted = execute(&command, data, 0, "attend");
  abi::AttnFetch fetch{};
  fetch.opcode = abi::kAttnFetch;
  fetch.nsid = abi::kCp;
  fetch.ticket = static_cast<std::uint32_t>(submitted.result);
  fetch.data_bytes = static_cast<std::uint32_t>(room);
  const nvme::Reply reply = execute(&fetch, {}, room, "attend");
  std::size_t from = queries.size() * sizeof(nvme::AttnRowResult);
  for (std::size_t row = 0; row < queries.size(); ++row) {
    const auto result = nvme::read_as<nvme::AttnRowResult>(reply.data, row * sizeof(nvme::AttnRowResult));
    if (result.status != abi::kSuccess) refuse("attend", static_cast<nvme::Status>(result.status), "");
    from += records_bytes(queries[row]);
    read_out(queries[row], reply.data.data() + from);
    from += out_bytes(queries[row]);
  }
  counters_.queries += queries.size();
  note_shares(queries, std::span(reply.data).subspan(queries.size() * sizeof(nvme::AttnRowResult)),
              drive_->bytes_read().value_or(0) - before);
}

void SessionDrive::note_shares(std::span<const Query> queries, std::span<const std::byte> results, std::uint64_t read) {
  const std::lock_guard lock(shares_mutex_);
  shares_.read_bytes += read;
  std::size_t at = 0;
  for (const Query& query : queries) {
    shares_.all_bytes += std::uint64_t{2} * query.heads * query.tokens * row_bytes_of(format_, query.dim);
    const std::size_t records = records_bytes(query) / query.heads / sizeof(abi::AttentionResult);
    for (std::uint32_t head = 0; query.choice.chooses() && head < query.heads * query.group; ++head) {
      const std::uint32_t in_group = head % query.group;
      const std::size_t record = head / query.group * records + in_group / abi::kMaxGroup;
      const auto result = nvme::read_as<abi::AttentionResult>(results, at + record * sizeof(abi::AttentionResult));
      float unread = 0;
      std::memcpy(&unread, &result.alpha[in_group % abi::kMaxGroup], sizeof unread);
      shares_.unread += unread;
      shares_.most_unread = std::max(shares_.most_unread, double{unread});
      ++shares_.queries;
    }
    at += records_bytes(query) + out_bytes(query);
  }
}

Shares SessionDrive::shares() const {
  const std::lock_guard lock(shares_mutex_);
  return shares_;
}

std::uint64_t SessionDrive::capacity_bytes() const { return drive_->usage().capacity_bytes; }
std::uint64_t SessionDrive::free_bytes() const { return drive_->usage().free_bytes; }

void SessionDrive::remove_leftovers() {
  nvme::ValueCommand command{};
  command.opcode = nvme::kValueRetrieve;
  command.nsid = nvme::kNsidValues;
  command.size = kMostListed * sizeof(std::uint32_t);
  set_key(command);
  abi::Sqe entry;
  std::memcpy(&entry, &command, sizeof entry);
  const nvme::Reply reply = drive_->execute(entry, {}, command.size);
  if (reply.status == nvme::kScKeyDoesNotExist) return;
  if (reply.status != abi::kSuccess) refuse("read the list of llama.cpp's sessions", reply.status, drive_->failure());
  for (std::size_t at = 0; at + sizeof(std::uint32_t) <= reply.data.size(); at += sizeof(std::uint32_t)) {
    sessions_.insert(nvme::read_as<std::uint32_t>(reply.data, at));
  }
  for (const std::uint32_t number : std::set(sessions_)) remove({.number = number});
}

// The list is in the drive's journal before the rows of a new session and behind the removal of an old one.
void SessionDrive::store_list() {
  if (!drive_->exclusive()) return;  // others have lists of their own, and are at work
  const std::vector<std::uint32_t> numbers(sessions_.begin(), sessions_.end());
  const auto data = std::as_bytes(std::span(numbers));
  nvme::ValueCommand command{};
  command.opcode = nvme::kValueStore;
  command.nsid = nvme::kNsidValues;
  command.size = static_cast<std::uint32_t>(data.size());
  set_key(command);
  execute(&command, data, 0, "store the list of llama.cpp's sessions");
}

std::string SessionDrive::statistics() const {
  const DriveUsage drive = drive_->usage();
  std::string text = "{";
  const auto add = [&text](const char* name, std::uint64_t value) {
    text += (text.size() > 1 ? ", \"" : "\"") + std::string(name) + "\": " + std::to_string(value);
  };
  add("appends", counters_.appends);
  add("appended_rows", counters_.appended_rows);
  add("reads", counters_.reads);
  add("read_rows", counters_.read_rows);
  add("sessions", counters_.sessions);
  add("trims", counters_.trims);
  add("forks", counters_.forks);
  add("queries", counters_.queries);
  const Shares shares = this->shares();
  add("attention_bytes", shares.all_bytes);
  add("attention_bytes_read", shares.read_bytes);
  add("unread_per_million", static_cast<std::uint64_t>(1e6 * shares.unread_share()));
  add("most_unread_per_million", static_cast<std::uint64_t>(1e6 * shares.most_unread));
  add("capacity_bytes", drive.capacity_bytes);
  add("commands", drive.commands);
  add("failed_commands", drive.failed_commands);
  add("pages_read", drive.pages_read);
  add("staged_bytes_read", drive.staged_bytes_read);
  add("pages_written", drive.pages_written);
  add("file_reads", drive.file_reads);
  add("file_bytes_read", drive.file_bytes_read);
  add("pieces_early", drive.pieces_early);
  add("pieces_unused", drive.pieces_unused);
  return text + "}";
}

}  // namespace kvdrive::llama
