// SPDX-License-Identifier: Apache-2.0
// Fuzzes backing files. A file that a drive wrote gets damaged bytes, sectors or pages, or forged metadata with correct
// checksums. Either the drive refuses the file with a sentence, or it works. After damage, all data that it returns
// were stored at that place at some time.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "commands/wire.hpp"
#include "crc32c.hpp"
#include "drive.hpp"
#include "fuzz/fuzz.hpp"
#include "storage/journal.hpp"

namespace kvdrive::fuzz {
namespace {

constexpr std::uint32_t kHeads = 2, kRowBytes = 64, kBlocks = 12, kMostKeys = 5;
constexpr std::uint32_t kShortened = 6, kRemoved = 128;  // a session, and the tokens that it lost
constexpr std::uint32_t kLastCoded = 2;                  // the last session whose rows are codes of kFp8
constexpr std::size_t kPage = abi::kPageBytes, kSector = PowerCut::kSectorBytes;

constexpr Limits kLimits{.staged_bytes = 1 << 20, .session_groups = 0, .metadata_bytes = 1 << 20, .run_groups = 1};

using Bytes = std::vector<std::byte>;

// The contents of a row depend only on its position, those of a block only on its number. So any earlier state can be
// checked without knowing which state the drive recovered.
Bytes rows_of(std::uint32_t head, std::uint32_t kind, std::uint32_t first, std::uint32_t tokens) {
  Bytes rows(std::size_t{tokens} * kRowBytes);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const auto row = std::span(rows).subspan(std::size_t{t} * kRowBytes, kRowBytes);
    Random(head << 24 | kind << 20 | (first + t)).fill(row);
    for (std::byte& byte : row) byte &= std::byte{0xbf};  // makes binary16 values finite and codes numbers
  }
  return rows;
}

Bytes block(std::uint64_t number) {
  Bytes bytes(nvme::kLbaBytes);
  Random(1'000'000 + number).fill(bytes);
  return bytes;
}

// The value of a key of one byte.
Bytes value(std::uint8_t key) {
  Bytes bytes(3000 * std::size_t{key});
  Random(2'000'000 + key).fill(bytes);
  return bytes;
}

// The drive is small, so that its file is written quickly.
Superblock small_drive() {
  Superblock superblock;
  superblock.capacity_units = 192;
  superblock.journal_half_bytes = kLimits.journal_bytes();
  superblock.geometry = {.channels = 2,
                         .dies_per_channel = 1,
                         .planes = 1,
                         .page_bytes = 2 * kPage,
                         .pages_per_program = 1,
                         .pages_per_block = 4,
                         .blocks_per_die = 20};
  std::string_view("mqsim-default").copy(superblock.preset.data(), superblock.preset.size() - 1);
  return superblock;
}

// The host of a drive in this process.
class Host {
 public:
  explicit Host(Drive& drive) : drive_(drive) {}

  std::uint32_t append(std::uint32_t session, std::uint32_t sequence, std::uint32_t kind, std::uint32_t first,
                       std::uint32_t tokens) {
    Bytes data;
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      const Bytes rows = rows_of(head, kind, first, tokens);
      data.insert(data.end(), rows.begin(), rows.end());
    }
    abi::KvAppend append{};
    append.opcode = abi::kKvAppend;
    append.nsid = abi::kNvm;
    append.session = session;
    append.heads = kHeads;
    append.first_token = first;
    append.tokens = static_cast<std::uint16_t>(tokens);
    append.kind = static_cast<std::uint8_t>(kind);
    append.row_bytes = kRowBytes;
    append.sequence = sequence;
    append.options = abi::kAppendSparse | abi::kAppendGroups;
    append.type = session <= kLastCoded ? nvme::kFp8 : nvme::kBinary16;
    append.crc32c = crc32c(data);
    return send(append, data).status;
  }

