// SPDX-License-Identifier: Apache-2.0
// Software only: runs the stages of a dataflow region as fibers of the calling thread.
//
// A fiber runs until the stream it needs is empty or full; then the next one that can go on runs. So every run is
// deterministic, streams need no locks, and a deadlock is certain the moment no fiber can go on. Regions may nest,
// and several threads may run kernels at the same time, each its own.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace kvdrive {

// Every stage of a region waits for another one. The text names the stages, what they wait for, and all streams.
class DataflowDeadlock : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A stream was used in a way that hardware cannot do.
class StreamError : public std::logic_error {
  using std::logic_error::logic_error;
};

namespace simulation {

// What the scheduler and the reports know of a stream.
struct StreamState {
  std::string name;
  std::size_t depth = 0;
  std::size_t held = 0;
  std::size_t high_water = 0;
  std::uint64_t words = 0;  // written so far
};

// Marks of all finished streams of one name.
struct StreamMark {
  std::size_t depth = 0;
  std::size_t high_water = 0;
  std::uint64_t words = 0;
  std::uint64_t left_over = 0;  // words never read: the next job in hardware would find them
};

class StreamMarks {
 public:
  static StreamMarks& global() {
    static StreamMarks marks;
    return marks;
  }

  void add(const StreamState& stream, bool abandoned) {
    const std::lock_guard<std::mutex> lock(mutex_);
    StreamMark& mark = marks_[stream.name];
    mark.depth = std::max(mark.depth, stream.depth);
    mark.high_water = std::max(mark.high_water, stream.high_water);
    mark.words += stream.words;
    if (!abandoned) mark.left_over += stream.held;
  }

  std::map<std::string, StreamMark> snapshot() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return marks_;
  }

  void reset() {
    const std::lock_guard<std::mutex> lock(mutex_);
    marks_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, StreamMark> marks_;
};

// Address space for one fiber; pages are taken as they are touched. The lowest page is a guard.
class Stack {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;

  Stack() {
    void* const base =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(base);
    mprotect(base_, 4096, PROT_NONE);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { munmap(base_, kBytes); }

  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
};

class Region;

enum class Wait { kNothing, kNotEmpty, kNotFull, kChildren };

// A stage of a region, or (`body` empty) the thread that runs the outermost region.
struct Stage {
  std::uint64_t serial = 0;
  std::string name;
  std::function<void()> body;
  Region* region = nullptr;
  Region* children = nullptr;  // the region this stage waits for
  Wait wait = Wait::kNothing;
  const StreamState* stream = nullptr;
  bool cancelled = false;
  std::unique_ptr<Stack> stack;
  ucontext_t context{};
#ifdef __SANITIZE_ADDRESS__
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  std::size_t bytes = 0;
#endif
};

// Thrown through a stage that must end because its region failed; never leaves the region.
struct Cancelled {};

class Scheduler {
 public:
  // The scheduler of this thread.
  static Scheduler& local() {
    static thread_local Scheduler scheduler;
    return scheduler;
  }

  Stage* current() const { return current_; }
  bool in_stage() const { return current_ != &root_; }

  // Lockstep: a stage hands over after each write, so that all stages advance together, roughly as hardware does, and
  // high-water marks tell which depth was needed. Otherwise a stage runs ahead until a stream stops it (faster).
  void set_lockstep(bool lockstep) { lockstep_ = lockstep; }

  void transferred(bool wrote) {
    idle_polls_ = 0;
    if (wrote && lockstep_ && in_stage()) resume();
  }

  // A stage found its stream empty or full and goes on without it: let the others run.
  void polled() {
    if (!in_stage()) return;
    if (++idle_polls_ > kIdlePolls) fail("only polling stages run");
    resume();
  }

  void wait(Wait wait, const StreamState& stream) {
    if (!in_stage()) {
      throw StreamError((wait == Wait::kNotEmpty ? "read from the empty stream \"" : "write to the full stream \"") +
                        stream.name + "\" outside a dataflow region");
    }
    current_->wait = wait;
    current_->stream = &stream;
    resume();
  }

  void run(Region& region);

  void add(const StreamState& stream) { streams_.push_back(&stream); }
  void remove(const StreamState& stream) {
    for (std::size_t i = streams_.size(); i-- > 0;) {
      if (streams_[i] == &stream) {
        streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
    }
  }

 private:
  static constexpr int kIdlePolls = 1 << 20;

  Scheduler() { stages_.push_back(&root_); }

  // Lets others run until this stage can go on.
  void resume() {
    Stage& self = *current_;
    switch_to(next());
    self.wait = Wait::kNothing;
    if (self.cancelled) throw Cancelled{};
  }

  static bool can_run(const Stage& stage);
  Stage& next();
  void switch_to(Stage& stage);
  void prepare(Stage& stage);
  static void enter();
  void fail(const std::string& reason);
  std::string report(const std::string& reason) const;

  Stage root_;
  Stage* current_ = &root_;
  std::vector<Stage*> stages_;  // all live ones of this thread, in round-robin order
  std::size_t position_ = 0;    // of the current stage
  std::vector<std::unique_ptr<Stack>> idle_stacks_;
  std::vector<const StreamState*> streams_;
  int idle_polls_ = 0;
  bool lockstep_ = false;
};

// The stages between DATAFLOW_BEGIN and DATAFLOW_END.
class Region {
 public:
  Region() : serial_(next_serial()) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  template <typename Body>
  void stage(const char* name, Body body) {
    auto stage = std::make_unique<Stage>();
    stage->serial = next_serial();
    stage->name = name;
    stage->body = std::move(body);
    stage->region = this;
    stages_.push_back(std::move(stage));
  }

