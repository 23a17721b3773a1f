// SPDX-License-Identifier: Apache-2.0
#include "engine/fast/softmax.hpp"

#include <algorithm>

#include "engine/fast/job.hpp"

namespace kvdrive::fast {

SoftmaxResult softmax(const Kernels& kernels, std::span<const std::int32_t> dense, const std::uint8_t* valid,
                      std::span<const std::int32_t> tail) {
  const std::size_t n = dense.size() + tail.size();
  SoftmaxResult result;
  result.p.resize(n);
  result.status = check_tokens(n);
  if (result.status != 0) return result;

  std::vector<std::int32_t> x;  // the valid scores, without gaps
  x.reserve(n);
  for (std::size_t t = 0; t < dense.size(); ++t) {
    if (valid == nullptr || bit(valid, t)) x.push_back(dense[t]);
  }
  x.insert(x.end(), tail.begin(), tail.end());
  if (x.empty()) {
    result.status = abi::kEmpty;
    return result;
  }

  result.max = ceil_score(kernels.max_score(x.data(), x.size()));
  std::vector<std::uint32_t> p(x.size());
  for (std::size_t t = 0; t < x.size(); t += kBlockTokens) {
    const auto block = static_cast<unsigned>(std::min<std::size_t>(x.size() - t, kBlockTokens));
    result.sum += kernels.probabilities(x.data() + t, block, result.max, p.data() + t);
  }
  auto next = p.begin();
  for (std::size_t t = 0; t < n; ++t) {
    if (t >= dense.size() || valid == nullptr || bit(valid, t)) result.p[t] = *next++;
  }
  return result;
}

}  // namespace kvdrive::fast
