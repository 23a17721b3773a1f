// SPDX-License-Identifier: Apache-2.0
#include "volume.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>

#include "storage/whole_file.hpp"

namespace kvdrive {
namespace {

constexpr const char* kSomethingElse = "it holds something else; choose another path";

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw std::runtime_error("cannot use " + path.string() + " as a drive: " + reason);
}

Limits limits_of(const VolumeOptions& options, Limits limits) {
  limits.staged_bytes = options.staged_bytes.value_or(limits.staged_bytes);
  limits.session_groups = options.session_groups.value_or(limits.session_groups);
  limits.metadata_bytes = options.metadata_bytes.value_or(limits.metadata_bytes);
  limits.run_groups = options.run_groups.value_or(limits.run_groups);
  return limits;
}

// The limits of a new drive.
Limits limits_of(const VolumeOptions& options, std::uint64_t capacity_units) {
  return limits_of(options, Limits{.metadata_bytes = Limits::default_metadata_bytes(capacity_units)});
}

// Refuses budgets that are too small for a drive to work with.
void check_budgets(const VolumeOptions& options, const Geometry& geometry) {
  constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 40;
  if (options.staged_bytes.value_or(0) > kMostMemory || options.metadata_bytes.value_or(0) > kMostMemory) {
    throw std::runtime_error("a budget of drive memory is at most 1 TiB");
  }
  const std::uint64_t bands = BandTable(geometry).memory_bytes();
  if (options.metadata_bytes.value_or(UINT64_MAX) <= bands) {
    throw std::runtime_error("the budget for metadata must be more than the " + std::to_string(bands) +
                             " bytes that the flash's blocks take");
  }
}

// Limits that fit the journal's size, used until the journal was read.
Limits limits_that_fit(const Superblock& superblock) {
  Limits limits{.staged_bytes = 0};
  const std::uint64_t fixed = limits.journal_bytes();
  const std::uint64_t room = superblock.journal_half_bytes > fixed ? (superblock.journal_half_bytes - fixed) / 2 : 0;
  limits.metadata_bytes = std::min(Limits::default_metadata_bytes(superblock.capacity_units), room);
  limits.staged_bytes = std::min(Limits{}.staged_bytes, room - limits.metadata_bytes);
  return limits;
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

Superblock describe(const VolumeOptions& options) {
  const Preset& preset = find_preset(options.preset.empty() ? Volume::kDefaultPreset : options.preset);
  Superblock superblock;
  superblock.payload = options.payload ? 1 : 0;
  superblock.capacity_units = options.capacity_bytes / abi::kPageBytes;
  Geometry& g = superblock.geometry = preset.geometry;
  if (options.pages_per_block > 0) g.pages_per_block = options.pages_per_block;
  if (g.pages_per_block % g.pages_per_program != 0) {
    throw std::runtime_error("the preset programs " + std::to_string(g.pages_per_program) +
                             " pages at once: pages per block must be a multiple");
  }
  const std::uint64_t with_spare = superblock.capacity_units * (100 + preset.over_provision_percent) / 100;
  const std::uint64_t blocks = divide_up(with_spare, g.units_per_band());
  g.blocks_per_die =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks, UINT32_MAX / 2)) + BandTable::kReserve + 1;
  if (superblock.capacity_units < 1 || g.units() > kMostUnits) {
    throw std::runtime_error("the drive's capacity must be between one page and about 14 TiB");
  }
  check_budgets(options, g);
  const std::uint64_t journal_bytes = limits_of(options, superblock.capacity_units).journal_bytes();
  superblock.journal_half_bytes = divide_up(journal_bytes, abi::kPageBytes) * abi::kPageBytes;
  preset.name.copy(superblock.preset.data(), superblock.preset.size() - 1);
  return superblock;
}

void put_limits(RecordWriter& writer, const Limits& limits) {
  writer.put(RecordType::kLimits);
  writer.put(limits);
  writer.end_record();
}

// All of it is durable on return.
void format(BackingFile& file, const VolumeOptions& options) {
  Superblock superblock = describe(options);
  file.recreate(superblock.file_bytes());
  superblock.generation = superblock.snapshot = 1;
  superblock.salt = draw_salt();
  write_superblocks(file, superblock);
  RecordWriter first;
  put_limits(first, limits_of(options, superblock.capacity_units));
  if (options.worn_erases > 0) BandTable(superblock.geometry, options.worn_erases).save(first, true);
  Journal(file, superblock).commit(first);
}

// Makes the file where there is none, or anew where the options ask for it. It appears under its name when it is whole;
// until then an old one stays. Returns `path`. Invalid options leave nothing behind.
std::filesystem::path made(const std::filesystem::path& path, const VolumeOptions& options) {
  if (options.read_only) return path;
  describe(options);
  const bool there = std::filesystem::exists(path);
  if (there && !options.format) return path;
  std::optional<BackingFile> old;  // while it is open here, no other drive may have it
  if (there && kind_of(old.emplace(path)) == FileKind::kOther) refuse(path, kSomethingElse);
  const std::filesystem::path parent = path.parent_path();
  if (!parent.empty() && !std::filesystem::is_directory(parent)) refuse(path, "No such file or directory");
  BackingFile file(unfinished(path), BackingFile::Access::kMake);
  try {
    if (!there && std::filesystem::exists(path)) refuse(path, "another drive has it open");  // it was faster
    format(file, options);
    publish(path);
  } catch (...) {
    remove_unfinished(path);
    throw;
  }
  return path;
}

