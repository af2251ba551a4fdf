#include "profiler/cupti/gpu_session.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/enum_text.h"
#include "profiler/cupti/gpu_phase_map.h"

namespace draftscope {

namespace {

/// Destroyed nodes are kept this long; all their records have arrived by then.
constexpr TimeNs node_retention = 10 * ns_per_s;
constexpr TimeNs clock_tolerance = 60 * ns_per_s;

struct Launch {
    GpuContext context;
    TimeNs start_ns = 0;
};

struct Window {
    TimeNs start_ns = 0;
    TimeNs end_ns = 0;  ///< 0 = open
};

/// A record waiting for take(). Its name is interned, because CUPTI's pointer is valid during the callback
/// only.
struct PendingRecord {
    GpuActivity activity;
    std::uint32_t name = 0;
};

std::string demangled(const char* name) {
    int status = 0;
    char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string out = status == 0 && text != nullptr ? text : name;
    std::free(text);
    return out;
}

std::string copy_name(std::uint8_t kind) {
    constexpr std::string_view names[] = {"memcpy",
                                          "memcpy host to device",
                                          "memcpy device to host",
                                          "memcpy HtoA",
                                          "memcpy AtoH",
                                          "memcpy AtoA",
                                          "memcpy AtoD",
                                          "memcpy DtoA",
                                          "memcpy device to device",
                                          "memcpy host to host",
                                          "memcpy peer to peer"};
    return std::string(names[kind < std::size(names) ? kind : 0]);
}

/// The current call of this thread. Driver calls inside a runtime call belong to it.
struct CurrentCall {
    int depth = 0;
    GpuCall call;
};
thread_local CurrentCall current_call;

}  // namespace

struct GpuSession::Impl : CuptiListener {
    std::unique_ptr<CuptiApi> api;
    const GpuSessionOptions options;

    // Each mutex guards a few lines and is never held while CUPTI is called, because its callbacks lock them.
    mutable std::mutex state_mutex;
    CuptiProbe state;
    bool subscribed = false;
    Tier tier = Tier::t0;

    std::mutex graph_mutex;
    GpuPhaseMap phases;

    std::mutex launch_mutex;
    std::unordered_map<std::uint32_t, Launch> launches;
    std::deque<std::uint32_t> launch_order;
    std::vector<GpuCall> calls;
    std::uint64_t launches_forgotten = 0;

    std::mutex buffer_mutex;
    std::vector<std::unique_ptr<std::uint8_t[]>> buffers;
    std::vector<std::uint8_t*> free_buffers;

    std::mutex name_mutex;
    std::unordered_map<std::string, std::uint32_t> name_ids;
    std::deque<std::string> names;

    std::mutex arrival_mutex;
    std::vector<PendingRecord> arrived;
    std::uint64_t queue_full = 0;

    std::mutex window_mutex;
    std::vector<Window> windows;

    std::mutex loss_mutex;
    GpuLosses losses;

    std::thread flusher;
    std::mutex flusher_mutex;
    std::condition_variable flusher_wake;
    bool flusher_stop = false;

    Impl(std::unique_ptr<CuptiApi> cupti, const GpuSessionOptions& chosen)
        : api(std::move(cupti)), options(chosen) {}

    void node_created(std::uint64_t node) override {
        const std::lock_guard lock(graph_mutex);
        phases.created(node, current_gpu_context().phase, monotonic_ns());
    }
    void node_cloned(std::uint64_t node, std::uint64_t original) override {
        const std::lock_guard lock(graph_mutex);
        phases.cloned(node, original, monotonic_ns());
    }
    void node_destroyed(std::uint64_t node) override {
        const std::lock_guard lock(graph_mutex);
        phases.destroyed(node, monotonic_ns());
    }
    void call_entered(std::uint32_t correlation, const char* name) override;
    void call_left(std::uint32_t correlation) override;
    std::uint8_t* buffer_requested(std::size_t& bytes) override;
    void buffer_completed(std::uint8_t* buffer, std::size_t valid) override;
    void on_fatal_error(int code) override;

