#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "profiler/cupti/cupti_api.h"

namespace draftscope {

/// A CUPTI without a GPU. Tests simulate captures, launches and records. It requests buffers, drops records
/// and counts them as CUPTI does. A buffer holds records of 64 bytes each, which contain the record's index
/// in `records`.
class FakeCupti final : public CuptiApi {
  public:
    static constexpr std::size_t record_bytes = 64;

    CuptiProbe subscribe_answer{CuptiState::ready, "fake", 130001, "", "fake, 13.0.1", ""};
    int enable_answer = 0;
    std::vector<CuptiActivity> enabled;
    int flushes = 0, forced_flushes = 0, subscriptions = 0;
    std::atomic<std::uint64_t> dropped{0};

    CuptiProbe probe() override { return subscribe_answer; }
    CuptiProbe subscribe(CuptiListener& to) override {
        ++subscriptions;
        listener = &to;
        return subscribe_answer;
    }
    void unsubscribe() override { listener = nullptr; }
    int enable(CuptiActivity activity) override {
        if (enable_answer == 0) enabled.push_back(activity);
        return enable_answer;
    }
    int flush(bool all) override {
        ++(all ? forced_flushes : flushes);
        hand_over();
        return 0;
    }
    std::uint64_t take_dropped() override { return dropped.exchange(0); }
    void read(std::uint8_t* filled, std::size_t valid, FunctionRef<void(const GpuActivity&)> visit) override {
        for (std::size_t at = 0; at < valid; at += record_bytes) {
            std::size_t index = 0;
            std::memcpy(&index, filled + at, sizeof index);
            GpuActivity activity = records[index];
            // The name is valid during the call only, as with CUPTI.
            std::string name = activity.mangled != nullptr ? activity.mangled : "";
            activity.mangled = activity.mangled != nullptr ? name.c_str() : nullptr;
            visit(activity);
            std::fill(name.begin(), name.end(), '?');
        }
    }
    std::string message(int code) override { return "code " + std::to_string(code); }

    /// Writes a record to the current buffer. Without a buffer, the record is dropped and counted.
    void write(const GpuActivity& activity) {
        if (buffer != nullptr && used + record_bytes > room) hand_over();
        if (buffer == nullptr) {
            buffer = listener->buffer_requested(room);
            used = 0;
            if (buffer == nullptr) {
                ++dropped;
                return;
            }
        }
        records.push_back(activity);
        const std::size_t index = records.size() - 1;
        std::memcpy(buffer + used, &index, sizeof index);
        used += record_bytes;
    }
    void hand_over() {
        if (buffer == nullptr) return;
        std::uint8_t* full = buffer;
        buffer = nullptr;
        listener->buffer_completed(full, used);
    }
    /// Retains the current buffer, as CUPTI does with unfinished records.
    std::uint8_t* withhold(std::size_t& valid) {
        valid = used;
        std::uint8_t* kept = buffer;
        buffer = nullptr;
        return kept;
    }

    CuptiListener* listener = nullptr;
    std::deque<GpuActivity> records;

  private:
    std::uint8_t* buffer = nullptr;
    std::size_t room = 0, used = 0;
};

}  // namespace draftscope
