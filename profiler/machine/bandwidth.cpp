#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/numel.h"
#include "profiler/machine/machine.h"

namespace draftscope {

namespace {

constexpr int max_passes = 9;
constexpr int steady_passes = 25;  ///< for probes that report a median
constexpr TimeNs enough_time = 400'000'000;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t line_words = 8;
constexpr std::size_t scattered_one_in = 16;  ///< one in this many rows is read

/// Memory as packed weights use it: in huge pages if the system has them, and first written by its reading
/// thread, so that it lies in that thread's NUMA node.
class ThreadBuffer {
  public:
    explicit ThreadBuffer(std::size_t words)
        : bytes_((words * sizeof(std::uint64_t) + huge_page - 1) / huge_page * huge_page + huge_page) {
        void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return;
        madvise(at, bytes_, MADV_HUGEPAGE);
        memory_ = at;
        const auto first = (reinterpret_cast<std::uintptr_t>(at) + huge_page - 1) / huge_page * huge_page;
        words_ = reinterpret_cast<std::uint64_t*>(first);
        std::fill_n(words_, words, 0x0123456789abcdefULL);
    }
    ~ThreadBuffer() {
        if (memory_ != nullptr) munmap(memory_, bytes_);
    }
    ThreadBuffer(const ThreadBuffer&) = delete;
    ThreadBuffer& operator=(const ThreadBuffer&) = delete;
    const std::uint64_t* words() const { return words_; }

