#include "engine/heads/side_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace draftscope {
namespace {

class SideStreams : public ::testing::Test {
  protected:
    std::vector<SpanEvent> drain() {
        std::vector<SpanEvent> events;
        phases_.drain(events);
        return events;
    }
    std::unique_ptr<kernels::Backend> exec_ = kernels::make_cpu_backend(2);
    PhaseRecorder phases_;
    HeadContext context_{*exec_, phases_, 3};
};

TEST_F(SideStreams, RunsJobsInOrderAndRecordsThemOnWait) {
    SideStream lane(*exec_, Phase::router);
    phases_.set_round(9);
    std::vector<int> order;
    const std::thread::id caller = std::this_thread::get_id();
    const auto note = [&](int i) {
        return [&, i](kernels::Backend& exec) {
            EXPECT_EQ(exec.pool().isa(), exec_->pool().isa());
            // On the stream's thread with its own worker, or on this thread with the pool's workers.
            EXPECT_EQ(exec.pool().threads(), std::this_thread::get_id() == caller ? 2 : 1);
            order.push_back(i);
            return static_cast<std::uint64_t>(100 + i);
        };
    };
    SideStream::Ticket last = 0;
    for (int i = 0; i < 50; ++i) last = lane.start(context_, i, note(i));
    lane.wait(context_, last);
    std::vector<int> expected;
    for (int i = 0; i < 50; ++i) expected.push_back(i);
    EXPECT_EQ(order, expected);
    std::uint64_t bytes = 0, expected_bytes = 0;
    for (const SpanEvent& event : drain()) {
        EXPECT_EQ(event.phase, Phase::router);
        EXPECT_EQ(event.level, 3);
        EXPECT_EQ(event.round, 9);
        EXPECT_LE(event.start_ticks, event.end_ticks);
        EXPECT_EQ(event.worker, event.lane == Lane::side ? 1 : 0);
        bytes += event.bytes;
    }
    for (int i = 0; i < 50; ++i) expected_bytes += static_cast<std::uint64_t>(100 + i);
    EXPECT_EQ(bytes, expected_bytes);
}

TEST_F(SideStreams, OnlyWaitingIsOnTheCriticalLane) {
    SideStream lane(*exec_, Phase::gather);
    std::atomic<bool> begun{false}, go{false};
    const auto ticket = lane.start(context_, 1, [&](kernels::Backend&) {
        begun = true;
        while (!go) std::this_thread::yield();
        return std::uint64_t{0};
    });
    while (!begun) std::this_thread::yield();  // from here on the stream's thread runs it
    std::thread opener([&] { go = true; });
    lane.wait(context_, ticket);
    opener.join();
    int waits = 0, work = 0;
    SpanEvent wait, side;
    for (const SpanEvent& event : drain()) {
        (event.lane == Lane::critical ? waits : work) += 1;
        (event.lane == Lane::critical ? wait : side) = event;
    }
    EXPECT_EQ(work, 1);
    EXPECT_LE(waits, 1);
    if (waits == 1) {
        EXPECT_GE(wait.end_ticks, side.end_ticks);
    }
    // Finished work causes no wait.
    std::atomic<bool> done{false};
    const auto quick = lane.start(context_, 1, [&](kernels::Backend&) {
        done = true;
        return std::uint64_t{0};
    });
    while (!done) std::this_thread::yield();
    lane.wait_discard(quick);
    lane.wait(context_, quick);
    lane.wait(context_, 0);
    EXPECT_TRUE(drain().empty());
}

TEST_F(SideStreams, FinishesJobsBeforeDestruction) {
    int done = 0;
    {
        SideStream lane(*exec_, Phase::gather);
        for (int i = 0; i < 20; ++i)
            lane.start(context_, 1, [&](kernels::Backend&) {
                ++done;
                return std::uint64_t{0};
            });
    }
    EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace draftscope
