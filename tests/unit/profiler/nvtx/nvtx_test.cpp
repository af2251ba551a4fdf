#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "profiler/nvtx/nvtx_mirror.h"

// Our static injection is the listener in these tests: no GPU, driver or tool is needed.
namespace draftscope {
namespace {

bool external_tool_wanted() {
    const char* path = std::getenv("NVTX_INJECTION64_PATH");
    return path != nullptr && *path != '\0';
}

// Records a round as the engine does: nested children, early close, several levels.
void play_round(PhaseRecorder& recorder, int round) {
    recorder.set_round(round);
    for (int level = 0; level < 3; ++level) {
        { PhaseScope backbone(recorder, Phase::backbone, level, 4, 1000); }
        { PhaseScope head(recorder, Phase::head, level); }
        {
            PhaseScope topk(recorder, Phase::topk, level);
            { PhaseScope softmax(recorder, Phase::softmax, level); }
        }
        PhaseScope gather(recorder, Phase::gather, level);
        PhaseScope remap(recorder, Phase::remap, level);
        remap.close();
    }
    PhaseScope verify(recorder, Phase::verify);
}

TEST(Nvtx, InjectionReceivesTheRingsRanges) {
    if (external_tool_wanted()) return;  // runs as the child of YieldsToAnExternalTool
    NvtxMirror mirror;
    ASSERT_TRUE(mirror.attached());
    PhaseRecorder recorder;
    recorder.set_range_sink(&mirror);
    nvtx_capture_start();
    recorder.set_round(-1);
    { PhaseScope prefill(recorder, Phase::prefill); }
    for (int round = 0; round < 5; ++round) play_round(recorder, round);
    nvtx_capture_stop();
    play_round(recorder, 5);  // after the stop: recorded in the ring only

    std::vector<SpanEvent> ring;
    recorder.drain(ring);
    const std::vector<NvtxRange> seen = nvtx_capture_take();
    ASSERT_EQ(seen.size(), 1u + 5u * 19u);
    ASSERT_EQ(ring.size(), seen.size() + 19u);
    for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_EQ(seen[i].domain, "draftscope");
        EXPECT_EQ(seen[i].name, to_text(ring[i].phase)) << i;
        EXPECT_EQ(seen[i].depth, ring[i].depth) << i;
        EXPECT_EQ(seen[i].payload, nvtx_payload(ring[i].round, ring[i].level)) << i;
        EXPECT_LE(seen[i].start_ns, seen[i].end_ns) << i;
        EXPECT_EQ(seen[i].thread_id, static_cast<std::uint32_t>(gettid()));
    }
    EXPECT_TRUE(nvtx_capture_take().empty());
}

TEST(Nvtx, RangesAndRingAgreeInTime) {
    if (external_tool_wanted()) return;
    NvtxMirror mirror;
    PhaseRecorder recorder;
    recorder.set_range_sink(&mirror);
    nvtx_capture_start();
    { PhaseScope scope(recorder, Phase::verify); }
    nvtx_capture_stop();
    std::vector<SpanEvent> ring;
    recorder.drain(ring);
    const std::vector<NvtxRange> seen = nvtx_capture_take();
    ASSERT_EQ(seen.size(), 1u);
    // The mirror opens before and closes after the ring's clock reads. The tolerance of 1 ms is for the
    // scales' error.
    const TickScale& scale = TickScale::calibrate();
    EXPECT_LE(seen[0].start_ns, scale.to_monotonic_ns(ring[0].start_ticks) + ns_per_ms);
    EXPECT_GE(seen[0].end_ns, scale.to_monotonic_ns(ring[0].end_ticks) - ns_per_ms);
}

TEST(Nvtx, ThreadsHaveSeparateStacks) {
    if (external_tool_wanted()) return;
    nvtx_capture_start();
    const auto work = [] {
        NvtxMirror mirror;
        PhaseRecorder recorder;
        recorder.set_range_sink(&mirror);
        for (int i = 0; i < 100; ++i) play_round(recorder, i);
    };
    std::thread a(work), b(work);
    a.join();
    b.join();
    nvtx_capture_stop();
    int max_depth = 0;
    const auto seen = nvtx_capture_take();
    EXPECT_EQ(seen.size(), 2u * 100u * 19u);
    for (const NvtxRange& range : seen) max_depth = std::max(max_depth, range.depth);
    EXPECT_EQ(max_depth, 1);
}

TEST(Nvtx, ListenerNameTellsWhoListens) {
    if (external_tool_wanted()) {
        EXPECT_EQ(nvtx_listener_name(), "none (NVTX_INJECTION64_PATH did not load)");
        NvtxMirror mirror;
        EXPECT_FALSE(mirror.attached());
        PhaseRecorder recorder;
        recorder.set_range_sink(&mirror);
        nvtx_capture_start();
        play_round(recorder, 0);
        EXPECT_TRUE(nvtx_capture_take().empty());
        return;
    }
    EXPECT_EQ(nvtx_listener_name(), "our injection");
}

/// Runs one test of this program in a child process with NVTX_INJECTION64_PATH set to `library`.
std::string in_child(const std::string& library, const std::string& test) {
    std::array<char, 4096> self{};
    EXPECT_GT(readlink("/proc/self/exe", self.data(), self.size() - 1), 0);
    const std::string command = "DS_NVTX_CHILD=1 NVTX_INJECTION64_PATH='" + library + "' '" +
                                std::string(self.data()) + "' --gtest_filter=" + test + " 2>&1";
    FILE* child = popen(command.c_str(), "r");
    if (child == nullptr) return "no child";
    std::string output;
    std::array<char, 512> chunk{};
    while (fgets(chunk.data(), chunk.size(), child) != nullptr) output += chunk.data();
    EXPECT_EQ(pclose(child), 0) << output;
    EXPECT_NE(output.find("[  PASSED  ] 1 test"), std::string::npos) << output;
    return output;
}

// The loader looks for a tool once per process, so a child process gets the path of one (that does not load).
TEST(Nvtx, YieldsToAnExternalTool) {
    if (external_tool_wanted()) return;
    in_child("/nonexistent/libtool.so", "Nvtx.ListenerNameTellsWhoListens");
}

// Runs as the child of AToolGetsCategoriesAndExtendedPayloads.
TEST(Nvtx, PlaysARoundForATool) {
    if (!external_tool_wanted()) return;
    NvtxMirror mirror;
    EXPECT_TRUE(nvtx_tool_listens());
    EXPECT_EQ(nvtx_listener_name(), "external tool (NVTX_INJECTION64_PATH)");
    PhaseRecorder recorder;
    recorder.set_range_sink(&mirror);
    recorder.set_round(41);
    PhaseScope topk(recorder, Phase::topk, 3, 5, 6000000000);
    PhaseScope softmax(recorder, Phase::softmax, 3);
}

TEST(Nvtx, AToolGetsCategoriesAndExtendedPayloads) {
    if (external_tool_wanted()) return;
    const std::string output = in_child(DS_NVTX_TOOL, "Nvtx.PlaysARoundForATool");
    for (const char* line :
         {"schema draftscope phase of 24 bytes\n", "category 4 head\n", "category 10 verify\n",
          "push draftscope/topk category 5 round=41 level=3 rows=5 bytes=6000000000\n",
          "push draftscope/softmax category 6 round=41 level=3 rows=0 bytes=0\npop\npop\n"})
        EXPECT_NE(output.find(line), std::string::npos) << line << "in:\n" << output;
}

// Runs as the child of RangesOfASharedLibraryAreSeenUnderItsDomain; NVTX_INJECTION64_PATH is our own library.
TEST(Nvtx, ListensToALibrary) {
    if (std::getenv("DS_NVTX_CHILD") == nullptr) return;
    void* library = dlopen(DS_NVTX_FOREIGN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto work = reinterpret_cast<void (*)(int)>(dlsym(library, "foreign_work"));
    ASSERT_NE(work, nullptr);
    EXPECT_EQ(nvtx_listener_name(), "our injection");
    nvtx_capture_start();
    NvtxMirror mirror;  // our own ranges still arrive, in addition to the library's
    PhaseRecorder recorder;
    recorder.set_range_sink(&mirror);
    {
        PhaseScope verify(recorder, Phase::verify);
        work(2);
    }
    nvtx_capture_stop();
    std::vector<std::string> seen;
    for (const NvtxRange& range : nvtx_capture_take()) {
        seen.push_back(range.domain + "|" + range.name + "|" + std::to_string(range.payload));
        EXPECT_LE(range.start_ns, range.end_ns);
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"|inner|0", "foreign library|gemm|0", "|inner|0",
                                              "foreign library|gemm|1", "|a mark|0", "|gr\u00f6\u00dfer|0",
                                              "draftscope|verify|" + std::to_string(nvtx_payload(-1, 0))}));
}

TEST(Nvtx, RangesOfASharedLibraryAreSeenUnderItsDomain) {
    if (external_tool_wanted()) return;
    in_child(DS_NVTX_LIBRARY, "Nvtx.ListensToALibrary");
}

TEST(Nvtx, TheVariableIsSetForLibrariesOnlyWhenNoToolHasIt) {
    if (external_tool_wanted()) return;
    nvtx_listen_to_libraries("/nonexistent/libdraftscope_nvtx.so");
    EXPECT_EQ(std::getenv("NVTX_INJECTION64_PATH"), nullptr);
    setenv("NVTX_INJECTION64_PATH", "/some/tool.so", 1);
    nvtx_listen_to_libraries(DS_NVTX_LIBRARY);
    EXPECT_STREQ(std::getenv("NVTX_INJECTION64_PATH"), "/some/tool.so");
    unsetenv("NVTX_INJECTION64_PATH");
    nvtx_listen_to_libraries(DS_NVTX_LIBRARY);
    EXPECT_STREQ(std::getenv("NVTX_INJECTION64_PATH"), DS_NVTX_LIBRARY);
    unsetenv("NVTX_INJECTION64_PATH");
}

}  // namespace
}  // namespace draftscope