  // Returns when all stages have ended; rethrows the first exception of a stage.
  void run() { Scheduler::local().run(*this); }

  std::uint64_t serial() const { return serial_; }

 private:
  friend class Scheduler;

  static std::uint64_t next_serial() {
    static thread_local std::uint64_t serial = 0;
    return ++serial;
  }

  void fail(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
    cancel();
  }

  void cancel() {
    cancelled_ = true;
    for (const auto& stage : stages_) stage->cancelled = true;
  }

  std::uint64_t serial_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::size_t live_ = 0;
  bool cancelled_ = false;
  std::exception_ptr error_;
};

inline void Scheduler::run(Region& region) {
  Stage& parent = *current_;
  for (const auto& stage : region.stages_) prepare(*stage);
  for (const auto& stage : region.stages_) stages_.push_back(stage.get());
  region.live_ = region.stages_.size();
  parent.children = &region;
  while (region.live_ > 0) {
    parent.wait = Wait::kChildren;
    switch_to(next());
    if (parent.cancelled && !region.cancelled_) region.cancel();
  }
  parent.wait = Wait::kNothing;
  parent.children = nullptr;
  for (const auto& stage : region.stages_) idle_stacks_.push_back(std::move(stage->stack));
  if (region.error_) std::rethrow_exception(region.error_);
  if (parent.cancelled) throw Cancelled{};
}

inline bool Scheduler::can_run(const Stage& stage) {
  switch (stage.wait) {
    case Wait::kNotEmpty:
      return stage.cancelled || stage.stream->held > 0;
    case Wait::kNotFull:
      return stage.cancelled || stage.stream->held < stage.stream->depth;
    case Wait::kChildren:
      return stage.children->live_ == 0 || (stage.cancelled && !stage.children->cancelled_);
    default:
      return true;
  }
}

inline Stage& Scheduler::next() {
  for (;;) {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      position_ = position_ + 1 < stages_.size() ? position_ + 1 : 0;
      if (can_run(*stages_[position_])) return *stages_[position_];
    }
    fail("every stage is blocked");
  }
}

// Ends the outermost region: marks all its stages as cancelled, so that they can run again, to their end.
inline void Scheduler::fail(const std::string& reason) {
  idle_polls_ = 0;
  root_.children->fail(std::make_exception_ptr(DataflowDeadlock(report(reason))));
}

inline std::string Scheduler::report(const std::string& reason) const {
  std::ostringstream text;
  text << "dataflow deadlock: " << reason;
  for (const Stage* stage : stages_) {
    if (stage == &root_ || stage->wait == Wait::kChildren) continue;
    text << "\n  stage " << stage->name;
    if (stage->wait == Wait::kNothing) {
      text << " polls";
    } else {
      text << (stage->wait == Wait::kNotEmpty ? " reads the empty stream \"" : " writes the full stream \"")
           << stage->stream->name << "\" (depth " << stage->stream->depth << ")";
    }
  }
  for (const StreamState* stream : streams_) {
    text << "\n  stream \"" << stream->name << "\": holds " << stream->held << " of " << stream->depth
         << ", high-water mark " << stream->high_water << ", words written " << stream->words;
  }
  return text.str();
}

inline void Scheduler::prepare(Stage& stage) {
  if (idle_stacks_.empty()) {
    stage.stack = std::make_unique<Stack>();
  } else {
    stage.stack = std::move(idle_stacks_.back());
    idle_stacks_.pop_back();
  }
  getcontext(&stage.context);
  stage.context.uc_stack.ss_sp = stage.stack->base();
  stage.context.uc_stack.ss_size = Stack::kBytes;
  stage.context.uc_link = nullptr;
  makecontext(&stage.context, &Scheduler::enter, 0);
#ifdef __SANITIZE_ADDRESS__
  stage.bottom = stage.stack->base();
  stage.bytes = Stack::kBytes;
#endif
}

inline void Scheduler::switch_to(Stage& stage) {
  Stage& self = *current_;
  if (&stage == &self) return;
  current_ = &stage;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&self.fake_stack, stage.bottom, stage.bytes);
#endif
  swapcontext(&self.context, &stage.context);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(self.fake_stack, nullptr, nullptr);
#endif
}

// First and last function of a fiber.
inline void Scheduler::enter() {
  Scheduler& scheduler = local();
  Stage& self = *scheduler.current_;
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (scheduler.root_.bytes == 0) {  // nothing but the thread itself can have started the first fiber
    scheduler.root_.bottom = bottom;
    scheduler.root_.bytes = bytes;
  }
#endif
  try {
    if (!self.cancelled) self.body();
  } catch (const Cancelled&) {
    self.region->cancel();  // it is already
  } catch (...) {
    self.region->fail(std::current_exception());
  }
  --self.region->live_;
  const std::size_t gone = scheduler.position_;
  scheduler.stages_.erase(scheduler.stages_.begin() + static_cast<std::ptrdiff_t>(gone));
  scheduler.position_ = gone > 0 ? gone - 1 : scheduler.stages_.size() - 1;
  Stage& next = scheduler.next();
  scheduler.current_ = &next;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(nullptr, next.bottom, next.bytes);
#endif
  setcontext(&next.context);
}

}  // namespace simulation
}  // namespace kvdrive