  std::uint32_t trim(std::uint32_t session, std::uint32_t from, std::uint8_t opcode = abi::kSessionTrim) {
    abi::SessionTrim trim{};
    trim.opcode = opcode;
    trim.nsid = abi::kNvm;
    trim.session = session;
    trim.from_token = from;
    return send(trim).status;
  }

  std::uint32_t remove(std::uint32_t session, std::uint32_t tokens, std::uint32_t before) {
    nvme::SessionRemove remove{};
    remove.opcode = abi::kSessionRemove;
    remove.nsid = abi::kNvm;
    remove.session = session;
    remove.first_token = abi::kPageBytes / kRowBytes;
    remove.tokens = tokens;
    remove.before = before;
    return send(remove).status;
  }

  std::uint32_t fork(std::uint32_t session, std::uint32_t target, std::uint32_t tokens) {
    abi::SessionFork fork{};
    fork.opcode = abi::kSessionFork;
    fork.nsid = abi::kNvm;
    fork.session = session;
    fork.target = target;
    fork.tokens = tokens;
    return send(fork).status;
  }

  std::uint32_t attend(std::uint32_t session, const RowLayout& layout, std::uint32_t tokens, bool sparf) {
    const Bytes q = rows_of(kHeads, 0, 0, kHeads * layout.head_dim() * 2 / kRowBytes);
    abi::AttnSubmit submit{};
    submit.opcode = abi::kAttnSubmit;
    submit.nsid = abi::kCp;
    submit.session = session;
    submit.heads = kHeads;
    submit.tokens = tokens;
    submit.group = 1;
    submit.mode = sparf ? abi::kSparfAttend : abi::kExact;
    if (sparf) submit.r = submit.k_top = 4;
    submit.scale_log2e = 0x3e800000;
    submit.crc32c = crc32c(q);
    return send(submit, q).status;
  }

  std::uint32_t write(std::uint64_t number) { return send(of_block(nvme::kNvmWrite, number), block(number)).status; }
  nvme::Reply read(std::uint64_t number) { return send(of_block(nvme::kNvmRead, number)); }
  std::uint32_t zero(std::uint64_t number) { return send(of_block(nvme::kNvmWriteZeroes, number)).status; }
  std::uint32_t store(std::uint8_t key) { return send(of_value(nvme::kValueStore, key), value(key)).status; }
  nvme::Reply retrieve(std::uint8_t key) { return send(of_value(nvme::kValueRetrieve, key)); }
  std::uint32_t forget(std::uint8_t key) { return send(of_value(nvme::kValueDelete, key)).status; }
  std::uint32_t flush() {
    abi::Sqe flush{};
    flush.opcode = abi::kFlush;
    flush.nsid = abi::kNvm;
    return send(flush).status;
  }

 private:
  static abi::Sqe of_block(std::uint8_t opcode, std::uint64_t number) {
    abi::Sqe command{};
    command.opcode = opcode;
    command.nsid = abi::kNvm;
    command.cdw10 = static_cast<std::uint32_t>(number);
    return command;
  }
  static nvme::ValueCommand of_value(std::uint8_t opcode, std::uint8_t key) {
    nvme::ValueCommand command{};
    command.opcode = opcode;
    command.nsid = nvme::kNsidValues;
    command.key_low[0] = key;
    command.key_bytes = 1;
    if (opcode != nvme::kValueDelete) command.size = static_cast<std::uint32_t>(value(key).size());
    return command;
  }
  template <typename Command>
  nvme::Reply send(const Command& command, std::span<const std::byte> data = {}) {
    const auto entry = std::bit_cast<abi::Sqe>(command);
    return drive_.execute({.command = entry, .data = {.in = data, .room = UINT64_MAX}});
  }

  Drive& drive_;
};

