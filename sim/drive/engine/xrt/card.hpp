// SPDX-License-Identifier: Apache-2.0
// A card as the engine sees it. The implementation over the vendor's runtime (xrt_card.cpp) is a shared object that is
// loaded when an engine `xrt` is made, so that nothing else depends on that runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "engine/xrt/image_text.hpp"

namespace kvdrive {

// Memory of the card that this process sees.
class CardBuffer {
 public:
  CardBuffer() = default;
  CardBuffer(const CardBuffer&) = delete;
  CardBuffer& operator=(const CardBuffer&) = delete;
  virtual ~CardBuffer() = default;

  // The bytes, from a page boundary on. Peer-to-peer: they are the card's own. Otherwise they are a copy of it.
  virtual std::span<std::byte> bytes() = 0;
  // Bring a range of the copy to the card or back. They do nothing for a peer-to-peer buffer.
  virtual void to_card(std::size_t first, std::size_t count) = 0;
  virtual void from_card(std::size_t first, std::size_t count) = 0;
};

enum class RunState { kRunning, kDone, kFailed };

class Card {
 public:
  Card() = default;
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;
  virtual ~Card() = default;

  // Peer-to-peer memory if the card and its set-up have it, else memory with a copy on the host. Throws std::bad_alloc.
  virtual std::unique_ptr<CardBuffer> allocate(std::size_t bytes) = 0;
  virtual bool peer_to_peer() const = 0;

  // Starts compute unit `unit` of the image's text on the job at byte `job`. Precondition: the unit does not run.
  virtual void start(std::size_t unit, CardBuffer& memory, std::uint64_t job) = 0;
  virtual RunState state(std::size_t unit) = 0;

  // Ends everything that runs and loads the image again. All buffers are gone afterwards, even if it fails. Returns
  // false if the card does not come back.
  virtual bool reset() = 0;
};

struct CardPlace {
  std::string device = "0";  // the runtime's number of the card, or its PCI address
  std::filesystem::path image;
  bool peer_to_peer = true;  // false: copy through host memory
};

// Loads the runtime's shared object, then the image. Throws std::runtime_error with a sentence that says what to do.
std::unique_ptr<Card> open_card(const CardPlace& place, const ImageText& text);

}  // namespace kvdrive
