#include "kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>

#include "base/cpus.h"
#include "kernels_test_util.h"

namespace draftscope::kernels {
namespace {

TEST(ThreadPool, LowersTheInstructionSetToWhatTheMachineHas) {
    EXPECT_LE(best_isa(), supported_isa());
    EXPECT_EQ(make_thread_pool(1, Isa::portable)->isa(), Isa::portable);
    EXPECT_EQ(make_thread_pool(1, Isa::amx)->isa(), supported_isa());
    EXPECT_EQ(to_text(Isa::avx512_vnni), "avx512_vnni");
    // The only level that higher levels need not include.
    if (supported_isa() >= Isa::avx_vnni) {
        const Isa expected = can_run(Isa::avx_vnni) ? Isa::avx_vnni : Isa::avx2;
        EXPECT_EQ(make_thread_pool(1, Isa::avx_vnni)->isa(), expected);
    }
}

TEST(ThreadPool, AvxVnniIsAmongTheTestedPaths) {
    if (!can_run(Isa::avx_vnni))
        GTEST_SKIP() << "this CPU has no AVX-VNNI: its kernels are compiled here but not run";
    const std::vector<Isa> all = isas();
    EXPECT_NE(std::find(all.begin(), all.end(), Isa::avx_vnni), all.end());
}

TEST(ThreadPool, RunsEveryPartOnceAndAShareOnOneThread) {
    for (const int threads : {1, 2, 3, 4}) {
        auto exec = make_thread_pool(threads);
        ASSERT_EQ(exec->threads(), threads);
        for (const int parts : {0, 1, 2, 3, 7, 16}) {
            std::vector<std::thread::id> ran(static_cast<std::size_t>(parts));
            std::vector<int> times(ran.size(), 0);
            exec->parallel(parts, [&](int p) {
                ran[p] = std::this_thread::get_id();
                ++times[p];
            });
            EXPECT_EQ(times, std::vector<int>(ran.size(), 1));
            for (int p = 0; p < parts; ++p) {
                const auto share = static_cast<std::size_t>(p % threads);
                EXPECT_EQ(ran[p], ran[share]) << threads << " threads, part " << p;
            }
            if (parts == 0) continue;
            EXPECT_EQ(ran[0], std::this_thread::get_id());
        }
    }
}

TEST(ThreadPool, PinsWorkersIfTheProcessHasEnoughCpus) {
    const int cpus = usable_cores();
    EXPECT_EQ(make_thread_pool(cpus)->pinned(), 0);
    auto pinned = make_thread_pool(cpus, best_isa(), true);
    EXPECT_EQ(pinned->pinned(), cpus - 1);
    EXPECT_EQ(usable_cores(), cpus) << "the caller is not pinned";
    EXPECT_EQ(make_thread_pool(cpus + 1, best_isa(), true)->pinned(), 0) << "more threads than CPUs";
}

/// A share that the caller took over must not run again when its thread finally starts.
TEST(ThreadPool, LateThreadsSkipStolenShares) {
    auto exec = make_thread_pool(4);
    for (int call = 0; call < 3'000; ++call) {
        std::vector<std::atomic<int>> times(4);
        exec->parallel(4, [&](int p) { ++times[p]; });
        for (const std::atomic<int>& count : times) ASSERT_EQ(count.load(), 1);
        if (call % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

TEST(ThreadPool, SurvivesTenThousandTinyCalls) {
    for (const int threads : {2, 4}) {
        auto exec = make_thread_pool(threads);
        std::vector<int> counts(5, 0);
        for (int call = 0; call < 10'000; ++call) {
            const int parts = 1 + call % 5;
            exec->parallel(parts, [&](int p) { ++counts[p]; });
        }
        EXPECT_EQ(counts, (std::vector<int>{10'000, 8'000, 6'000, 4'000, 2'000}));
    }
}

TEST(ThreadPool, WakesAfterItsThreadsWentToSleep) {
    auto exec = make_thread_pool(2);
    std::atomic<int> ran{0};
    for (int call = 0; call < 5; ++call) {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        exec->parallel(4, [&](int) { ++ran; });
    }
    EXPECT_EQ(ran.load(), 20);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
    for (int i = 0; i < 50; ++i) make_thread_pool(1 + i % 4);
}

TEST(ThreadPool, FlushesDenormalsInsideAndLeavesTheCallerAsItWas) {
    for (const int threads : {1, 2}) {
        auto exec = make_thread_pool(threads);
        volatile float tiny = 1e-38f;
        std::vector<float> inside(2, 1.0f);
        exec->parallel(2, [&](int p) { inside[p] = tiny * 0.25f; });
        EXPECT_EQ(inside[0], 0.0f);
        EXPECT_EQ(inside[1], 0.0f);
        EXPECT_GT(tiny * 0.25f, 0.0f);
    }
}

TEST(ThreadPool, ScratchIsAlignedSeparateAndKept) {
    auto exec = make_thread_pool(2);
    std::byte* a = exec->scratch(0, 1000);
    std::byte* b = exec->scratch(1, 1000);
    std::byte* shared = exec->shared_scratch(1000);
    for (std::byte* p : {a, b, shared}) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 64, 0u);
    EXPECT_NE(a, b);
    EXPECT_NE(a, shared);
    EXPECT_EQ(exec->scratch(0, 500), a) << "a smaller wish must not allocate";
    std::byte* grown = exec->scratch(0, 1 << 20);
    grown[(1 << 20) - 1] = std::byte{1};
    EXPECT_EQ(exec->scratch(0, 1 << 20), grown);
}

}  // namespace
}  // namespace draftscope::kernels