// Returns the superblock of a file, which may have been cut short only if it is to be salvaged.
FoundSuperblock prepare(BackingFile& file, const VolumeOptions& options) {
  const FileKind kind = kind_of(file);
  if (kind == FileKind::kOther) refuse(file.path(), kSomethingElse);
  if (kind == FileKind::kEmpty) {
    refuse(file.path(), "it is an empty file, a drive truncated to 0 bytes or no drive yet; remove it or format it");
  }
  if (!options.read_only) remove_unfinished(file.path());  // a process was killed that made the file anew
  FoundSuperblock found = read_superblock(file, options.salvage);
  if (const std::uint64_t missing = found.superblock.file_bytes(); file.size() < missing) {
    found.notice +=
        (found.notice.empty() ? "" : "; ") + std::string("the file was truncated: the data behind its end are lost");
    file.extend(missing);
  }
  const std::string_view preset = found.superblock.preset_name();
  if (!options.preset.empty() && options.preset != preset) {
    refuse(file.path(), "it was made as " + std::string(preset) + ", not " + options.preset);
  }
  return found;
}

}  // namespace

Volume::Volume(const std::filesystem::path& path, const VolumeOptions& options)
    : file_(made(path, options), options.read_only ? BackingFile::Access::kReadOnly : BackingFile::Access::kReadWrite),
      snapshot_bytes_(options.snapshot_bytes),
      found_(prepare(file_, options)),
      journal_(file_, found_.superblock),
      preset_(find_preset(journal_.superblock().preset_name())),
      device_(journal_.superblock().geometry, preset_.timing),
      media_(file_, journal_.superblock()),
      ftl_(journal_.superblock(), media_, device_, faults_, [this] { commit(); }),
      store_(ftl_),
      blocks_(ftl_, journal_.superblock().capacity_units),
      values_(ftl_),
      limits_(limits_that_fit(journal_.superblock())),
      salvaging_(options.salvage) {
  if (!preset_.timing.modelled() && media_.keeps_payload()) {
    ftl_.read_around_cache(direct_reads_.emplace(file_), options.cache_bytes / abi::kPageBytes);
  }
  ftl_.keep_pages(options.hot_bytes, options.index_bytes);
  load();
  set_limits(options);
  if (!found_.notice.empty()) notices_.push_back(found_.notice);
  notices_.insert(notices_.end(), journal_.notices().begin(), journal_.notices().end());
  if (read_only()) return;
  write_repairs();
  if (salvaging_) salvage();
  if (ftl_.marked_for_erase()) finish_erasing();
}

// Called only after everything was read, so that a refused file stays unchanged.
void Volume::write_repairs() {
  if (found_.repair) write_superblocks(file_, found_.superblock);
  journal_.write_repairs();
}

Volume::~Volume() {
  if (read_only()) return;
  try {
    health_.set_device(ftl_.now(), ftl_.counters().lost_groups);
    health_.close();
    commit();
    journal_.seal();
  } catch (const std::exception&) {
    return;  // a destructor has no caller to tell
  }
}

void Volume::load() {
  try {
    replay();
  } catch (const JournalDamaged& damage) {
    if (!salvaging_) {
      throw std::runtime_error(std::string(damage.what()) +
                               "; `kvdrive drive recover` makes a new drive of what can be read");
    }
    notices_.push_back(damage.what());
  }
  store_.claim_lists();
  blocks_.claim_lists();
  values_.claim_lists();
  ftl_.finish_loading();
  store_.finish_loading();
  blocks_.finish_loading();
  values_.finish_loading();
}

// Keeps the groups that verify. If the journal is damaged, the spares name further groups.
void Volume::salvage() {
  const auto report = [this](const std::string& sentence) { notices_.push_back(sentence); };
  std::vector<FoundGroup> found;
  ftl_.salvage().adopt_bands();
  if (journal_.half_ended()) found = ftl_.salvage().scan();
  store_.salvage(found, report);
  blocks_.salvage(found, report);
  values_.salvage(found, report);
  journal_.end_half();
  commit();
}

