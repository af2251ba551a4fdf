#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "profiler/cupti/counter_api.h"

namespace draftscope {

/// A Range Profiler without a GPU. Its values identify their range. It rejects what the real one rejects:
/// repeated names, too many ranges, pops without a push, calls out of order.
class FakeCounters final : public CounterApi {
  public:
    CuptiProbe open_answer{CuptiState::ready, "fake", 130001, "", "fake", ""};
    int start_answer = 0, push_answer = 0, pop_answer = 0, stop_answer = 0;
    std::uint64_t drop_last = 0;  ///< ranges at the end of each pass that are returned without values
    int starts = 0, stops = 0, closes = 0, opens = 0;
    std::size_t room = 0, max_seen = 0;
    bool misused = false;

    CuptiProbe probe() override { return open_answer; }
    int passes(const std::string&, std::span<const char* const>, std::string&) override { return 1; }
    CuptiProbe open(std::span<const char* const> wanted, std::size_t max_ranges) override {
        ++opens;
        counters = wanted.size();
        room = max_ranges;
        return open_answer;
    }
    int start() override {
        misused |= running;
        if (start_answer != 0) return start_answer;
        ++starts;
        running = true;
        names.clear();
        return 0;
    }
    int push(const char* name) override {
        misused |= !running || inside;
        if (push_answer != 0) return push_answer;
        misused |= names.size() >= room || std::find(names.begin(), names.end(), name) != names.end();
        names.emplace_back(name);
        max_seen = std::max(max_seen, names.size());
        inside = true;
        return 0;
    }
    int pop() override {
        misused |= !inside;
        inside = false;
        return pop_answer;
    }
    int stop(FunctionRef<void(std::string_view, std::span<const double>)> visit,
             std::uint64_t& dropped) override {
        misused |= !running || inside;
        ++stops;
        running = false;
        if (stop_answer != 0) return stop_answer;
        const std::size_t lost = std::min<std::size_t>(names.size(), drop_last);
        dropped += lost;
        // CUPTI returns counters in the order of the range tree, not of time.
        for (std::size_t i = names.size() - lost; i-- > 0;) {
            std::vector<double> values(counters);
            for (std::size_t c = 0; c < counters; ++c) values[c] = static_cast<double>(10 * (total + i) + c);
            visit(names[i], values);
        }
        total += names.size();
        return 0;
    }
    void close() override { ++closes; }
    std::string message(int code) override { return "code " + std::to_string(code); }

  private:
    std::vector<std::string> names;
    std::size_t counters = 0, total = 0;
    bool running = false, inside = false;
};

}  // namespace draftscope
