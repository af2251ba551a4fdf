#include "engine/heads/side_lane.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace draftscope {
namespace {

/// Longer than the gap between two levels, far shorter than a verification: the thread is awake while a round
/// drafts and asleep while the target runs.
constexpr int spins_before_sleep = 4000;

struct Job {
    std::function<std::uint64_t(kernels::Exec&)> work;
    SpanEvent span;
};

}  // namespace

struct SideLane::Impl {
    Impl(const kernels::Exec& exec, Phase phase_in)
        : phase(phase_in), own(kernels::make_cpu_exec(1, exec.isa())), thread([this] { serve(); }) {}
    ~Impl() {
        {
            const std::lock_guard lock(mutex);
            stop = true;
        }
        wake.notify_all();
        thread.join();
    }

    void serve() {
        while (true) {
            for (int i = 0; i < spins_before_sleep && started.load(std::memory_order_acquire) == taken; ++i) {
            }
            std::unique_lock lock(mutex);
            wake.wait(lock, [this] { return stop || !waiting.empty(); });
            if (waiting.empty()) return;
            Job job = std::move(waiting.front());
            waiting.pop_front();
            ++taken;
            lock.unlock();
            job.span.start_ticks = ticks_now();
            job.span.bytes = job.work(*own);
            job.span.end_ticks = ticks_now();
            lock.lock();
            spans.push_back(job.span);
            done.store(taken, std::memory_order_release);
            lock.unlock();
            finished.notify_all();
        }
    }

    void until_done(Ticket ticket) {
        for (int i = 0; i < spins_before_sleep && done.load(std::memory_order_acquire) < ticket; ++i) {
        }
        if (done.load(std::memory_order_acquire) >= ticket) return;
        std::unique_lock lock(mutex);
        finished.wait(lock, [&] { return done.load(std::memory_order_relaxed) >= ticket; });
    }

    const Phase phase;
    std::unique_ptr<kernels::Exec> own;
    std::mutex mutex;
    std::condition_variable wake, finished;
    std::deque<Job> waiting;
    std::deque<SpanEvent> spans;  ///< done and not yet recorded, in order
    Ticket recorded = 0;          ///< tickets whose span was taken
    std::atomic<Ticket> started{0}, done{0};
    Ticket taken = 0;  ///< by the thread
    bool stop = false;
    std::thread thread;
};

SideLane::SideLane(const kernels::Exec& exec, Phase phase) : impl_(std::make_unique<Impl>(exec, phase)) {}
SideLane::~SideLane() = default;

SideLane::Ticket SideLane::start(ProposeContext& context, int rows,
                                 std::function<std::uint64_t(kernels::Exec&)> work) {
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
    impl_->wake.notify_one();
    return ticket;
}

void SideLane::wait(ProposeContext& context, Ticket ticket) {
    if (ticket == 0 || ticket <= impl_->recorded) return;
    if (impl_->done.load(std::memory_order_acquire) < ticket) {
        PhaseScope exposed(context.phases, impl_->phase, context.level);
        impl_->until_done(ticket);
    }
    const std::lock_guard lock(impl_->mutex);
    for (; impl_->recorded < ticket; ++impl_->recorded) {
        context.phases.record(impl_->spans.front());
        impl_->spans.pop_front();
    }
}

void SideLane::settle(Ticket ticket) {
    if (ticket == 0 || ticket <= impl_->recorded) return;
    impl_->until_done(ticket);
    const std::lock_guard lock(impl_->mutex);
    for (; impl_->recorded < ticket; ++impl_->recorded) impl_->spans.pop_front();
}

}  // namespace draftscope
