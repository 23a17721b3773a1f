// SPDX-License-Identifier: Apache-2.0
#include "nand/device.hpp"

#include <algorithm>

namespace kvdrive {
namespace {

Ns scaled(Ns time, std::uint32_t percent) { return time * percent / 100; }

// A fixed pseudo-random sequence of numbers from 0 to 999,999. It decides which reads are repeated.
std::uint32_t lottery(std::uint64_t draw) {
  draw = (draw ^ (draw >> 30)) * 0xbf58476d1ce4e5b9ULL;
  draw = (draw ^ (draw >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<std::uint32_t>((draw ^ (draw >> 31)) % 1'000'000);
}

}  // namespace

NandDevice::NandDevice(const Geometry& geometry, const Timing& timing)
    : geometry_(geometry),
      timing_(timing),
      dies_(geometry.dies()),
      channels_(geometry.channels),
      channel_bytes_(geometry.channels) {}

Ns NandDevice::firmware_read(std::uint32_t bytes) const {
  return bytes <= abi::kPageBytes ? timing_.firmware_read_4k_ns : timing_.firmware_read_full_ns;
}

// The number of extra sensings before a page can be decoded, for a block with this number of erases.
std::uint32_t NandDevice::sensings(std::uint32_t erases) {
  const std::uint32_t draw = lottery(++reads_);
  std::uint64_t below = 0;
  for (const EccTier& tier : timing_.ecc) {
    below += tier.odds(erases, timing_.rated_erases);
    if (draw >= below) continue;
    ++ecc_.reads_retried;
    ecc_.sensings += tier.sensings;
    return 1 + tier.sensings;
  }
  return 1;
}

// Returns the time at which sensing starts. If the die can suspend, a read interrupts a program or erase and delays its
// end by the time of the read.
Ns NandDevice::start_read(Die& die, Ns ready, Ns sensing) {
  const Ns start = std::max(ready, die.free_at);
  if (start >= die.busy_until) return start;
  if (timing_.suspend_ns == 0) return die.busy_until;
  die.busy_until += sensing + timing_.suspend_ns;
  return start + timing_.suspend_ns;
}

Ns NandDevice::read(const PageRead& page, Ns ready, Sink sink) {
  Die& die = dies_[page.die];
  const std::uint32_t channel = page.die % geometry_.channels;
  const auto& table = page.bytes <= abi::kPageBytes ? timing_.read_4k_ns : timing_.read_full_ns;
  const Ns sensing = scaled(table[page_type(page.page)], die.percent) * sensings(page.erases);
  Ns start = start_read(die, ready, sensing);
  for (std::uint32_t plane = 0; plane < page.planes; ++plane) {
    if (timing_.read_command_ns > 0) start = channels_[channel].occupy(start, timing_.read_command_ns);
    if (plane > 0) start += timing_.plane_gap_ns;
  }
  const Ns sensed = start + sensing;
  trace_.add(TraceTrack::kDie, page.die, page.work, start, sensed, page.bytes);
  Ns last_on_bus = sensed;
  const Ns end = move(channel, page, sensed, sink, last_on_bus);
  die.free_at = timing_.cache_read ? sensed : last_on_bus;
  return end;
}

Ns NandDevice::move(std::uint32_t channel, const PageRead& page, Ns sensed, Sink sink, Ns& last_on_bus) {
  channel_bytes_[channel] += page.bytes;
  Ns end = sensed;
  std::uint32_t wanted = page.wanted_bytes;
  for (std::uint32_t left = page.bytes; left > 0;) {
    const std::uint32_t chunk = std::min(left, timing_.channel_chunk_bytes);
    left -= chunk;
    last_on_bus =
        use(channels_[channel], TraceTrack::kChannel, channel, last_on_bus, timing_.channel.transfer(chunk), chunk);
    end = last_on_bus;
    if (sink == Sink::kHost) end = to_host(chunk, last_on_bus);
    if (sink != Sink::kComputer) continue;
    const std::uint32_t kept = std::min(chunk, wanted);
    wanted -= kept;
    if (timing_.filter == FilterAt::kComputer) {
      end =
          use(peer_, TraceTrack::kPeer, 0, last_on_bus + timing_.peer_request_ns, timing_.peer.transfer(chunk), chunk);
    }
    end = to_memory(kept, end);
  }
  return end;
}

Ns NandDevice::to_memory(std::uint64_t bytes, Ns ready) {
  memory_bytes_ += bytes;
  return bytes == 0 ? ready : use(dram_, TraceTrack::kMemory, 0, ready, timing_.dram.transfer(bytes), bytes);
}

Ns NandDevice::program(std::uint32_t die_number, std::uint32_t page, std::uint32_t bytes, Ns ready) {
  Die& die = dies_[die_number];
  const std::uint32_t channel = die_number % geometry_.channels;
  channel_bytes_[channel] += bytes;
  Ns start = std::max({ready, die.free_at, die.busy_until});
  if (timing_.program_command_ns > 0) {
    start = channels_[channel].occupy(start, timing_.program_command_ns * geometry_.planes);
  }
  start += timing_.plane_gap_ns * (geometry_.planes - 1);
  const Ns loaded =
      use(channels_[channel], TraceTrack::kChannel, channel, start, timing_.channel.transfer(bytes), bytes);
  die.free_at = loaded;
  die.busy_until = loaded + scaled(timing_.program_ns[page_type(page)], die.percent);
  trace_.add(TraceTrack::kDie, die_number, TraceWork::kProgram, loaded, die.busy_until, bytes);
  releases_.push({die.busy_until, bytes});
  buffered_bytes_ += bytes;
  return die.busy_until;
}

Ns NandDevice::erase(std::uint32_t die_number, Ns ready) {
  Die& die = dies_[die_number];
  const Ns start = std::max({ready, die.free_at, die.busy_until});
  die.free_at = start;
  die.busy_until = start + timing_.erase_ns;
  trace_.add(TraceTrack::kDie, die_number, TraceWork::kErase, start, die.busy_until);
  return die.busy_until;
}

Ns NandDevice::accept_write(std::uint64_t bytes, Ns arrival) {
  Ns start = arrival;
  while (!releases_.empty() &&
         (releases_.top().when <= start || buffered_bytes_ + bytes > timing_.write_buffer_bytes)) {
    start = std::max(start, releases_.top().when);
    buffered_bytes_ -= releases_.top().bytes;
    releases_.pop();
  }
  const Ns firmware =
      timing_.firmware_write_ns + timing_.firmware_write_4k_ns * ((bytes + abi::kPageBytes - 1) / abi::kPageBytes);
  return to_host(bytes, start + firmware);
}

void NandDevice::advance(Ns now) {
  now_ = now;
  for (Timeline& channel : channels_) channel.forget_before(now);
  for (Timeline* bus : {&pcie_, &peer_, &dram_}) bus->forget_before(now);
}

ChannelCounters NandDevice::channel(std::uint32_t number) const {
  return {channel_bytes_.at(number), channels_[number].busy_ns()};
}

}  // namespace kvdrive
