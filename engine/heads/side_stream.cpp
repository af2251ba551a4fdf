#include "engine/heads/side_stream.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace draftscope {
namespace {

/// Longer than the gap between two levels, much shorter than a verification: the thread spins while a round
/// drafts and sleeps while the target runs.
constexpr int spins_before_sleep = 4000;

struct Job {
    std::function<std::uint64_t(kernels::Backend&)> work;
    SpanEvent span;
};

}  // namespace

struct SideStream::Impl {
    Impl(const kernels::Backend& backend, Phase phase_in)
        : phase(phase_in),
          cpu_backend(kernels::make_cpu_backend(1, backend.pool().isa())),
          thread([this] { serve(); }) {
        const std::lock_guard lock(mutex);
        waiting.reserve(16);  // the number of waiting jobs depends on scheduling
    }
    ~Impl() {
        {
            const std::lock_guard lock(mutex);
            stop = true;
        }
        changed.notify_all();
        thread.join();
    }

    /// True if no job runs and one is waiting. This and the next functions require the mutex.
    bool can_begin_next() const { return done == dequeued && !waiting.empty(); }
    Job take() {
        Job job = std::move(waiting.front());
        waiting.erase(waiting.begin());
        ++dequeued;
        return job;
    }
    void finish(const SpanEvent* span) {
        ++done;
        if (span != nullptr) spans.emplace_back(done, *span);
        progress.store(done, std::memory_order_release);
        changed.notify_all();
    }

    void serve() {
        std::unique_lock lock(mutex);
        while (true) {
            if (!can_begin_next()) {
                lock.unlock();
                for (int i = 0; i < spins_before_sleep && started.load(std::memory_order_acquire) ==
                                                              progress.load(std::memory_order_acquire);
                     ++i) {
                }
                lock.lock();
                changed.wait(lock, [this] { return stop || can_begin_next(); });
            }
            // Jobs already started are finished before the thread exits.
            if (!can_begin_next()) return;
            Job job = take();
            lock.unlock();
            job.span.start_ticks = ticks_now();
            job.span.bytes = job.work(*cpu_backend);
            job.span.end_ticks = ticks_now();
            lock.lock();
            finish(&job.span);
        }
    }

    /// Waits until `ticket` is done. The caller runs jobs that have not begun, through `run`: on a busy
    /// machine the thread may not get a core for milliseconds.
    template <typename Run>
    void wait_until_done(Ticket ticket, Run run) {
        std::unique_lock lock(mutex);
        while (done < ticket) {
            if (!can_begin_next()) {
                changed.wait(lock, [&] { return done >= ticket || can_begin_next(); });
                continue;
            }
            const Job job = take();
            lock.unlock();
            run(job);
            lock.lock();
            finish(nullptr);
        }
    }

    const Phase phase;
    std::unique_ptr<kernels::Backend> cpu_backend;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Job> waiting;  ///< at most one per sequence; unlike a deque it keeps its memory
    std::vector<std::pair<Ticket, SpanEvent>> spans;  ///< of jobs run by the thread, not yet recorded
    Ticket dequeued = 0, done = 0;
    std::atomic<Ticket> started{0}, progress{0};  ///< progress mirrors done
    bool stop = false;
    std::thread thread;
};

SideStream::SideStream(const kernels::Backend& backend, Phase phase)
    : impl_(std::make_unique<Impl>(backend, phase)) {}
SideStream::~SideStream() = default;

SideStream::Ticket SideStream::start(HeadContext& context, int rows,
                                     std::function<std::uint64_t(kernels::Backend&)> work) {
    Job job{std::move(work), {}};
    job.span.phase = impl_->phase;
    job.span.level = static_cast<std::int16_t>(context.level);
    job.span.rows = rows;
    job.span.round = context.phases.round();
    job.span.lane = Lane::side;
    job.span.worker = 1;
    Ticket ticket = 0;
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->waiting.push_back(std::move(job));
        ticket = impl_->started.fetch_add(1, std::memory_order_release) + 1;
    }
    impl_->changed.notify_all();
    return ticket;
}

void SideStream::join(HeadCall& call, Ticket ticket, std::uint64_t bytes) {
    if (!call.backend.is_host()) {
        const DeviceSpans::Scope scope(call.spans, call.phases, impl_->phase, call.level, call.rows, bytes);
        return call.backend.join_side_stream();
    }
    HeadContext context{call.backend, call.phases, call.level};
    wait(context, ticket);
}

void SideStream::wait(HeadContext& context, Ticket ticket) {
    if (ticket == 0) return;
    if (impl_->progress.load(std::memory_order_acquire) < ticket) {
        PhaseScope exposed(context.phases, impl_->phase, context.level);
        impl_->wait_until_done(ticket, [&](const Job& job) {
            exposed.set_rows(job.span.rows);
            exposed.add_bytes(job.work(context.backend));
        });
    }
    const std::lock_guard lock(impl_->mutex);
    for (const auto& [done, span] : impl_->spans) context.phases.record(span);
    impl_->spans.clear();
}

void SideStream::wait_discard(Ticket ticket) {
    if (ticket == 0) return;
    impl_->wait_until_done(ticket, [this](const Job& job) { job.work(*impl_->cpu_backend); });
    const std::lock_guard lock(impl_->mutex);
    std::erase_if(impl_->spans, [&](const auto& one) { return one.first == ticket; });
}

}  // namespace draftscope