  private:
    std::size_t bytes_;
    void* memory_ = nullptr;
    std::uint64_t* words_ = nullptr;
};

// The loader chooses the clone before ThreadSanitizer is initialised, but ThreadSanitizer instruments the
// choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define DS_CLONES_FOR_CPUS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DS_CLONES_FOR_CPUS
#endif

/// Reads like a thread that multiplies few rows: one stream, every line prefetched 8 KiB ahead into L2. The
/// sum is used, so that the compiler keeps all loads.
DS_CLONES_FOR_CPUS
std::uint64_t read_all(const std::uint64_t* words, std::size_t count) {
    constexpr std::size_t ahead = 8192 / sizeof(std::uint64_t);
    std::uint64_t sums[2][line_words] = {};
    for (std::size_t i = 0; i + 2 * line_words <= count; i += 2 * line_words) {
        for (std::size_t half = 0; half < 2; ++half) {
            const std::uint64_t* line = words + i + half * line_words;
            __builtin_prefetch(line + ahead, 0, 2);
            for (std::size_t lane = 0; lane < line_words; ++lane) sums[half][lane] += line[lane];
        }
    }
    std::uint64_t all = 0;
    for (const auto& half : sums)
        for (const std::uint64_t sum : half) all ^= sum;
    return all;
}

/// Reads scattered rows as an indexed head does: in ascending order, one row in sixteen (SpecVocab's share of
/// candidates), each prefetched about 40 KiB of read rows ahead. `pass` selects other rows.
DS_CLONES_FOR_CPUS
std::uint64_t read_rows(const std::uint64_t* words, std::size_t rows, std::size_t row_words,
                        std::uint64_t pass) {
    const std::size_t wanted = rows / scattered_one_in,
                      ahead = std::max<std::size_t>(1, (40u << 10) / (row_words * 8));
    const auto place = [&](std::size_t i) {
        return words + (i * scattered_one_in + ((i + pass * 977) * 0x9e3779b97f4a7c15u >> 60)) * row_words;
    };
    std::uint64_t sums[line_words] = {};
    for (std::size_t i = 0; i < wanted; ++i) {
        const std::uint64_t* row = place(i);
        const std::uint64_t* next = place(std::min(i + ahead, wanted - 1));
        for (std::size_t at = 0; at < row_words; at += line_words) {
            __builtin_prefetch(next + at, 0, 2);
            for (std::size_t lane = 0; lane < line_words; ++lane) sums[lane] += row[at + lane];
        }
    }
    std::uint64_t all = 0;
    for (const std::uint64_t sum : sums) all ^= sum;
    return all;
}

/// Number of passes, and the untimed reads before each.
struct PassOptions {
    int max_count = max_passes;
    std::size_t between_each = 0;  ///< words of other memory per thread
};

/// Returns the rates of `read(words, pass)`, which reads `bytes_each` of a private buffer of `words_each`
/// words per thread.
ProbedRate measure_rates(int threads, std::size_t words_each, double bytes_each, const PassOptions& passes,
                         FunctionRef<std::uint64_t(const std::uint64_t*, int)> read) {
    // Readers measure the time themselves, because on a busy machine the waiting thread wakes late.
    struct alignas(64) Span {
        TimeNs begin, end;
    };
    std::vector<Span> spans(threads);
    std::barrier<> line(threads + 1), readers(threads);
    std::atomic<std::uint64_t> sink{0};
    std::atomic<bool> failed{false}, done{false};
    std::vector<std::thread> pool;
    for (Span& span : spans) {
        pool.emplace_back([&, own = &span] {
            const ThreadBuffer buffer(words_each), other(std::max<std::size_t>(passes.between_each, 1));
            if (buffer.words() == nullptr || other.words() == nullptr) failed = true;
            for (int pass = 0;; ++pass) {
                line.arrive_and_wait();
                if (done) return;
                if (!failed && passes.between_each > 0)
                    sink.fetch_xor(read_all(other.words(), passes.between_each), std::memory_order_relaxed);
                readers.arrive_and_wait();
                own->begin = monotonic_ns();
                if (!failed) sink.fetch_xor(read(buffer.words(), pass), std::memory_order_relaxed);
                own->end = monotonic_ns();
                line.arrive_and_wait();
            }
        });
    }
    std::vector<TimeNs> times;
    TimeNs spent = 0;
    for (int pass = 0; pass < passes.max_count && (pass < 3 || spent < enough_time); ++pass) {
        line.arrive_and_wait();
        line.arrive_and_wait();
        Span all = spans.front();
        for (const Span& span : spans) all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
        times.push_back(std::max<TimeNs>(all.end - all.begin, 1));
        spent += times.back();
    }
    done = true;
    line.arrive_and_wait();
    for (std::thread& thread : pool) thread.join();
    if (failed) return {};
    std::sort(times.begin(), times.end());
    const double bytes = bytes_each * threads;
    return {bytes / static_cast<double>(times.front()), bytes / static_cast<double>(times[times.size() / 2])};
}

std::size_t words_of_share(int threads, int megabytes) {
    return static_cast<std::size_t>(std::max(1, megabytes)) * 1024 * 1024 / sizeof(std::uint64_t) / threads;
}
std::size_t between_share(int threads, int megabytes) {
    return megabytes <= 0 ? 0 : words_of_share(threads, megabytes);
}

ProbedRate stream_rates(int threads, int megabytes, const PassOptions& passes) {
    constexpr std::size_t step = 2 * line_words;
    const std::size_t words = std::max<std::size_t>(words_of_share(threads, megabytes) / step, 1) * step;
    return measure_rates(threads, words, static_cast<double>(words) * sizeof(std::uint64_t), passes,
                         [words](const std::uint64_t* at, int) { return read_all(at, words); });
}

}  // namespace

int memory_probe_megabytes() {
    constexpr long mebibyte = 1 << 20;
    long cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    cache = std::max(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE)) / mebibyte;
#endif
    long memory = 4096;
    struct sysinfo info {};
    if (sysinfo(&info) == 0)
        memory = static_cast<long>(static_cast<double>(info.totalram) * info.mem_unit / mebibyte);
    return static_cast<int>(std::clamp(4 * cache, 512L, std::max(512L, memory / 8)));
}

double probe_read_bandwidth(int threads, int megabytes) {
    return stream_rates(std::max(1, threads), megabytes, {}).best;
}

ProbedRate probe_stream(int threads, int megabytes, int between) {
    threads = std::max(1, threads);
    return stream_rates(threads, megabytes, {steady_passes, between_share(threads, between)});
}

double probe_scattered_bandwidth(int threads, int megabytes, int row_bytes) {
    return probe_scattered(threads, megabytes, row_bytes, 0).median;
}

ProbedRate probe_scattered(int threads, int megabytes, int row_bytes, int between) {
    threads = std::max(1, threads);
    constexpr int line_bytes = static_cast<int>(line_words * sizeof(std::uint64_t));
    const auto row_words = numel((std::max(1, row_bytes) + line_bytes - 1) / line_bytes, line_words);
    constexpr std::size_t min_rows = 64;
    const std::size_t rows = std::max(words_of_share(threads, megabytes) / row_words, min_rows) /
                             scattered_one_in * scattered_one_in;
    return measure_rates(threads, rows * row_words,
                         static_cast<double>(rows / scattered_one_in * row_words) * sizeof(std::uint64_t),
                         {steady_passes, between_share(threads, between)},
                         [=](const std::uint64_t* at, int pass) {
                             return read_rows(at, rows, row_words, static_cast<std::uint64_t>(pass));
                         });
}

}  // namespace draftscope
