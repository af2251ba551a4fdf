#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/did_you_mean.h"
#include "base/function_ref.h"
#include "base/log.h"
#include "base/python_wheels.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/spans.h"
#include "base/units.h"
#include "base/user_folders.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

Result<int> half(int x) {
    if (x % 2 != 0) return bad_input("half: {} is odd", x);
    return x / 2;
}

Result<int> quarter(int x) {
    DS_ASSIGN(const int h, half(x));
    return half(h);
}

TEST(DidYouMean, FindsSimilarNames) {
    constexpr std::string_view known[] = {"full", "fr-spec", "specvocab", "slimspec"};
    EXPECT_EQ(closest_name("frspec", known), "fr-spec");
    EXPECT_EQ(closest_name("sepcvocab", known), "specvocab");  // a swap is one edit
    EXPECT_EQ(closest_name("ful", known), "full");
    EXPECT_EQ(closest_name("oracle", known), "");
    EXPECT_EQ(closest_name("x", known), "");
    EXPECT_EQ(did_you_mean("slimspc", known), "; did you mean slimspec?");
    EXPECT_EQ(did_you_mean("", known), "");
}

TEST(UserFolders, HomeFallsBackToTheUserDatabase) {
    const char* before = std::getenv("HOME");
    const std::string kept = before != nullptr ? before : "";
    setenv("HOME", "/somewhere", 1);
    EXPECT_EQ(home_folder(), "/somewhere");
    const std::string database = getpwuid(getuid())->pw_dir;
    setenv("HOME", "", 1);
    EXPECT_EQ(home_folder(), database);
    unsetenv("HOME");
    EXPECT_EQ(home_folder(), database);
    if (before != nullptr) setenv("HOME", kept.c_str(), 1);
}

TEST(Result, PropagatesValuesAndErrors) {
    EXPECT_EQ(*quarter(12), 3);
    const auto wrong = quarter(6);
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(wrong.error().message, "half: 3 is odd");
}

/// A virtual environment whose python3 links to the base installation, and another python3 later on PATH.
TEST(PythonWheels, FindsLibrariesOfTheFirstPython) {
    namespace fs = std::filesystem;
    const testing::ScratchFolder folder;
    const auto make = [&](const std::string& name) {
        const fs::path path = folder.file(name);
        fs::create_directories(path.parent_path());
        std::ofstream(path) << "x";
        return path.string();
    };
    make("base/bin/python3");
    make("last/bin/python3");
    fs::create_directories(folder.file("env/bin"));
    fs::create_directories(folder.file("empty"));
    fs::create_symlink("../../base/bin/python3", folder.file("env/bin/python3"));
    const std::string packages = "/lib/python3.12/site-packages/";
    const std::string in_env = make("env" + packages + "nvidia/cu13/lib/libcupti.so.13");
    const std::string in_base = make("base/lib/python3/dist-packages/nvidia/cuda_cupti/lib/libcupti.so.13");
    const std::string triton = make("env" + packages + "triton/backends/nvidia/lib/cupti/libcupti.so.13");
    make("env" + packages + "nvidia/cu13/lib/libcupti.so.12");
    make("last" + packages + "nvidia/cu13/lib/libcupti.so.13");
    const std::string before = std::getenv("PATH");
    ::setenv("PATH",
             (folder.file("empty") + ":" + folder.file("env/bin") + ":" + folder.file("last/bin")).c_str(),
             1);
    const std::vector<std::string> found = wheel_libraries("libcupti.so.13");
    ::setenv("PATH", folder.file("empty").c_str(), 1);
    const std::vector<std::string> nowhere = wheel_libraries("libcupti.so.13");
    ::setenv("PATH", before.c_str(), 1);
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0], in_env);
    EXPECT_EQ(fs::canonical(found[1]).string(), fs::canonical(in_base).string());
    EXPECT_EQ(found[2], triton);
    EXPECT_TRUE(nowhere.empty());
}

TEST(SaturatingTime, ClampsAtTheLimits) {
    constexpr TimeNs max_time = std::numeric_limits<TimeNs>::max(),
                     min_time = std::numeric_limits<TimeNs>::min();
    EXPECT_EQ(saturating_sum(3, -5), -2);
    EXPECT_EQ(saturating_sum(max_time, 1), max_time);
    EXPECT_EQ(saturating_sum(-1, min_time), min_time);
    EXPECT_EQ(saturating_sum(max_time, min_time), -1);
    EXPECT_EQ(saturating_difference(3, -5), -8);
    EXPECT_EQ(saturating_difference(-1, max_time), max_time);
    EXPECT_EQ(saturating_difference(min_time, 0), max_time);
    EXPECT_EQ(saturating_difference(1, min_time), min_time);
    EXPECT_EQ(saturating_difference(min_time, min_time), 0);
}

