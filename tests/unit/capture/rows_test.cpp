#include "capture/rows.h"

#include <gtest/gtest.h>

namespace draftscope {
namespace {

TEST(Rows, TextsMatchTheFileFormat) {
    EXPECT_EQ(to_text(RunEnd::live), "");
    EXPECT_EQ(to_text(RunEnd::recovered), "recovered");
    EXPECT_EQ(to_text(Finish::none), "");
    EXPECT_EQ(to_text(Finish::context), "context");
    EXPECT_EQ(to_text(Excluded::no), "");
    EXPECT_EQ(to_text(Excluded::shadow), "shadow");
    EXPECT_EQ(to_text(TokenSource::bonus), "bonus");
    EXPECT_EQ(to_text(HeadMode::calibration), "calibration");
}

template <typename Enum, typename From>
void expect_round_trip(std::initializer_list<Enum> values, From from) {
    for (const Enum value : values) EXPECT_EQ(from(to_text(value)), value) << to_text(value);
}

TEST(Rows, TextsParseToTheirValues) {
    expect_round_trip({RunEnd::live, RunEnd::ok, RunEnd::cancelled, RunEnd::error, RunEnd::recovered},
                      run_end_from);
    expect_round_trip({Finish::none, Finish::eos, Finish::length, Finish::context, Finish::cancelled},
                      finish_from);
    expect_round_trip({Excluded::no, Excluded::warmup, Excluded::paused, Excluded::shadow}, excluded_from);
    expect_round_trip({TokenSource::prefill, TokenSource::draft, TokenSource::bonus}, token_source_from);
    expect_round_trip({HeadMode::drive, HeadMode::selfpaced, HeadMode::aligned, HeadMode::calibration},
                      head_mode_from);
}

TEST(Rows, UnknownTextIsRejected) {
    EXPECT_EQ(run_end_from("OK"), std::nullopt);
    EXPECT_EQ(head_mode_from("drives"), std::nullopt);
    EXPECT_EQ(token_source_from(""), std::nullopt);
}

}  // namespace
}  // namespace draftscope
