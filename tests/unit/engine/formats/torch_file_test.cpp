#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>

#include "engine/formats/model_file.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using ::testing::HasSubstr;

const std::string drafters = std::string(DS_SOURCE_DIR) + "/tests/golden/drafters";

class TorchFiles : public ::testing::Test {
  protected:
    std::string open_error(const std::string& bytes) {
        const std::string path = scratch_.file("x.bin");
        std::ofstream(path, std::ios::binary) << bytes;
        const auto opened = open_torch_file(path);
        EXPECT_FALSE(opened.ok());
        if (opened.ok()) return {};
        EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
        return opened.error().message;
    }
    /// Returns the checkpoint with `from`, which it must contain, replaced.
    std::string changed(const std::string& from, const std::string& to) {
        std::string bytes = original_;
        const std::size_t at = bytes.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        if (at != std::string::npos) bytes.replace(at, from.size(), to);
        return bytes;
    }

    const std::string original_ = testing::read_text(drafters + "/eagle3_official/pytorch_model.bin");
    testing::ScratchFolder scratch_;
};

TEST_F(TorchFiles, MatchTheSafetensorsFileOfTheSameWeights) {
    const auto torch = open_tensor_file(drafters + "/eagle3_official/pytorch_model.bin");
    const auto plain = open_tensor_file(drafters + "/eagle3_safetensors/model.safetensors");
    ASSERT_TRUE(is_ok(torch));
    ASSERT_TRUE(is_ok(plain));
    ASSERT_EQ((*torch)->names(), (*plain)->names());
    for (const std::string& name : (*plain)->names()) {
        const TensorInfo& found = *(*torch)->find(name);
        const TensorInfo& expected = *(*plain)->find(name);
        EXPECT_EQ(found.type, expected.type) << name;
        EXPECT_EQ(found.shape, expected.shape) << name;
        std::vector<float> a(static_cast<std::size_t>(found.cols())), b(a.size());
        for (std::int64_t row = 0; row < found.rows(); ++row) {
            (*torch)->read_row(found, row, a.data());
            (*plain)->read_row(expected, row, b.data());
            ASSERT_EQ(a, b) << name << " row " << row;
        }
    }
    EXPECT_EQ(*(*torch)->read_integers("d2t"), *(*plain)->read_integers("d2t"));
}

TEST_F(TorchFiles, ReadAListOfNumbersAsTensorIds) {
    const auto ranking = require(open_tensor_file(drafters + "/freq_4.pt"));
    EXPECT_EQ(*ranking->read_integers("ids"), (std::vector<std::int64_t>{5, 3, 200, 7}));
}

TEST_F(TorchFiles, CodeIsNeverRun) {
    // A pickle can name any callable. All except those that rebuild tensors are rejected without being
    // called.
    EXPECT_THAT(open_error(changed("torch._utils\n_rebuild_tensor_v2", "os_module.xx\n_system_of_a_shell")),
                HasSubstr("creates a 'os_module.xx _system_of_a_shell', which is not supported"));
    EXPECT_THAT(open_error(changed("collections\nOrderedDict", "collections\nOrderedDicx")),
                HasSubstr("'collections OrderedDicx'"));
    EXPECT_THAT(open_error(changed("FloatStorage", "ComplStorage")), HasSubstr("'torch ComplStorage'"));
}

TEST_F(TorchFiles, ReportDamage) {
    EXPECT_THAT(open_error(original_.substr(0, original_.size() - 200)), HasSubstr("no directory"));
    EXPECT_THAT(open_error("PK\x03\x04"), HasSubstr("no directory"));
    const std::string path = scratch_.file("old.bin");
    std::ofstream(path, std::ios::binary) << "\x80\x02\x8a\x0a" << std::string(40, 'l');
    const auto old = open_tensor_file(path);
    ASSERT_FALSE(old.ok());
    EXPECT_THAT(old.error().message, HasSubstr("older than 1.6"));
    EXPECT_THAT(old.error().message, HasSubstr("s.save_file(torch.load("));
}

TEST_F(TorchFiles, SurviveAnyDamagedByte) {
    // Randomly damages bytes of the pickle and the directory; reading returns an error or tensors inside the
    // file.
    std::mt19937 rng(5);
    const std::string small = testing::read_text(drafters + "/freq_4.pt");
    for (const std::string* source : {&original_, &small}) {
        for (int round = 0; round < 1500; ++round) {
            std::string bytes = *source;
            for (int flips = 1 + static_cast<int>(rng() % 3); flips > 0; --flips) {
                const std::size_t span = std::min<std::size_t>(bytes.size(), 6000);
                std::size_t at = rng() % span;
                if (rng() % 2 == 0) at = bytes.size() - 1 - at;
                bytes[at] = static_cast<char>(rng());
            }
            const std::string path = scratch_.file("fuzz.bin");
            std::ofstream(path, std::ios::binary) << bytes;
            const auto opened = open_torch_file(path);
            if (!opened.ok()) {
                EXPECT_EQ(opened.error().kind, ErrorKind::bad_input);
                continue;
            }
            for (const std::string& name : (*opened)->names()) {
                const TensorInfo& info = *(*opened)->find(name);
                if (info.cols() > (1 << 20)) continue;
                std::vector<float> row(static_cast<std::size_t>(info.cols()));
                if (info.rows() > 0) (*opened)->read_row(info, info.rows() - 1, row.data());
            }
        }
    }
}

}  // namespace
}  // namespace draftscope
