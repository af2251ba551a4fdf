#include "app/jobs/run/recorder.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

namespace draftscope {

namespace {

/// Requests to the recorder thread, queued in order with the records.
struct ShowRequest {
    std::shared_ptr<const Snapshot> snapshot;  ///< null = start an empty capture
};
struct StorageRequest {
    RecordSink* sink;
};
using Item = std::variant<Record, ShowRequest, StorageRequest>;

// The queue length that triggers processing before the next publication; bounds the queue.
constexpr std::size_t max_queued_items = 256;

// A held engine has pushed its round in flight and waits for the user, so the round must be shown at once.
bool wants_publication_now(const Record& record) {
    const auto* live = std::get_if<LiveRound>(&record);
    return (live != nullptr && live->active) || std::holds_alternative<RunEnded>(record) ||
           std::holds_alternative<RunStarted>(record);
}

bool wants_publication_now(const Item& item) {
    const auto* record = std::get_if<Record>(&item);
    return record == nullptr || wants_publication_now(*record);
}

}  // namespace

struct Recorder::Impl {
    std::function<void()> on_publish;
    std::chrono::nanoseconds interval;
    SnapshotSlot box;

    /// The sink on which producers wait when the disk is slow, so that the recorder thread never waits.
    std::shared_mutex backpressure_mutex;
    RecordSink* backpressure_sink = nullptr;

    std::mutex mutex;
    std::condition_variable work, done;
    std::vector<Item> queue;
    std::uint64_t pushed = 0;     ///< items ever queued
    std::uint64_t completed = 0;  ///< items published and passed to the storage
    int flushing = 0;             ///< callers waiting in wait_for()
    bool urgent = false;          ///< a queued item must be published at once
    bool asleep = false;          ///< the thread waits for any item, not for a time
    bool stop = false;

    // Recorder thread only.
    Capture capture;
    RecordSink* storage = nullptr;
    std::shared_ptr<const Snapshot> shown;  ///< an opened file instead of `capture`
    std::uint64_t version = 0;
    std::chrono::steady_clock::time_point last_publication{};

    std::thread thread;

    void run();
    void forward(std::vector<Item>& items);
    bool take(std::vector<Item>& items, bool dirty, std::uint64_t& last_item, bool& flush);
    bool apply(std::vector<Item>& items);
    void publish();
    void enqueue(Item item);
    void wait_for_all();
};

// Waits until an item is urgent or the next publication is due. Returns false on stop. Producers wake this
// thread only from an untimed wait: a wake-up costs the decoding thread more than producing the record.
bool Recorder::Impl::take(std::vector<Item>& items, bool dirty, std::uint64_t& last_item, bool& flush) {
    std::unique_lock lock(mutex);
    const auto at_once = [&] {
        return stop || urgent || queue.size() >= max_queued_items || (flushing > 0 && completed < pushed);
    };
    for (;;) {
        work.wait_until(lock, last_publication + interval, at_once);
        if (at_once() || dirty || !queue.empty()) break;
        asleep = true;
        work.wait(lock, [&] { return at_once() || !queue.empty(); });
        asleep = false;
    }
    items.clear();
    std::swap(items, queue);
    urgent = false;
    last_item = pushed;
    flush = flushing > 0 || stop;
    return !(stop && items.empty() && !dirty);
}

void Recorder::Impl::forward(std::vector<Item>& items) {
    for (Item& item : items) {
        if (const auto* request = std::get_if<StorageRequest>(&item))
            storage = request->sink;
        else if (auto* record = std::get_if<Record>(&item); record != nullptr && storage != nullptr)
            storage->push(std::move(*record));
    }
}

// Returns true if the items require a publication at once.
bool Recorder::Impl::apply(std::vector<Item>& items) {
    bool now = false;
    for (Item& item : items) {
        if (auto* request = std::get_if<ShowRequest>(&item)) {
            capture = Capture();
            shown = std::move(request->snapshot);
            now = true;
            continue;
        }
        if (!std::holds_alternative<Record>(item)) continue;
        const Record& record = std::get<Record>(item);
        now |= wants_publication_now(record);
        shown = nullptr;
        capture.apply(record);
    }
    return now;
}

void Recorder::Impl::publish() {
    ++version;
    auto snapshot = std::make_shared<Snapshot>(shown ? *shown : capture.snapshot(version));
    snapshot->version = version;
    box.publish(std::move(snapshot));
    last_publication = std::chrono::steady_clock::now();
    if (on_publish) on_publish();
}

void Recorder::Impl::run() {
    pthread_setname_np(pthread_self(), "ds-recorder");
    std::vector<Item> items;
    bool dirty = false;
    std::uint64_t last_item = 0;
    bool flush = false;
    while (take(items, dirty, last_item, flush)) {
        bool now = flush;
        if (!items.empty()) {
            now |= apply(items);
            dirty = true;
        }
        // Publishes before passing items to the storage's queue. Producers wait for the disk in push().
        if (dirty && (now || std::chrono::steady_clock::now() >= last_publication + interval)) {
            publish();
            dirty = false;
        }
        forward(items);
        if (dirty) continue;
        {
            const std::lock_guard lock(mutex);
            completed = last_item;
        }
        done.notify_all();
    }
}

void Recorder::Impl::enqueue(Item item) {
    bool wake = false;
    {
        const std::lock_guard lock(mutex);
        urgent |= wants_publication_now(item);
        queue.push_back(std::move(item));
        ++pushed;
        wake = asleep || urgent || queue.size() == max_queued_items;
    }
    if (wake) work.notify_one();
}

void Recorder::Impl::wait_for_all() {
    std::unique_lock lock(mutex);
    const std::uint64_t goal = pushed;
    ++flushing;
    work.notify_one();
    done.wait(lock, [&] { return completed >= goal; });
    --flushing;
}

Recorder::Recorder(std::function<void()> on_publish, TimeNs interval) : impl_(std::make_unique<Impl>()) {
    impl_->on_publish = std::move(on_publish);
    impl_->interval = std::chrono::nanoseconds(interval);
    impl_->thread = std::thread([this] { impl_->run(); });
}

Recorder::~Recorder() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->work.notify_all();
    impl_->thread.join();
}

void Recorder::push(Record record) {
    if (!std::holds_alternative<LiveRound>(record)) {
        const std::shared_lock lock(impl_->backpressure_mutex);
        if (impl_->backpressure_sink != nullptr) impl_->backpressure_sink->wait_for_space();
    }
    impl_->enqueue(std::move(record));
}

void Recorder::set_storage(RecordSink* sink) {
    {
        const std::unique_lock lock(impl_->backpressure_mutex);
        impl_->backpressure_sink = sink;
    }
    impl_->enqueue(StorageRequest{sink});
    impl_->wait_for_all();
}

void Recorder::clear() {
    impl_->enqueue(ShowRequest{});
}

void Recorder::show(std::shared_ptr<const Snapshot> snapshot) {
    impl_->enqueue(ShowRequest{std::move(snapshot)});
}

std::shared_ptr<const Snapshot> Recorder::snapshot() const {
    return impl_->box.take();
}

void Recorder::flush() {
    impl_->wait_for_all();
}

}  // namespace draftscope
