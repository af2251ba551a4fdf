#include "app/jobs/run/recorder.h"

#include <pthread.h>

namespace draftscope {

namespace {

// The queue length that triggers processing before the next publication; bounds the queue.
constexpr std::size_t max_queued_items = 256;

}  // namespace

// A held engine has pushed its round in flight and waits for the user, so the round must be shown at once.
bool Recorder::wants_publication_now(const Item& item) {
    const auto* record = std::get_if<Record>(&item);
    if (record == nullptr) return true;
    const auto* live = std::get_if<LiveRound>(record);
    return (live != nullptr && live->active) || std::holds_alternative<RunEnded>(*record) ||
           std::holds_alternative<RunStarted>(*record);
}

// Waits until an item is urgent or the next publication is due. Returns false on stop. Producers wake this
// thread only from an untimed wait: a wake-up costs the decoding thread more than producing the record.
bool Recorder::take(std::vector<Item>& items, bool dirty, std::uint64_t& last_item, bool& flush) {
    std::unique_lock lock(mutex_);
    const auto at_once = [&] {
        return stop_ || urgent_ || queue_.size() >= max_queued_items ||
               (flushing_ > 0 && completed_ < pushed_);
    };
    for (;;) {
        work_.wait_until(lock, last_publication_ + interval_, at_once);
        if (at_once() || dirty || !queue_.empty()) break;
        asleep_ = true;
        work_.wait(lock, [&] { return at_once() || !queue_.empty(); });
        asleep_ = false;
    }
    items.clear();
    std::swap(items, queue_);
    urgent_ = false;
    last_item = pushed_;
    flush = flushing_ > 0 || stop_;
    return !(stop_ && items.empty() && !dirty);
}

void Recorder::forward(std::vector<Item>& items) {
    for (Item& item : items) {
        if (const auto* request = std::get_if<StorageRequest>(&item))
            storage_ = request->sink;
        else if (auto* record = std::get_if<Record>(&item); record != nullptr && storage_ != nullptr)
            storage_->push(std::move(*record));
    }
}

// Returns true if the items require a publication at once.
bool Recorder::apply(std::vector<Item>& items) {
    bool now = false;
    for (Item& item : items) {
        if (auto* request = std::get_if<ShowRequest>(&item)) {
            capture_ = Capture();
            shown_ = std::move(request->snapshot);
            now = true;
            continue;
        }
        const auto* record = std::get_if<Record>(&item);
        if (record == nullptr) continue;
        now |= wants_publication_now(item);
        if (const auto* note = std::get_if<NoteRow>(record); note != nullptr && shown_ != nullptr) {
            auto noted = std::make_shared<Snapshot>(*shown_);
            noted->notes.push_back(*note);
            shown_ = std::move(noted);
            continue;
        }
        shown_ = nullptr;
        capture_.apply(*record);
    }
    return now;
}

void Recorder::publish() {
    ++version_;
    auto snapshot = std::make_shared<Snapshot>(shown_ ? *shown_ : capture_.snapshot(version_));
    snapshot->version = version_;
    box_.publish(std::move(snapshot));
    last_publication_ = std::chrono::steady_clock::now();
    if (on_publish_) on_publish_();
}

void Recorder::run() {
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
        if (dirty && (now || std::chrono::steady_clock::now() >= last_publication_ + interval_)) {
            publish();
            dirty = false;
        }
        forward(items);
        if (dirty) continue;
        {
            const std::lock_guard lock(mutex_);
            completed_ = last_item;
        }
        done_.notify_all();
    }
}

void Recorder::enqueue(Item item) {
    bool wake = false;
    {
        const std::lock_guard lock(mutex_);
        urgent_ |= wants_publication_now(item);
        queue_.push_back(std::move(item));
        ++pushed_;
        wake = asleep_ || urgent_ || queue_.size() == max_queued_items;
    }
    if (wake) work_.notify_one();
}

void Recorder::flush() {
    std::unique_lock lock(mutex_);
    const std::uint64_t goal = pushed_;
    ++flushing_;
    work_.notify_one();
    done_.wait(lock, [&] { return completed_ >= goal; });
    --flushing_;
}

Recorder::Recorder(std::function<void()> on_publish, TimeNs interval)
    : on_publish_(std::move(on_publish)), interval_(interval), thread_([this] { run(); }) {}

Recorder::~Recorder() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    work_.notify_all();
    thread_.join();
}

void Recorder::push(Record record) {
    if (!std::holds_alternative<LiveRound>(record)) {
        const std::shared_lock lock(backpressure_mutex_);
        if (backpressure_sink_ != nullptr) backpressure_sink_->wait_for_space();
    }
    enqueue(std::move(record));
}

void Recorder::set_storage(RecordSink* sink) {
    {
        const std::unique_lock lock(backpressure_mutex_);
        backpressure_sink_ = sink;
    }
    enqueue(StorageRequest{sink});
    flush();
}

}  // namespace draftscope
