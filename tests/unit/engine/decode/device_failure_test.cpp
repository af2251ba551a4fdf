#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/device_rig.h"
#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/results.h"
#include "tests/support/round_fixture.h"
#include "tests/unit/storage/file_helpers.h"

/// Whole sessions on a GPU whose runtime fails at some call. A session ends with the error or with the right
/// text, and gives everything back.
namespace draftscope::testing {
namespace {

enum class Failing { call, work };

/// Decodes with a head that uses the side stream. The first run makes head and graphs, the second one meets
/// the failure.
class FailingSession {
  public:
    FailingSession() {
        set_fake_gpu({.schedule = FakeSchedule::random});
        exec_ = *open_fake_cuda();
        rounds_.emplace(*exec_, kernels::Precision::bf16);
        setting_.tree = "depth=1,topk=2,nodes=5";
        setting_.head = "microspec:wmax=9";
        setting_.max_new = 6;
        setting_ = rounds_->resolve(setting_);
    }
    /// Returns the session's error, or "no error", and the tokens.
    std::pair<std::string, std::vector<TokenId>> decode(RecordSink* sink = nullptr) {
        PromptList feed(prompts_);
        const Error error = rounds_->engine().run(setting_, feed, sink);
        return {error.message, feed.outcomes[0].tokens};
    }

  private:
    std::unique_ptr<kernels::Backend> exec_;
    std::optional<RoundFixture> rounds_;
    DecodeCase setting_;
    std::vector<std::vector<TokenId>> prompts_ = {{5, 1, 2, 8}};
};

/// Writes the records of a run that failed, as the program does, and checks the file. Its tokens are the
/// beginning of `text`. Returns their number.
std::size_t check_capture_of(std::vector<Record> records, const std::vector<TokenId>& text) {
    const ScratchFolder folder;
    RunRow run;
    run.id = 1;
    records.insert(records.begin(), RunStarted{run, nullptr, {}});
    records.push_back(RunEnded{1, RunEnd::error, ns_per_s, {}});
    write_all(folder.file("a.dscope"), records);
    const auto report = require(check_capture(folder.file("a.dscope")));
    EXPECT_THAT(report.findings, ::testing::IsEmpty()) << report.findings[0].what;
    const auto loaded = require(load_capture(folder.file("a.dscope")));
    EXPECT_EQ(loaded->rounds.size(), loaded->steps.size());
    std::vector<TokenId> tokens;
    for (const TokenRow& token : loaded->tokens) tokens.push_back(token.token_id);
    EXPECT_LE(tokens.size(), text.size());
    EXPECT_EQ(tokens,
              std::vector<TokenId>(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(tokens.size())));
    return tokens.size();
}

class DeviceFailure : public ::testing::TestWithParam<Failing> {};

TEST_P(DeviceFailure, EndsTheSessionOrLeavesItsText) {
    const auto count = [] {
        const FakeGpuUse use = fake_gpu_use();
        return GetParam() == Failing::call ? use.calls : use.work;
    };
    std::vector<TokenId> expected;
    long steps = 0;
    {
        FailingSession session;
        ASSERT_EQ(session.decode().first, "no error");
        const long before = count();
        expected = session.decode().second;
        steps = count() - before;
    }
    ASSERT_EQ(expected.size(), 6u);
    ASSERT_GT(steps, 100);
    int ended = 0, survived = 0;
    std::size_t kept = 0;
    for (long at = 0; at < steps; at += steps / 12) {
        {
            FailingSession session;
            ASSERT_EQ(session.decode().first, "no error");
            if (GetParam() == Failing::call)
                fail_fake_gpu_call(at);
            else
                fail_fake_gpu_work(at);
            RecordList records;
            const auto [error, tokens] = session.decode(&records);
            if (error == "no error") {
                EXPECT_EQ(tokens, expected) << at;
                const FakeGpuUse use = fake_gpu_use();
                // Ops that a capture rejects, or of which no graph can be made, are enqueued again without
                // it. Memory that cannot be asked about counts as not pinned. A mark that is lost loses a
                // time alone.
                const bool is_mark = use.failed_call == "cudaEventRecord";
                const bool is_graph =
                    use.failed_call == "cudaStreamEndCapture" || use.failed_call == "cudaGraphInstantiate";
                EXPECT_TRUE(GetParam() == Failing::work || use.failed_in_capture || is_mark || is_graph ||
                            use.failed_call == "cudaPointerGetAttributes")
                    << use.failed_call << " at " << at;
                survived += is_mark ? 0 : 1;
            } else {
                EXPECT_THAT(error, ::testing::ContainsRegex("the fake GPU refused|out of device memory"))
                    << at;
                EXPECT_THAT(error, ::testing::ContainsRegex("; restart the program|out of device memory"))
                    << at;
                kept += check_capture_of(records.take(), expected);
                ++ended;
            }
        }
        const FakeGpuUse use = fake_gpu_use();
        EXPECT_EQ(use.allocations + use.pinned + use.streams + use.events + use.executable_graphs, 0) << at;
        EXPECT_THAT(use.faults, ::testing::IsEmpty()) << at;
    }
    EXPECT_GT(ended, survived);
    EXPECT_GT(kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DeviceFailure, ::testing::Values(Failing::call, Failing::work),
                         [](const ::testing::TestParamInfo<Failing>& instance) {
                             return instance.param == Failing::call ? "call" : "work";
                         });

}  // namespace
}  // namespace draftscope::testing
