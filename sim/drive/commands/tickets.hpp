// SPDX-License-Identifier: Apache-2.0
// Results of ATTN_SUBMIT, ATTN_SUBMIT_ROWS and FFN_SUBMIT that wait for their ATTN_FETCH. Any host may fetch them. The
// results of hosts that have gone stay until their place is needed, because a host may come back through another
// controller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "attention/attention_unit.hpp"

namespace kvdrive {

class Tickets {
 public:
  static constexpr std::size_t kMost = 256;

  // True if there is a place for so many more results, those of hosts that have gone aside.
  bool fit(std::uint32_t results) const { return kept_ - abandoned_ + results <= kMost; }

  // Keeps the outcome of a controller's command, which counts as so many results, and returns its ticket.
  // Precondition: they fit.
  std::uint32_t add(std::uint16_t controller, AttentionOutcome outcome, std::uint32_t results) {
    while (kept_ + results > kMost) drop_oldest_abandoned();
    do {
      ++last_;
    } while (last_ == 0 || results_.contains(last_));
    results_.emplace(last_, Result{std::move(outcome), controller, results});
    kept_ += results;
    return last_;
  }

  // Returns null for an unknown ticket.
  AttentionOutcome* find(std::uint32_t ticket) {
    const auto found = results_.find(ticket);
    return found == results_.end() ? nullptr : &found->second.outcome;
  }

  void erase(std::uint32_t ticket) {
    const auto found = results_.find(ticket);
    kept_ -= found->second.count;
    if (found->second.abandoned) abandoned_ -= found->second.count;
    results_.erase(found);
  }

  void clear() {
    results_.clear();
    kept_ = abandoned_ = 0;
  }

  // The host of a controller has gone, or has reset it.
  void abandon(std::uint16_t controller) {
    for (auto& [ticket, result] : results_) {
      if (result.controller != controller || result.abandoned) continue;
      result.abandoned = true;
      abandoned_ += result.count;
    }
  }

 private:
  struct Result {
    AttentionOutcome outcome;
    std::uint16_t controller;
    std::uint32_t count;
    bool abandoned = false;
  };

  void drop_oldest_abandoned() {
    auto oldest = results_.end();
    for (auto result = results_.begin(); result != results_.end(); ++result) {
      // Ticket numbers start again after 2^32, so ages are differences.
      const bool older = oldest == results_.end() || last_ - result->first > last_ - oldest->first;
      if (result->second.abandoned && older) oldest = result;
    }
    erase(oldest->first);
  }

  std::unordered_map<std::uint32_t, Result> results_;
  std::size_t kept_ = 0;       // results, over all tickets
  std::size_t abandoned_ = 0;  // of these, those of hosts that have gone
  std::uint32_t last_ = 0;
};

}  // namespace kvdrive
