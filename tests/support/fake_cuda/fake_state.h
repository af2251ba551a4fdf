#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/simt_host.h"

/// The state of the fake GPU, and what runs the work of its streams.
namespace draftscope::testing {

using Work = std::function<void()>;

/// A graph's kernel or copy, and the nodes that it follows.
struct Node {
    Work run;
    std::vector<int> after;
};
using Nodes = std::vector<Node>;

struct Capture {
    FakeStream* origin = nullptr;
    std::thread::id thread;
    std::set<FakeStream*> streams;
    Nodes nodes;
    bool invalid = false;
};

/// What waits in a stream.
struct Item {
    Work run{};                                      ///< a kernel or copy
    std::shared_ptr<const Nodes> graph{};            ///< or a graph
    std::shared_ptr<FakeEvent> records{}, awaits{};  ///< or an event
    long version = 0;                                ///< of the event
};

}  // namespace draftscope::testing

struct FakeEvent {
    bool timed = true;
    long recorded = 0;       ///< versions
    std::set<long> pending;  ///< versions that were recorded and have not been reached
    double ms = -1;          ///< when the last one was reached
    bool captured = false;   ///< the last record was captured
    std::weak_ptr<draftscope::testing::Capture> capture;
    std::vector<int> after;  ///< nodes that a waiting node follows
};
struct FakeStream {
    std::deque<draftscope::testing::Item> items;
    std::shared_ptr<draftscope::testing::Capture> capture;
    std::vector<int> last;               ///< nodes that the next node follows
    bool kernel_last = false;            ///< a kernel or graph was enqueued after the last copy
    long items_put = 0, kernel_put = 0;  ///< counts; the latter as of the latest kernel
};
struct FakeGraph {
    std::shared_ptr<const draftscope::testing::Nodes> nodes;
};
struct FakeGraphExec {
    std::shared_ptr<const draftscope::testing::Nodes> nodes;
};

namespace draftscope::testing {

/// Pages that end where an allocation ends, followed by a protected one.
struct Block {
    char* map = nullptr;
    std::size_t mapped = 0, bytes = 0;
};

class Gpu {
  public:
    FakeGpu settings;
    FakeGpuUse use;
    std::recursive_mutex mutex;
    cudaError_t last = cudaSuccess, sticky = cudaSuccess;
    std::map<char*, Block> device, pinned;
    std::map<FakeStream*, std::unique_ptr<FakeStream>> streams;
    std::map<FakeEvent*, std::shared_ptr<FakeEvent>> events;
    std::map<FakeGraph*, std::unique_ptr<FakeGraph>> graphs;
    std::map<FakeGraphExec*, std::unique_ptr<FakeGraphExec>> executables;
    std::map<const void*, int> dynamic_shared;  ///< limit of a kernel, if raised
    std::set<const void*> loaded;               ///< kernels that were launched before

    void restart(const FakeGpu& gpu) {
        settings = gpu;
        use = {};
        last = sticky = cudaSuccess;
        loaded.clear();
        dynamic_shared.clear();
        random_.seed(gpu.seed);
    }

    /// Begins a call that can fail on a working GPU.
    cudaError_t begin(const char* call = __builtin_FUNCTION()) {
        if (sticky != cudaSuccess) return sticky;
        if (settings.failing_call == use.calls++) {
            use.failed_call = call;
            use.failed_in_capture = is_capturing();
            return static_cast<cudaError_t>(settings.error);
        }
        if (settings.schedule == FakeSchedule::random)
            for (unsigned turns = random_() % 4; turns > 0; --turns) run_any();
        return cudaSuccess;
    }
    cudaError_t done(cudaError_t error) {
        if (error != cudaSuccess) last = error;
        return error;
    }
    cudaError_t fault(std::string what, cudaError_t error) {
        use.faults.push_back(std::move(what));
        return done(error);
    }