void Volume::replay() {
  journal_.replay([this](RecordReader reader) {
    while (!reader.done()) {
      switch (reader.get<RecordType>()) {
        case RecordType::kList:
          ftl_.load_list(reader);
          break;
        case RecordType::kBuffered:
          ftl_.load_buffered(reader);
          break;
        case RecordType::kBands:
          ftl_.load_bands(reader);
          break;
        case RecordType::kCounters:
          ftl_.load_counters(reader);
          break;
        case RecordType::kEraseMarks:
          ftl_.load_erase_marks(reader);
          break;
        case RecordType::kSession:
          store_.load_session(reader);
          break;
        case RecordType::kSessionEnd:
          store_.load_session_end(reader);
          break;
        case RecordType::kRows:
          store_.load_rows(reader);
          break;
        case RecordType::kHealth:
          health_.load_counters(reader);
          break;
        case RecordType::kLogEntry:
          health_.load_entry(reader);
          break;
        case RecordType::kSavedFeature:
          health_.load_feature(reader);
          break;
        case RecordType::kLimits:
          limits_ = reader.get<Limits>();
          break;
        case RecordType::kBlocks:
          blocks_.load(reader);
          break;
        case RecordType::kValue:
          values_.load(reader);
          break;
        default:
          throw std::runtime_error("a metadata record has an unknown type");
      }
    }
  });
}

// Limits in the options replace the stored ones.
void Volume::set_limits(const VolumeOptions& options) {
  check_budgets(options, superblock().geometry);
  const Limits limits = limits_of(options, limits_);
  if (limits.journal_bytes() > superblock().journal_half_bytes) {
    refuse(file_.path(),
           "its journal has no room for such budgets of staged rows and metadata; format it anew with them");
  }
  limits_changed_ = limits != limits_;
  limits_ = limits;
  store_.set_limits(limits_);
  ftl_.set_metadata_budget(limits_.metadata_bytes);
}

void Volume::save_limits(RecordWriter& writer, bool everything) const {
  if (everything || limits_changed_) put_limits(writer, limits_);
}

// Names of ended sessions and deleted keys take drive memory until the journal has them.
void Volume::work() {
  constexpr std::size_t kMostUnsaved = 4096;
  store_.work();
  if (store_.unsaved_ends() + values_.unsaved() > kMostUnsaved) commit();
}

void Volume::commit() {
  if (read_only()) return;  // a read-only drive never changes
  media_.drain();
  RecordWriter changes;
  save_limits(changes, false);
  ftl_.save(changes, false);
  store_.save(changes, false);
  blocks_.save(changes, false);
  values_.save(changes, false);
  if (changes.empty() && !health_.must_save() && !journal_.half_ended()) return;
  health_.set_device(ftl_.now(), ftl_.counters().lost_groups);
  health_.save(changes, false);
  file_.sync();  // contents must be durable before the journal names them
  if (!journal_.fits(changes) || journal_.outgrew(snapshot_bytes_)) {
    snapshot();
  } else {
    journal_.commit(changes);
  }
  limits_changed_ = false;
  health_.committed();
  ftl_.committed();
  store_.committed();
  blocks_.committed();
  values_.committed();
}

void Volume::snapshot() {
  journal_.begin_snapshot();
  try {
    const auto append = [this](RecordWriter& part) { journal_.append(part); };
    RecordWriter everything(append, snapshot_bytes_ / 4);
    save_limits(everything, true);
    health_.save(everything, true);
    ftl_.save(everything, true);
    store_.save(everything, true);
    blocks_.save(everything, true);
    values_.save(everything, true);
    journal_.append(everything);
    journal_.finish_snapshot();
  } catch (...) {
    journal_.abandon_snapshot();
    throw;
  }
}

void Volume::sanitize() {
  ftl_.erase_all();
  const Superblock& layout = superblock();
  file_.discard(layout.spare_offset(), layout.file_bytes() - layout.spare_offset());
  snapshot();
  journal_.discard_past();
  file_.sync();
}

std::uint64_t Volume::erase_dropped(std::span<const Family> families, std::uint32_t session) {
  const std::uint64_t before = ftl_.wear().erases;
  ftl_.mark_for_erase(families, session);
  commit();
  finish_erasing();
  return ftl_.wear().erases - before;
}

// The journal's own record is cleared last: while it names the marked bands, erasing continues after a power loss.
void Volume::finish_erasing() {
  ftl_.erase_marked();
  snapshot();
  journal_.discard_past();
  file_.sync();
  ftl_.unmark();
  commit();
}

std::vector<std::string> Volume::check(std::size_t most) {
  std::vector<std::string> disagreements;
  const auto report = [&](const std::string& sentence) {
    if (disagreements.size() < most) disagreements.push_back(sentence);
  };
  ftl_.check(report);
  store_.check(report);
  blocks_.check(report);
  values_.check(report);
  return disagreements;
}

void Volume::inject(const Fault& fault) {
  if (fault.kind == FaultKind::kPowerCut) {
    file_.power_cut().arm(fault.after, fault.argument);
  } else if (fault.kind == FaultKind::kDiskFull) {
    file_.fill(fault.after, fault.count);
  } else if (fault.kind == FaultKind::kSlowDie) {
    device_.slow_down(static_cast<std::uint32_t>(fault.argument), static_cast<std::uint32_t>(fault.count));
  } else {
    faults_.inject(fault);
  }
}

}  // namespace kvdrive