// A history with every kind of record: both indexes, staged rows, forks, ended sessions, blocks, values, several
// snapshots.
void live(Host& host) {
  const auto well = [](std::uint32_t status) { require(status == abi::kSuccess, "the base file cannot be made"); };
  for (const std::uint32_t kind : {abi::kKeys, abi::kValues}) well(host.append(5, kind, kind, 0, 300));
  well(host.flush());
  well(host.trim(5, 0, abi::kSessionErase));
  std::uint32_t sequence = 0;
  for (std::uint32_t tokens = 0, step = 150; tokens < 600; tokens += step) {
    for (const std::uint32_t kind : {abi::kKeys, abi::kValues}) well(host.append(1, sequence++, kind, tokens, step));
    well(host.flush());
    well(host.write(tokens / step));
  }
  well(host.fork(1, 2, 300));
  for (const std::uint32_t kind : {abi::kKeys, abi::kValues}) {
    well(host.append(3, kind, kind, 0, 130));
    well(host.append(2, kind, kind, 300, 70));
  }
  well(host.flush());
  well(host.trim(3, 0));
  well(host.trim(2, 310));
  for (std::uint64_t number = 2; number < kBlocks; ++number) well(host.write(number));
  well(host.zero(3));
  for (std::uint8_t key = 0; key < kMostKeys; ++key) well(host.store(key));
  well(host.flush());
  well(host.store(1));
  well(host.forget(2));
  well(host.flush());
  for (const std::uint32_t kind : {abi::kKeys, abi::kValues}) well(host.append(kShortened, kind, kind, 0, 400));
  well(host.flush());
  well(host.remove(kShortened, kRemoved, 400));
  well(host.flush());
  for (const std::uint32_t kind : {abi::kKeys, abi::kValues}) well(host.append(4, kind, kind, 0, 90));
}

// The rows of a session that is whole, or from which tokens were removed.
bool right(std::span<const std::byte> found, std::uint32_t session, const HeadSummary& head) {
  const Bytes all = rows_of(head.head, head.kind, 0, head.tokens + kRemoved);
  const std::size_t first = std::min<std::size_t>(found.size(), abi::kPageBytes);
  const std::span<const std::byte> expected(all);
  if (std::ranges::equal(found, expected.first(found.size()))) return true;
  return session == kShortened && std::ranges::equal(found.first(first), expected.first(first)) &&
         std::ranges::equal(found.subspan(first), expected.last(found.size() - first));
}

class Files final : public Surface {
 public:
  explicit Files(const std::filesystem::path& folder) : path_(folder / "drive.kv") {
    format();
    {
      Drive drive = mount();
      Host host(drive);
      live(host);
    }
    keep();
  }

  bool starts_anew() const override { return true; }

  void one(Random& random) override {
    restore();
    const bool plain = random.one_in(2);
    if (plain) {
      damage(random);
    } else {
      forge(random);
    }
    try {
      Drive drive = mount();
      look(drive, random, plain);
    } catch (const std::runtime_error& error) {  // the drive refuses the file
      require(*error.what() != 0, "a file is refused without a word");
    }
  }

 private:
  struct Extent {
    std::uint64_t offset;
    AlignedBuffer bytes;
  };

  Drive mount() const {
    VolumeOptions options;
    options.snapshot_bytes = 4 * kPage;
    options.staged_bytes = kLimits.staged_bytes;
    options.metadata_bytes = kLimits.metadata_bytes;
    options.run_groups = kLimits.run_groups;
    return {path_, make_fast_engine(), options};
  }

  void format() const {
    BackingFile file(path_, BackingFile::Access::kMake);
    Superblock superblock = small_drive();
    file.recreate(superblock.file_bytes());
    superblock.generation = superblock.snapshot = 1;
    superblock.salt = draw_salt();
    write_superblocks(file, superblock);
    RecordWriter nothing;
    Journal(file, superblock).commit(nothing);
  }

