#include "base/rng.h"

#include <cmath>
#include <numbers>

namespace draftscope {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_high,
                                    std::uint64_t counter_low) {
    std::array<std::uint32_t, 4> c = {
        static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
        static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
    auto k0 = static_cast<std::uint32_t>(key);
    auto k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
        const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
        c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
             static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

double token_uniform(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
    const auto block = philox(seed, sequence, position);
    const std::uint64_t bits = (std::uint64_t{block[0]} << 32 | block[1]) >> 11;
    return static_cast<double>(bits) * 0x1.0p-53;
}

std::uint32_t Rng::next_u32() {
    if (used_ == 4) {
        block_ = philox(seed_, stream_, counter_++);
        used_ = 0;
    }
    return block_[used_++];
}

double Rng::uniform() {
    const std::uint64_t high = next_u32();
    const std::uint64_t bits = (high << 32 | next_u32()) >> 11;
    return static_cast<double>(bits) * 0x1.0p-53;
}

double Rng::normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint32_t Rng::below(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{next_u32()} * n) >> 32);
}

}  // namespace draftscope
