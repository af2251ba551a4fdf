#include "kernels/backend/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "base/rng.h"

namespace draftscope::kernels {
namespace {

/// A memory that consists only of addresses.
class Addresses {
  public:
    explicit Addresses(std::size_t limit = SIZE_MAX) : left_(limit) {}
    Arena arena() {
        return Arena(
            [this](std::size_t bytes) -> void* {
                if (bytes > left_) return nullptr;
                left_ -= bytes;
                auto* data = reinterpret_cast<void*>(next_);
                next_ += bytes + (std::size_t{1} << 30);
                taken[data] = bytes;
                return data;
            },
            [this](void* data) {
                EXPECT_EQ(taken.count(data), 1u);
                left_ += taken[data];
                taken.erase(data);
            });
    }
    std::map<void*, std::size_t> taken;

  private:
    std::size_t left_, next_ = std::size_t{1} << 32;
};

TEST(Arena, BuffersNeverOverlapAndAllAreFreed) {
    Addresses memory;
    {
        Arena arena = memory.arena();
        Rng rng(5);
        std::map<std::uintptr_t, std::size_t> buffers;
        std::vector<void*> live;
        for (int turn = 0; turn < 3000; ++turn) {
            if (!live.empty() && rng.below(5) < 2) {
                const std::size_t at = rng.below(static_cast<unsigned>(live.size()));
                buffers.erase(reinterpret_cast<std::uintptr_t>(live[at]));
                arena.release(live[at]);
                live[at] = live.back();
                live.pop_back();
                continue;
            }
            const std::size_t bytes = std::size_t{1} << rng.below(25);
            void* const data = arena.allocate(bytes + rng.below(300));
            ASSERT_NE(data, nullptr);
            const auto address = reinterpret_cast<std::uintptr_t>(data);
            EXPECT_EQ(address % Arena::alignment, 0u);
            const auto after = buffers.lower_bound(address);
            EXPECT_TRUE(after == buffers.end() || address + bytes <= after->first);
            if (after != buffers.begin()) {
                const auto before = std::prev(after);
                EXPECT_LE(before->first + before->second, address);
            }
            buffers[address] = bytes;
            live.push_back(data);
        }
        for (void* data : live) arena.release(data);
        EXPECT_EQ(arena.used(), 0u);
        // Adjacent gaps were merged: a whole block's worth is available without another block.
        const int pieces = arena.pieces();
        ASSERT_GT(pieces, 0);
        std::vector<void*> halves;
        for (int i = 0; i < 5 * pieces; ++i) halves.push_back(arena.allocate(Arena::own_piece_bytes - 256));
        EXPECT_LE(arena.pieces(), 2 * pieces);
        for (void* data : halves) arena.release(data);
    }
    EXPECT_TRUE(memory.taken.empty());
}

TEST(Arena, LargeBuffersAreFreedIndividually) {
    Addresses memory;
    Arena arena = memory.arena();
    void* const small = arena.allocate(100);
    void* const large = arena.allocate(Arena::own_piece_bytes);
    EXPECT_EQ(arena.held(), Arena::piece_bytes + Arena::own_piece_bytes);
    arena.release(large);
    EXPECT_EQ(arena.held(), Arena::piece_bytes);
    arena.release(small);
    EXPECT_EQ(arena.held(), Arena::piece_bytes);  // kept for the next buffer
    EXPECT_EQ(arena.allocate(50), small);
}

TEST(Arena, AllocatesExactlyWhenABlockDoesNotFit) {
    Addresses memory(Arena::piece_bytes / 2);
    Arena arena = memory.arena();
    void* const data = arena.allocate(1000);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(arena.held(), 1024u);
    EXPECT_EQ(arena.allocate(Arena::piece_bytes), nullptr);
    arena.release(data);
    EXPECT_EQ(arena.held(), 0u);
}

}  // namespace
}  // namespace draftscope::kernels
