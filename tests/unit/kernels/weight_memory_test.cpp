#include "kernels/cpu/weight_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/rng.h"

namespace draftscope::kernels {
namespace {

struct FreeWeights {
    void operator()(std::byte* at) const { free_weights(at); }
};

/// Small and large allocations, freed in any order, never overlap.
TEST(WeightMemory, AllocationsAreAlignedAndDisjoint) {
    struct Piece {
        std::unique_ptr<std::byte[], FreeWeights> data;
        std::size_t bytes;
        std::byte mark;
    };
    Rng rng(5);
    std::vector<Piece> pieces;
    for (int step = 0; step < 400; ++step) {
        if (!pieces.empty() && rng.below(3) == 0) {
            const std::size_t gone = rng.below(static_cast<std::uint32_t>(pieces.size()));
            pieces[gone] = std::move(pieces.back());
            pieces.pop_back();
            continue;
        }
        const std::size_t bytes =
            step % 40 == 0 ? (std::size_t{9} << 20) + rng.below(999) : 1 + rng.below(300'000);
        Piece piece{std::unique_ptr<std::byte[], FreeWeights>(allocate_weights(bytes)), bytes,
                    static_cast<std::byte>(step)};
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(piece.data.get()) % 64, 0u);
        std::memset(piece.data.get(), static_cast<int>(piece.mark), bytes);
        pieces.push_back(std::move(piece));
    }
    for (const Piece& piece : pieces) {
        const auto* end = piece.data.get() + piece.bytes;
        EXPECT_EQ(std::find_if(piece.data.get(), const_cast<std::byte*>(end),
                               [&](std::byte b) { return b != piece.mark; }),
                  end);
    }
}

TEST(WeightMemory, FreedMemoryIsReused) {
    std::byte* const first = allocate_weights(1000);
    free_weights(first);
    std::byte* const second = allocate_weights(1000);
    free_weights(second);
    free_weights(nullptr);
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_EQ(first, second);
#endif
}

}  // namespace
}  // namespace draftscope::kernels
