#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "app/cli/tables.h"
#include "tests/support/capture_builder.h"

// The closing sentence of a run.
namespace draftscope::testing {
namespace {

constexpr TimeNs plain_step_ms = 5;

void add_run(CaptureBuilder& capture, const std::string& drafter, const std::vector<TimeNs>& step_ms,
             int committed) {
    RunRow run;
    run.drafter = drafter;
    run.tree = drafter == "none" ? "none" : "chain=3";
    capture.run(run);
    TimeNs now = 0;
    for (std::size_t i = 0; i < step_ms.size(); ++i) {
        PromptRow prompt;
        prompt.external_id = fmt::format("q{}", i);
        prompt.ordinal = static_cast<int>(i);
        capture.prompt(prompt);
        for (int step = 0; step < 20; ++step) {
            const TimeNs end = now + step_ms[i] * ns_per_ms;
            capture.step(now, end, {}, round_of(committed));
            now = end;
        }
    }
}

/// Returns the sentence of a run whose rounds commit two tokens, against a step of plain decoding per token
/// in the first conversations.
std::string finding(const std::vector<TimeNs>& step_ms, std::size_t plain_conversations = 8) {
    CaptureBuilder capture;
    add_run(capture, "eagle3", step_ms, 2);
    if (plain_conversations > 0)
        add_run(capture, "none", std::vector(std::min(plain_conversations, step_ms.size()), plain_step_ms),
                1);
    return cli::finding_text(capture.snapshot(), 1);
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts,
                  const std::vector<std::string>& absent) {
    for (const std::string& part : parts)
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    for (const std::string& part : absent)
        EXPECT_EQ(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Finding, AnIntervalAroundOneShowsNoDifferenceAndNothingElse) {
    expect_parts(finding({8, 14, 8, 14, 8, 14, 8, 14}),
                 {"0.91x", "which shows no difference", "8 conversations"}, {"drafting cost more"});
}

TEST(Finding, AnIntervalBelowOneSaysThatDraftingCostMore) {
    expect_parts(finding({19, 21, 19, 21, 19, 21, 19, 21}), {"0.50x", "drafting cost more than it saved"},
                 {"no difference"});
}

TEST(Finding, OneConversationHasNoVerdict) {
    expect_parts(finding({14}), {"0.71x as fast as plain decoding on this prompt", "so no interval"},
                 {"drafting cost more", "no difference"});
}

TEST(Finding, ABaselineOfOneConversationOfManySaysSo) {
    expect_parts(finding({14, 8, 14}, 1),
                 {"as fast as plain decoding on its first conversation", "so no interval"},
                 {"on this prompt"});
}

TEST(Finding, WithoutABaselineSaysHowToGetIt) {
    expect_parts(finding({14}, 0), {"reached", "run --baseline N compares with plain decoding"},
                 {"x as fast"});
}

}  // namespace
}  // namespace draftscope::testing