  // Records the file's nonempty pages and the journal's transactions.
  void keep() {
    BackingFile file(path_);
    superblock_ = read_superblock(file).superblock;
    AlignedBuffer page(kPage);
    const Bytes nothing(kPage);
    for (std::uint64_t offset = 0; offset < file.size(); offset += kPage) {
      file.read(offset, page.span());
      if (std::memcmp(page.span().data(), nothing.data(), kPage) == 0) continue;
      if (extents_.empty() || extents_.back().offset + extents_.back().bytes.size() != offset) {
        extents_.push_back({offset, AlignedBuffer()});
      }
      extents_.back().bytes.append(page.span());
    }
    Journal(file, superblock_).replay([this](RecordReader reader) {
      Bytes& transaction = transactions_.emplace_back();
      while (!reader.done()) transaction.push_back(reader.take(1).front());
    });
  }

  void restore() const {
    BackingFile file(path_);
    file.recreate(superblock_.file_bytes());
    for (const Extent& extent : extents_) file.write(extent.offset, extent.bytes.span());
  }

  // Picks a byte of a nonempty page.
  std::uint64_t place(Random& random) const {
    const Extent& extent = extents_[random.below(extents_.size())];
    return extent.offset + random.below(extent.bytes.size());
  }

  template <typename Edit>
  static void edit(BackingFile& file, std::uint64_t offset, Edit change) {
    AlignedBuffer page(kPage);
    const std::uint64_t start = offset / kPage * kPage;
    file.read(start, page.span());
    change(page.span(), offset - start);
    file.write(start, page.span());
  }

  // Damages the file as a disk would: wrong bytes, lost or misdirected sectors and pages, a truncated file.
  void damage(Random& random) const {
    if (random.one_in(16)) {
      std::filesystem::resize_file(path_, random.below(superblock_.file_bytes()));
      return;
    }
    BackingFile file(path_);
    for (std::uint64_t places = 1 + random.below(3); places > 0; --places) {
      const std::uint64_t at = place(random), from = place(random);
      AlignedBuffer other(kPage);
      file.read(from / kPage * kPage, other.span());
      const std::uint64_t way = random.below(4);
      edit(file, at, [&](std::span<std::byte> page, std::size_t offset) {
        const auto sector = page.subspan(offset / kSector * kSector, kSector);
        if (way == 0) random.mutate(page.subspan(offset, std::min<std::size_t>(16, kPage - offset)), 4);
        if (way == 1) std::ranges::fill(sector, std::byte{});
        if (way == 2)
          std::ranges::copy(other.span().subspan(from % kPage / kSector * kSector, kSector), sector.begin());
        if (way == 3) std::ranges::copy(other.span(), page.begin());
      });
    }
  }

  // Forges metadata with correct checksums.
  void forge(Random& random) const {
    BackingFile file(path_);
    switch (random.below(4)) {
      case 0: {
        Superblock forged = superblock_;
        random.mutate(std::as_writable_bytes(std::span(&forged, 1)).subspan(offsetof(Superblock, capacity_units)), 3);
        write_superblocks(file, forged);
        return;
      }
      case 1: {
        const Geometry& geometry = superblock_.geometry;  // the spares of a row of this drive lie in one page
        const std::uint64_t rows = std::uint64_t{geometry.rows_per_band()} * geometry.blocks_per_die;
        const std::uint64_t row = superblock_.spare_offset() + random.below(rows) * superblock_.row_spare_bytes();
        edit(file, row + random.below(geometry.units_per_row()) * sizeof(Spare),
             [&random](std::span<std::byte> page, std::size_t offset) {
               Spare spare;
               std::memcpy(&spare, page.data() + offset, sizeof spare);
               random.mutate(std::as_writable_bytes(std::span(&spare, 1)), 3);
               spare.crc = spare.expected_crc();
               std::memcpy(page.data() + offset, &spare, sizeof spare);
             });
        return;
      }
      default:
        forge_journal(file, random);
    }
  }

