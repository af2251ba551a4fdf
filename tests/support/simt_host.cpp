#include "tests/support/simt_host.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

namespace draftscope::kernels::cuda {
namespace simt {

dim3 thread_index, block_index, block_size, grid_size;
std::uint64_t block_count = 0;
std::size_t static_shared_bytes = 0;

namespace {

constexpr std::size_t stack_bytes = 64 << 10;
constexpr int warp_lanes = 32;

/// Where a fibre goes on. __builtin_setjmp() needs no system call, as swapcontext() does.
struct Place {
    void* words[5];
};
struct Barrier {
    int arrived = 0;
    unsigned turn = 0;
};
struct Warp {
    Barrier barrier;
    Offer offers[warp_lanes];
    int live = 0;
};
/// A thread of a block. It is kept, and runs a thread of the next block after its own has ended.
struct Fibre {
    Place place;
    std::unique_ptr<char[]> stack;
    unsigned index = 0;
    bool started = false, done = false, waited = false;
};

std::vector<std::unique_ptr<Fibre>> fibres;
std::vector<Warp> warps;
std::vector<unsigned> turn_order;
std::vector<char> shared_memory;
Barrier block_barrier, start_barrier;
const MemoryGuard* memory_guard = nullptr;  ///< of a kernel that may start early
bool hidden = false;
int live = 0;
std::size_t current = 0;  ///< index in turn_order
Place scheduler;
const std::function<void()>* running = nullptr;
unsigned order = 0;
long idle_turns = 0;

[[noreturn]] void report_deadlock() {
    std::fprintf(stderr,
                 "simt: threads of block (%u, %u, %u) wait forever: not all of them reach a barrier or a "
                 "warp-wide operation\n",
                 block_index.x, block_index.y, block_index.z);
    std::abort();
}

[[noreturn]] void report_no_wait() {
    std::fprintf(stderr,
                 "simt: a kernel may start early, but a thread of it ends without wait_for_previous()\n");
    std::abort();
}

Fibre& fibre_at(std::size_t place) {
    return *fibres[turn_order[place]];
}

void choose(Fibre& fibre) {
    thread_index = dim3(fibre.index);
}

/// For functions that leave their stack: AddressSanitizer would clear what it takes for the thread's stack.
#define DS_SWITCHES [[gnu::no_sanitize("address")]]

/// A function of its own, because a place must not be left in the function that sets it.
DS_SWITCHES [[noreturn, gnu::noinline]] void jump(Place& to) {
    __builtin_longjmp(to.words, 1);
}
void fibre_main();
DS_SWITCHES [[noreturn]] void start(Fibre& fibre) {
    fibre.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fibre.stack.get();
    context.uc_stack.ss_size = stack_bytes;
    context.uc_link = nullptr;
    makecontext(&context, fibre_main, 0);
    setcontext(&context);
    std::abort();
}
DS_SWITCHES [[noreturn]] void go_on(Fibre& fibre) {
    choose(fibre);
    if (!fibre.started) start(fibre);
    jump(fibre.place);
}

/// The place in the order of the next thread that has not ended.
std::size_t next_place() {
    std::size_t next = current;
    do next = (next + 1) % turn_order.size();
    while (fibre_at(next).done);
    return next;
}
/// Switches to the next thread.
DS_SWITCHES void yield() {
    Fibre& from = fibre_at(current);
    const std::size_t next = next_place();
    if (++idle_turns > 64L * static_cast<long>(turn_order.size())) report_deadlock();
    if (next == current) return;
    current = next;
    if (__builtin_setjmp(from.place.words) == 0) go_on(fibre_at(next));
}

void wait_at(Barrier& barrier, const int& parties) {
    const unsigned turn = barrier.turn;
    ++barrier.arrived;
    while (barrier.turn == turn) {
        if (barrier.arrived >= parties) {
            barrier.arrived = 0;
            ++barrier.turn;
            idle_turns = 0;
            return;
        }
        yield();
    }
}

/// Ends a thread and switches to the next one, or to the scheduler. It returns for a thread of another block.
DS_SWITCHES void end_thread() {
    Fibre& self = fibre_at(current);
    if (memory_guard != nullptr && !self.waited) report_no_wait();
    self.done = true;
    --live;
    --warps[self.index / warp_lanes].live;
    idle_turns = 0;
    if (__builtin_setjmp(self.place.words) != 0) return;
    if (live == 0) jump(scheduler);
    current = next_place();
    go_on(fibre_at(current));
}

/// Not instrumented by ThreadSanitizer, whose call stack would grow with every thread, as no call of it
/// returns.
__attribute__((no_sanitize("thread"))) void fibre_main() {
    for (;;) {
        (*running)();
        end_thread();
    }
}

DS_SWITCHES void run_block(unsigned threads) {
    warps.assign((threads + warp_lanes - 1) / warp_lanes, Warp());
    for (unsigned t = 0; t < threads; ++t) ++warps[t / warp_lanes].live;
    block_barrier = start_barrier = Barrier();
    live = static_cast<int>(threads);
    turn_order.resize(threads);
    std::iota(turn_order.begin(), turn_order.end(), 0u);
    if (order == 1) std::reverse(turn_order.begin(), turn_order.end());
    if (order > 1) {
        std::uint64_t state = order * 0x9e3779b97f4a7c15u + block_index.x;
        for (unsigned t = threads - 1; t > 0; --t) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            std::swap(turn_order[t], turn_order[(state >> 33) % (t + 1)]);
        }
    }
    for (unsigned t = 0; t < threads; ++t) {
        Fibre& fibre = *fibres[t];
        fibre.index = t;
        fibre.done = fibre.waited = false;
    }
    idle_turns = 0;
    current = 0;
    if (__builtin_setjmp(scheduler.words) == 0) go_on(fibre_at(0));
}

}  // namespace

void set_order(unsigned order_in) {
    order = order_in;
}

char* dynamic_shared() {
    return shared_memory.data() + (16 - reinterpret_cast<std::uintptr_t>(shared_memory.data()) % 16) % 16;
}

void wait_for_previous() {
    if (memory_guard == nullptr) return;
    fibre_at(current).waited = true;
    if (!hidden) return;
    if (start_barrier.arrived + 1 == live) {
        hidden = false;
        if (memory_guard->show) memory_guard->show(nullptr);
    }
    wait_at(start_barrier, live);
}
void show(const void* at) {
    if (hidden && memory_guard->show) memory_guard->show(at);
}

void sync_block() {
    wait_at(block_barrier, live);
}

const Offer* meet(const Offer& mine) {
    Warp& warp = warps[thread_index.x / warp_lanes];
    warp.offers[thread_index.x % warp_lanes] = mine;
    wait_at(warp.barrier, warp.live);
    // An ended lane would return its last value, so no warp-wide operation may use it.
    if (warp.live != warp_lanes && block_size.x % warp_lanes == 0) report_deadlock();
    return warps[thread_index.x / warp_lanes].offers;
}

void leave() {
    Warp& warp = warps[thread_index.x / warp_lanes];
    wait_at(warp.barrier, warp.live);
}

std::size_t run(const dim3& grid, const dim3& block, std::size_t shared_bytes,
                const std::function<void()>& kernel, const MemoryGuard* guard) {
    if (block.y != 1 || block.z != 1) std::abort();
    while (fibres.size() < block.x) {
        fibres.push_back(std::make_unique<Fibre>());
        fibres.back()->stack = std::make_unique<char[]>(stack_bytes);
    }
    grid_size = grid;
    block_size = block;
    running = &kernel;
    memory_guard = guard;
    hidden = guard != nullptr;
    if (hidden && guard->hide) guard->hide();
    std::size_t used = 0;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                block_index = dim3(order == 1 ? grid.x - 1 - x : x, y, z);
                // Shared memory does not keep the contents of the previous block.
                ++block_count;
                static_shared_bytes = 0;
                shared_memory.assign(shared_bytes + 16, static_cast<char>(0xee));
                run_block(block.x);
                used = std::max(used, static_shared_bytes);
            }
    memory_guard = nullptr;
    return used;
}

}  // namespace simt

void mma_host(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1,
              float (*read)(std::uint16_t)) {
    simt::Offer mine;
    const unsigned words[6] = {a0, a1, a2, a3, b0, b1};
    std::memcpy(mine.words, words, sizeof words);
    const simt::Offer* all = simt::meet(mine);
    const auto value = [&](int lane, int word, int half) {
        unsigned packed;
        std::memcpy(&packed, reinterpret_cast<const char*>(all[lane].words) + word * 4, 4);
        return read(static_cast<std::uint16_t>(half == 0 ? packed & 0xffffu : packed >> 16));
    };
    const int lane = static_cast<int>(simt::thread_index.x % 32), g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
        const int row = g + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
        float sum = c[i];
        for (int k = 0; k < 16; ++k) {
            const float a = value(row % 8 * 4 + k % 8 / 2, (row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0), k % 2);
            const float b = value(column * 4 + k % 8 / 2, 4 + (k >= 8 ? 1 : 0), k % 2);
            sum += a * b;
        }
        c[i] = sum;
    }
    simt::leave();
}

}  // namespace draftscope::kernels::cuda
