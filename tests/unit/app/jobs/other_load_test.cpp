#include "app/jobs/profile/other_load.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

namespace draftscope {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto interval = std::chrono::milliseconds(300);

TEST(OtherLoad, CountsTheTimeOfAnotherProcess) {
    const OtherLoad load;
    const pid_t child = fork();
    if (child == 0) {
        for (const auto end = Clock::now() + 10 * interval; Clock::now() < end;) continue;
        _exit(0);
    }
    std::this_thread::sleep_for(interval);
    // The child computes as long as the CPUs are not all taken, and then others are counted instead.
    EXPECT_GT(load.cpus(), 0.5);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

TEST(OtherLoad, LeavesOutItsOwnProcess) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const OtherLoad load;
    const std::clock_t begin = std::clock();
    for (const auto end = Clock::now() + interval; Clock::now() < end;) continue;
    const double own = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / 0.3;
    EXPECT_LE(load.cpus() + own, cores + 0.3);
}

}  // namespace
}  // namespace draftscope