    bool is_capturing() const {
        return std::ranges::any_of(streams, [](const auto& one) {
            return one.first->capture && one.first->capture->thread == std::this_thread::get_id();
        });
    }
    /// Whether this thread captures: then calls that wait or allocate are refused and end the capture.
    bool refuses_unsafe_call() {
        bool refused = false;
        for (auto& [stream, owner] : streams)
            if (stream->capture && stream->capture->thread == std::this_thread::get_id())
                stream->capture->invalid = refused = true;
        return refused;
    }

    cudaError_t add(FakeStream& stream, Work work) {
        ++stream.items_put;
        if (!stream.capture) {
            put(stream, {.run = std::move(work)});
            return cudaSuccess;
        }
        if (stream.capture->invalid) return cudaErrorStreamCaptureInvalidated;
        Nodes& nodes = stream.capture->nodes;
        nodes.push_back({std::move(work), stream.last});
        stream.last = {static_cast<int>(nodes.size()) - 1};
        return cudaSuccess;
    }
    void put(FakeStream& stream, Item item) {
        ++stream.items_put;
        stream.items.push_back(std::move(item));
        if (settings.schedule == FakeSchedule::eager)
            while (run_any()) {
            }
    }

    /// Runs all of a stream, and of others what its waits need.
    void drain(FakeStream& stream) {
        while (!stream.items.empty()) run_front(stream);
    }
    void drain_all() {
        for (auto& [stream, owner] : streams) drain(*stream);
    }

  private:
    static bool is_blocked(const FakeStream& stream) {
        const Item& front = stream.items.front();
        return front.awaits && front.awaits->pending.contains(front.version);
    }
    /// Runs something of a stream chosen at random, or of the last one; returns false if nothing can run.
    bool run_any() {
        std::vector<FakeStream*> able;
        for (auto& [stream, owner] : streams)
            if (!stream->items.empty() && !is_blocked(*stream)) able.push_back(stream);
        if (able.empty()) return false;
        run_front(*able[random_() % able.size()]);
        return true;
    }
    void run_front(FakeStream& stream) {
        while (is_blocked(stream)) run_until(*stream.items.front().awaits, stream.items.front().version);
        const Item item = std::move(stream.items.front());
        stream.items.pop_front();
        if (item.run) run_work(item.run);
        if (item.graph) run_graph(*item.graph);
        if (!item.records) return;
        item.records->pending.erase(item.version);
        item.records->ms = clock_ms_;
    }
    /// Runs the stream that will reach a version of an event.
    void run_until(const FakeEvent& event, long version) {
        for (auto& [stream, owner] : streams)
            for (const Item& item : stream->items)
                if (item.records.get() == &event && item.version == version) return run_front(*stream);
        std::fprintf(stderr, "fake GPU: a stream waits for an event that none will reach\n");
        std::abort();
    }
    void run_work(const Work& work) {
        clock_ms_ += 0.001;
        if (settings.failing_work == use.work++) sticky = cudaErrorIllegalAddress;
        if (sticky != cudaSuccess) return;
        kernels::cuda::simt::set_order(settings.thread_order);
        work();
    }
    /// Runs the nodes in an order that their dependencies allow.
    void run_graph(const Nodes& nodes) {
        std::vector<char> ran(nodes.size(), 0);
        for (std::size_t count = 0; count < nodes.size(); ++count) {
            std::vector<std::size_t> able;
            for (std::size_t n = 0; n < nodes.size(); ++n)
                if (!ran[n] && std::ranges::all_of(nodes[n].after, [&](int a) { return ran[a] != 0; }))
                    able.push_back(n);
            std::size_t next = able.front();
            if (settings.schedule == FakeSchedule::late) next = able.back();
            if (settings.schedule == FakeSchedule::random) next = able[random_() % able.size()];
            run_work(nodes[next].run);
            ran[next] = 1;
        }
    }

    std::mt19937 random_{1};
    double clock_ms_ = 0;
};

/// The one of the process.
Gpu& gpu();

}  // namespace draftscope::testing