  // Writes the journal's other half: the same transactions with a few changed bytes, or one transaction more or fewer.
  void forge_journal(BackingFile& file, Random& random) const {
    Journal journal(file, superblock_);
    journal.replay([](RecordReader) {});
    std::vector<Bytes> forged = transactions_;
    Bytes& victim = forged[random.below(forged.size())];
    if (random.one_in(8)) victim.resize(random.below(victim.size() + 1));
    for (std::uint64_t i = 1 + random.below(3); i > 0 && victim.size() >= 4; --i) {
      const auto word = std::span(victim).subspan(random.below(victim.size() / 4) * 4, 4);
      const std::uint32_t value = random.pick<std::uint32_t>(
          {0, 1, 2, 0xffffffff, 0xff000000, 0x7fffffff, static_cast<std::uint32_t>(random.bits())});
      if (random.one_in(2)) {
        std::memcpy(word.data(), &value, sizeof value);
      } else {
        random.mutate(word, 2);
      }
    }
    if (random.one_in(8)) std::swap(forged[random.below(forged.size())], forged[random.below(forged.size())]);
    if (random.one_in(8)) forged.push_back(forged[random.below(forged.size())]);
    if (random.one_in(8)) forged.erase(forged.begin() + static_cast<std::ptrdiff_t>(random.below(forged.size())));
    journal.begin_snapshot();
    for (const Bytes& bytes : forged) {
      RecordWriter transaction;
      transaction.put_all(std::span(bytes));
      if (journal.fits(transaction)) journal.append(transaction);
    }
    journal.finish_snapshot();
  }

  static void look(Drive& drive, Random& random, bool plain) {
    drive.check();
    Host host(drive);
    for (const std::uint32_t session : drive.sessions()) {
      const std::vector<HeadSummary> heads = drive.heads(session);
      for (const HeadSummary& head : heads) look_at(drive, session, head, plain);
      if (heads.empty()) continue;
      const auto tokens = static_cast<std::uint32_t>(1 + random.below(600));
      host.attend(session, heads.front().layout, tokens, random.one_in(2));
    }
    for (std::uint64_t number = 0; number < kBlocks; ++number) {
      const nvme::Reply reply = host.read(number);
      const bool empty = std::ranges::all_of(reply.data, [](std::byte byte) { return byte == std::byte{}; });
      require(!plain || reply.status != abi::kSuccess || empty || reply.data == block(number),
              "a damaged block is given away as good");
    }
    for (std::uint8_t key = 0; key < kMostKeys; ++key) {
      const nvme::Reply reply = host.retrieve(key);
      require(!plain || reply.status != abi::kSuccess || reply.data == value(key),
              "a damaged value is given away as good");
    }
    if (random.one_in(4)) {
      host.store(static_cast<std::uint8_t>(random.below(kMostKeys)));
      host.forget(static_cast<std::uint8_t>(random.below(kMostKeys)));
      const auto number = static_cast<std::uint32_t>(random.below(5));
      host.append(number, static_cast<std::uint32_t>(random.below(10)), 0, 600, 80);
      const auto opcode = random.pick<std::uint8_t>({abi::kSessionErase, abi::kSessionTrim});
      host.trim(number, static_cast<std::uint32_t>(random.below(300)), opcode);
      host.fork(number, 9, 64);
      host.write(random.below(kBlocks));
      host.flush();
    }
  }

  static void look_at(Drive& drive, std::uint32_t session, const HeadSummary& head, bool plain) {
    std::optional<Bytes> rows;
    try {
      rows = drive.rows(session, head.layer, head.head, head.kind);
    } catch (const std::runtime_error&) {  // lost, and reported as lost
      return;
    }
    require(!plain || right(*rows, session, head), "damaged rows are given away as good");
  }

  const std::filesystem::path path_;
  Superblock superblock_;
  std::vector<Extent> extents_;
  std::vector<Bytes> transactions_;
};

}  // namespace

std::unique_ptr<Surface> make_surface(const std::filesystem::path& folder) { return std::make_unique<Files>(folder); }

}  // namespace kvdrive::fuzz
