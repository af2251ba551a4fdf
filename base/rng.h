#pragma once

#include <array>
#include <cstdint>

namespace draftscope {

/// Counter-based random numbers: Philox-4x32-10 (Salmon et al. 2011). The value depends only on key and
/// counter, so a token position has the same random number under every drafter, tree and batch.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high, std::uint64_t counter_low);

/// Returns the uniform number in [0, 1) that selects the token at `position` of `sequence`. Positions are
/// absolute; 0 is the first prompt token.
double token_uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position);

/// Sequential generator over philox(), for tests, bootstrap and synthetic weights.
class Rng {
  public:
    explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}
    std::uint32_t next_u32();
    double uniform();                      ///< [0, 1)
    double normal();                       ///< mean 0, variance 1
    std::uint32_t below(std::uint32_t n);  ///< [0, n), n > 0

  private:
    std::uint64_t seed_;
    std::uint64_t stream_;
    std::uint64_t counter_ = 0;
    std::array<std::uint32_t, 4> block_{};
    int used_ = 4;
};

}  // namespace draftscope