// Known-answer vectors of the Random123 distribution for philox4x32-10.
TEST(Rng, MatchesPhiloxKnownAnswers) {
    EXPECT_EQ(philox(0, 0, 0),
              (std::array<std::uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
    EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
              (std::array<std::uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
}

TEST(Rng, UniformIsUniform) {
    double sum = 0;
    double squares = 0;
    constexpr int n = 100'000;
    for (int i = 0; i < n; ++i) {
        const double u = token_uniform(7, 3, static_cast<std::uint64_t>(i));
        ASSERT_GE(u, 0.0);
        ASSERT_LT(u, 1.0);
        sum += u;
        squares += u * u;
    }
    EXPECT_NEAR(sum / n, 0.5, 0.005);
    EXPECT_NEAR(squares / n - 0.25, 1.0 / 12.0, 0.005);
    EXPECT_NE(token_uniform(7, 3, 5), token_uniform(7, 4, 5));
    EXPECT_NE(token_uniform(7, 3, 5), token_uniform(8, 3, 5));
}

TEST(Clock, TicksFollowTheMonotonicClock) {
    const TickScale& scale = TickScale::calibrate();
    const TimeNs before = monotonic_ns();
    const TimeNs ticks = scale.to_monotonic_ns(ticks_now());
    const TimeNs after = monotonic_ns();
    EXPECT_GT(ticks, before - ns_per_ms);
    EXPECT_LT(ticks, after + ns_per_ms);
}

TEST(Clock, WritesUtc) {
    EXPECT_STREQ(utc_text(1'700'000'000 * ns_per_s).text, "2023-11-14T22:13:20Z");
}

TEST(Spans, SliceKeepsTheStride) {
    int values[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const Rows<int> wide(values, 3, 2, 4);
    EXPECT_EQ(wide.row(1)[1], 5);
    EXPECT_EQ(wide.slice(2, 1).row(0)[0], 8);
}

TEST(FunctionRef, CallsTheOriginal) {
    int total = 0;
    const auto add = [&total](int x) { total += x; };
    const FunctionRef<void(int)> ref = add;
    ref(3);
    ref(4);
    EXPECT_EQ(total, 7);
}

TEST(Log, KeepsLinesForThePanel) {
    std::size_t next = 0;
    log_since(0, &next);
    log_warning("something {}", 42);
    const auto lines = log_since(next, &next);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0].text, "something 42");
    EXPECT_TRUE(log_since(next, &next).empty());
}

/// A folder in place of / with files of control groups.
struct GroupFiles {
    void write(const std::string& name, const std::string& text) const {
        const std::filesystem::path path = folder.path() + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    testing::ScratchFolder folder;
};

TEST(ControlGroup, HasTheSmallestLimitOfItsGroups) {
    const GroupFiles files;
    files.write("/proc/self/cgroup", "0::/user/job\n");
    const auto read = [&] { return read_control_group(files.folder.path()); };
    EXPECT_FALSE(read().cpus);
    EXPECT_FALSE(read().free_memory);
    files.write("/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    files.write("/sys/fs/cgroup/user/job/memory.max", "max\n");
    files.write("/sys/fs/cgroup/user/job/memory.current", "5000\n");
    EXPECT_FALSE(read().cpus);
    EXPECT_FALSE(read().free_memory);
    files.write("/sys/fs/cgroup/user/cpu.max", "150000 100000\n");
    files.write("/sys/fs/cgroup/user/memory.max", "20000\n");
    files.write("/sys/fs/cgroup/user/memory.current", "9000\n");
    EXPECT_EQ(read().cpus, 1.5);
    EXPECT_EQ(read().free_memory, 11000u);
    files.write("/sys/fs/cgroup/user/job/memory.high", "8000\n");
    files.write("/sys/fs/cgroup/user/job/memory.stat", "anon 2500\ninactive_file 1500\nactive_file 1000\n");
    EXPECT_EQ(read().free_memory, 5500u) << "the page cache can be freed";
    files.write("/sys/fs/cgroup/user/job/memory.current", "90000\n");
    EXPECT_EQ(read().free_memory, 0u);
}

TEST(ControlGroup, IsThatOfTheContainerIfItsPathIsElsewhere) {
    const GroupFiles files;
    files.write("/proc/self/cgroup", "0::/docker/abc\n");
    files.write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    EXPECT_EQ(read_control_group(files.folder.path()).cpus, 0.5);
}

TEST(ControlGroup, HasVersionOne) {
    const GroupFiles files;
    files.write("/proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/\n0::/\n");
    const std::string cpu = "/sys/fs/cgroup/cpu,cpuacct/a/", memory = "/sys/fs/cgroup/memory/a/";
    files.write(cpu + "cpu.cfs_quota_us", "-1\n");
    files.write(cpu + "cpu.cfs_period_us", "100000\n");
    EXPECT_FALSE(read_control_group(files.folder.path()).cpus);
    files.write(cpu + "cpu.cfs_quota_us", "250000\n");
    files.write(memory + "memory.limit_in_bytes", "7000\n");
    files.write(memory + "memory.usage_in_bytes", "4000\n");
    files.write(memory + "memory.stat", "inactive_file 5\ntotal_inactive_file 100\ntotal_active_file 200\n");
    EXPECT_EQ(read_control_group(files.folder.path()).cpus, 2.5);
    EXPECT_EQ(read_control_group(files.folder.path()).free_memory, 3300u);
}

TEST(DefaultThreads, AreAtLeastOneAndAtMostTheCpus) {
    EXPECT_GE(default_threads(), 1);
    EXPECT_LE(default_threads(), usable_cores());
    EXPECT_EQ(thread_limit_notes(0).empty(),
              !read_control_group().cpus || *read_control_group().cpus >= usable_cores());
}

}  // namespace
}  // namespace draftscope
