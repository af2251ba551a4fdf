#include <gtest/gtest.h>

#include "file_helpers.h"
#include "random_capture.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using testing::apply_all;
using testing::expect_equal;
using testing::RandomCapture;
using testing::ScratchFolder;

/// Notes on rounds that are added to a finished capture.
class RoundNote : public ::testing::Test {
  protected:
    const ScratchFolder folder_;
    const std::string path_ = folder_.file("a.dscope");
    const std::vector<Record> records_ = RandomCapture(2, {1, 2, 6, 1, true}).records();
    Snapshot expected_ = apply_all(records_);
    const RoundRow round_ = expected_.rounds[1].row;
    const NoteRow note_{round_.run_id, round_.id, 77, "bookmark: it's here"};
};

TEST_F(RoundNote, AddsOneRowAndChangesNothingElse) {
    testing::write_all(path_, records_);
    EXPECT_TRUE(require(add_round_note(path_, note_)));
    expected_.notes.push_back(note_);
    expect_equal(expected_, *require(load_capture(path_)));
    EXPECT_TRUE(require(check_capture(path_)).findings.empty());
    for (const char* suffix : {"-wal", "-shm", "-journal"})
        EXPECT_FALSE(std::filesystem::exists(path_ + suffix)) << suffix;
}

TEST_F(RoundNote, KeepsTheFilesOpenReaders) {
    testing::write_all(path_, records_);
    const auto open = require(load_capture(path_, 0));  // trees and spans stay in the file
    ASSERT_NE(open->stored, nullptr);
    EXPECT_TRUE(require(add_round_note(path_, note_)));
    EXPECT_EQ(open->tree(1)->nodes.size(), expected_.tree(1)->nodes.size());
    EXPECT_EQ(open->tree(1)->problem, "");
}

TEST_F(RoundNote, OfARoundThatTheFileLacksIsNotAdded) {
    testing::write_all(path_, records_);
    EXPECT_FALSE(require(add_round_note(path_, {round_.run_id, 99999, 0, "bookmark: "})));
    EXPECT_FALSE(require(add_round_note(path_, {round_.run_id + 1, round_.id, 0, "bookmark: "})));
    expect_equal(expected_, *require(load_capture(path_)));
}

TEST_F(RoundNote, RefusesFilesOfOthers) {
    auto writer = require(CaptureWriter::create(path_, false));
    for (const Record& record : records_) writer->push(record);
    ASSERT_TRUE(is_ok(writer->flush()));
    const auto recorded = add_round_note(path_, note_);
    ASSERT_FALSE(recorded.ok());
    EXPECT_EQ(recorded.error().message.find(path_ + ": is being recorded"), 0u) << recorded.error().message;
    ASSERT_TRUE(is_ok(writer->close()));
    EXPECT_TRUE(add_round_note(path_, note_).ok()) << "after its end";
    const std::string text = folder_.file("trace.json");
    testing::write_text(text, "{}");
    const auto other = add_round_note(text, note_);
    ASSERT_FALSE(other.ok());
    EXPECT_NE(other.error().message.find("save a copy as one"), std::string::npos) << other.error().message;
}

}  // namespace
}  // namespace draftscope