    CuptiProbe enable_for(Tier wanted);
    std::uint32_t name_id(const GpuActivity& activity);
    bool in_window(TimeNs start);
    GpuOp attributed(const PendingRecord& from, const Launch* launch);
    void start_flusher();
    void stop_flusher();
};

void GpuSession::Impl::call_entered(std::uint32_t correlation, const char* name) {
    const TimeNs now = monotonic_ns();
    CurrentCall& current = current_call;
    if (current.depth++ == 0)
        current.call = {name, static_cast<std::uint32_t>(gettid()), correlation, now, 0};
    const std::lock_guard lock(launch_mutex);
    if (launch_order.size() >= options.max_launches) {
        launches_forgotten += launches.erase(launch_order.front());
        launch_order.pop_front();
    }
    if (launches.insert_or_assign(correlation, Launch{current_gpu_context(), current.call.start_ns}).second)
        launch_order.push_back(correlation);
}

void GpuSession::Impl::call_left(std::uint32_t) {
    CurrentCall& current = current_call;
    if (current.depth == 0 || --current.depth > 0) return;
    current.call.end_ns = monotonic_ns();
    const std::lock_guard lock(launch_mutex);
    if (calls.size() < options.max_queued) calls.push_back(current.call);
}

std::uint8_t* GpuSession::Impl::buffer_requested(std::size_t& bytes) {
    bytes = options.buffer_bytes;
    const std::lock_guard lock(buffer_mutex);
    if (!free_buffers.empty()) {
        std::uint8_t* buffer = free_buffers.back();
        free_buffers.pop_back();
        return buffer;
    }
    if (buffers.size() >= options.max_buffers) {
        bytes = 0;
        return nullptr;
    }
    buffers.push_back(std::make_unique_for_overwrite<std::uint8_t[]>(options.buffer_bytes));
    return buffers.back().get();
}

std::uint32_t GpuSession::Impl::name_id(const GpuActivity& activity) {
    constexpr std::string_view texts[] = {"kernel", "memcpy", "memset", "graph"};
    std::string text(enum_text(texts, activity.kind));
    if (activity.kind == GpuOpKind::memcpy) text = copy_name(activity.copy_kind);
    if (activity.kind == GpuOpKind::kernel && activity.mangled != nullptr) text = activity.mangled;
    const std::lock_guard lock(name_mutex);
    const auto found = name_ids.find(text);
    if (found != name_ids.end()) return found->second;
    names.push_back(activity.kind == GpuOpKind::kernel ? demangled(text.c_str()) : text);
    const auto id = static_cast<std::uint32_t>(names.size() - 1);
    name_ids.emplace(std::move(text), id);
    return id;
}

void GpuSession::Impl::buffer_completed(std::uint8_t* buffer, std::size_t valid) {
    std::vector<PendingRecord> batch;
    api->read(buffer, valid, [&](const GpuActivity& activity) {
        batch.push_back({activity, name_id(activity)});
        batch.back().activity.mangled = nullptr;
    });
    {
        const std::lock_guard lock(arrival_mutex);
        const std::size_t room = options.max_queued - std::min(options.max_queued, arrived.size());
        if (batch.size() > room) {
            queue_full += batch.size() - room;
            batch.resize(room);
        }
        arrived.insert(arrived.end(), batch.begin(), batch.end());
    }
    {
        const std::lock_guard lock(buffer_mutex);
        free_buffers.push_back(buffer);
    }
    const std::uint64_t dropped = api->take_dropped();
    if (dropped == 0) return;
    const std::lock_guard lock(loss_mutex);
    losses.dropped += dropped;
}

void GpuSession::Impl::on_fatal_error(int code) {
    const std::lock_guard lock(state_mutex);
    state.state = CuptiState::fatal;
    state.text = "CUPTI stopped: " + api->message(code);
    state.remedy = "the recorded data are kept; restart the program to continue tracing";
}

bool GpuSession::Impl::in_window(TimeNs start) {
    const std::lock_guard lock(window_mutex);
    return std::any_of(windows.begin(), windows.end(), [&](const Window& window) {
        return start >= window.start_ns && (window.end_ns == 0 || start <= window.end_ns);
    });
}

GpuOp GpuSession::Impl::attributed(const PendingRecord& from, const Launch* launch) {
    const GpuActivity& activity = from.activity;
    GpuOp op;
    static_cast<GpuActivity&>(op) = activity;
    std::optional<Phase> phase;
    const TimeNs at = launch != nullptr ? launch->start_ns : activity.start_ns;
    {
        const std::lock_guard lock(graph_mutex);
        if (activity.kind == GpuOpKind::graph)
            phase = phases.find_graph_phase(activity.graph_exec, at);
        else if (activity.graph_node != 0)
            phase = phases.find_phase(activity.graph_node, at);
    }
    if (launch != nullptr) {
        op.launch_ns = launch->start_ns;
        op.round = launch->context.round;
        // The kernels of a graph get their phases from their nodes, because the launch has one phase for all.
        const bool eager = activity.graph_node == 0;
        if (!phase && eager) phase = launch->context.phase;
    }
    op.phase = phase.value_or(Phase::none);
    return op;
}

CuptiProbe GpuSession::Impl::enable_for(Tier wanted) {
    const auto enable = [&](CuptiActivity activity, const char* what) -> bool {
        const int code = api->enable(activity);
        if (code == 0) return true;
        CuptiProbe refused = cupti_refusal(code, api->message(code), "", what);
        refused.library = state.library;
        refused.version = state.version;
        state = refused;
        return false;
    };
    if (wanted == Tier::t1) {
        if (!enable(CuptiActivity::graphs, "tracing graphs")) return state;
    } else if (!enable(CuptiActivity::kernels, "tracing kernels")) {
        return state;
    }
    if (enable(CuptiActivity::copies, "tracing copies") && enable(CuptiActivity::fills, "tracing fills"))
        tier = wanted == Tier::t1 ? Tier::t1 : Tier::t2;
    return state;
}

void GpuSession::Impl::start_flusher() {
    if (options.flush_every <= 0 || flusher.joinable()) return;
    flusher_stop = false;
    flusher = std::thread([this] {
        std::unique_lock lock(flusher_mutex);
        while (!flusher_wake.wait_for(lock, std::chrono::nanoseconds(options.flush_every),
                                      [&] { return flusher_stop; })) {
            lock.unlock();
            api->flush(false);
            lock.lock();
        }
    });
}

void GpuSession::Impl::stop_flusher() {
    if (!flusher.joinable()) return;
    {
        const std::lock_guard lock(flusher_mutex);
        flusher_stop = true;
    }
    flusher_wake.notify_all();
    flusher.join();
}

GpuSession::GpuSession(std::unique_ptr<CuptiApi> api, const GpuSessionOptions& options)
    : impl_(std::make_unique<Impl>(std::move(api), options)) {
    impl_->state.state = CuptiState::no_library;
    impl_->state.text = "not opened";
}

GpuSession::~GpuSession() {
    impl_->stop_flusher();
    if (impl_->subscribed) impl_->api->unsubscribe();
}

CuptiProbe GpuSession::open(Tier wanted) {
    Impl& s = *impl_;
    if (wanted == Tier::t0) return state();
    if (!s.subscribed) {
        const CuptiProbe found = s.api->subscribe(s);  // may call back, so no lock is held
        const std::lock_guard lock(s.state_mutex);
        s.state = found;
        if (found.state != CuptiState::ready) return found;
        s.subscribed = true;
    }
    const std::lock_guard lock(s.state_mutex);
    if (s.state.state != CuptiState::ready || s.tier == wanted) return s.state;
    if (s.tier != Tier::t0) {
        CuptiProbe other = s.state;
        other.state = CuptiState::failed;
        other.text = "this process already traces at " + std::string(to_text(s.tier)) +
                     "; CUPTI makes either graph or kernel records";
        other.remedy = "restart the program for " + std::string(to_text(wanted));
        return other;
    }
    return s.enable_for(wanted);
}

CuptiProbe GpuSession::state() const {
    const std::lock_guard lock(impl_->state_mutex);
    return impl_->state;
}

Tier GpuSession::tier() const {
    const std::lock_guard lock(impl_->state_mutex);
    return impl_->tier;
}

void GpuSession::begin_window() {
    {
        const std::lock_guard lock(impl_->window_mutex);
        impl_->windows.push_back({monotonic_ns(), 0});
    }
    impl_->start_flusher();
}

void GpuSession::end_window() {
    impl_->stop_flusher();
    {
        const std::lock_guard lock(impl_->window_mutex);
        if (!impl_->windows.empty() && impl_->windows.back().end_ns == 0)
            impl_->windows.back().end_ns = monotonic_ns();
    }
    if (impl_->subscribed) impl_->api->flush(true);
}

void GpuSession::take(std::vector<GpuOp>& ops, std::vector<GpuCall>& calls) {
    Impl& s = *impl_;
    std::vector<PendingRecord> records;
    std::deque<std::string> names;
    {
        const std::lock_guard lock(s.arrival_mutex);
        records.swap(s.arrived);
    }
    if (!records.empty()) {
        const std::lock_guard lock(s.name_mutex);
        names = s.names;
    }
    GpuLosses lost;
    const std::size_t first = ops.size();
    for (const PendingRecord& record : records) {
        const GpuActivity& activity = record.activity;
        if (activity.start_ns == 0 || activity.end_ns < activity.start_ns) {
            ++lost.zero_timestamps;
            continue;
        }
        if (activity.start_ns > monotonic_ns() + clock_tolerance) {
            ++lost.wrong_clock;
            continue;
        }
        if (!s.in_window(activity.start_ns)) continue;
        std::optional<Launch> launch;
        {
            const std::lock_guard lock(s.launch_mutex);
            const auto found = s.launches.find(activity.correlation);
            if (found != s.launches.end()) launch = found->second;
        }
        GpuOp op = s.attributed(record, launch ? &*launch : nullptr);
        op.name = names[record.name];
        lost.unattributed += op.phase == Phase::none;
        if (op.launch_ns != 0 && op.start_ns < op.launch_ns) {
            ++lost.before_launch;
            lost.worst_before_launch_ns = std::max(lost.worst_before_launch_ns, op.launch_ns - op.start_ns);
        }
        ops.push_back(std::move(op));
    }
    std::stable_sort(ops.begin() + static_cast<std::ptrdiff_t>(first), ops.end(),
                     [](const GpuOp& a, const GpuOp& b) { return a.start_ns < b.start_ns; });
    {
        const std::lock_guard lock(s.launch_mutex);
        for (const GpuCall& call : s.calls)
            if (s.in_window(call.start_ns)) calls.push_back(call);
        s.calls.clear();
    }
    {
        const std::lock_guard lock(s.graph_mutex);
        s.phases.forget_before(monotonic_ns() - node_retention);
    }
    const std::lock_guard lock(s.loss_mutex);
    s.losses.zero_timestamps += lost.zero_timestamps;
    s.losses.wrong_clock += lost.wrong_clock;
    s.losses.unattributed += lost.unattributed;
    s.losses.before_launch += lost.before_launch;
    s.losses.worst_before_launch_ns = std::max(s.losses.worst_before_launch_ns, lost.worst_before_launch_ns);
}

GpuLosses GpuSession::take_losses() {
    GpuLosses out;
    {
        const std::lock_guard lock(impl_->loss_mutex);
        out = std::exchange(impl_->losses, {});
    }
    if (impl_->subscribed) out.dropped += impl_->api->take_dropped();
    {
        const std::lock_guard lock(impl_->arrival_mutex);
        out.queue_full += std::exchange(impl_->queue_full, 0);
    }
    const std::lock_guard lock(impl_->launch_mutex);
    out.launches_forgotten += std::exchange(impl_->launches_forgotten, 0);
    return out;
}

GpuSession& gpu_session() {
    // Never destroyed, because CUPTI's threads may still call it at process exit.
    static auto* const session = new GpuSession(make_cupti_api());
    return *session;
}

}  // namespace draftscope
