#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/formats/model_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/results.h"
#include "tests/support/scratch_folder.h"

namespace draftscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::raw_bytes;
using ::testing::StartsWith;

std::string scratch(const std::string& name) {
    static const testing::ScratchFolder folder;
    return folder.file(name);
}

std::string file_bytes(const std::string& header, const std::string& data) {
    return raw_bytes<std::uint64_t>(header.size()) + header + data;
}

Result<std::unique_ptr<WeightSource>> open_bytes(const std::string& bytes) {
    const std::string path = scratch("case.safetensors");
    EXPECT_TRUE(testing::write_file(path, bytes).ok());
    return open_safetensors(path);
}

std::string refused(const std::string& bytes) {
    const auto file = open_bytes(bytes);
    EXPECT_FALSE(file.ok());
    if (file.ok()) return "";
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(file.error().message, StartsWith(scratch("case.safetensors") + ": "));
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
    return file.error().message;
}

std::vector<float> read_row_values(const WeightSource& file, const std::string& name, std::int64_t row) {
    std::vector<float> out(static_cast<std::size_t>(file.find(name)->cols()));
    file.read_row(*file.find(name), row, out.data());
    return out;
}

/// Tensors of several types and odd sizes, so that most are unaligned.
std::string sample() {
    const std::string data =
        raw_bytes<std::uint8_t>(1) + raw_bytes(1.5f) + raw_bytes(-2.0f) + raw_bytes<std::uint16_t>(0x3c00) +
        raw_bytes<std::uint16_t>(0xc000) + raw_bytes<std::uint16_t>(0x3f80) +
        raw_bytes<std::int64_t>((std::int64_t{1} << 40) + 1) + raw_bytes<std::int64_t>(-7) +
        raw_bytes<std::int32_t>(16777217) + raw_bytes<std::int32_t>(5) + raw_bytes<std::uint16_t>(65535) +
        raw_bytes<std::uint16_t>(7);
    return file_bytes(R"({"__metadata__":{"head":"slimspec","rank":"72"},)"
                      R"("flag":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                      R"("w":{"dtype":"F32","shape":[2,1],"data_offsets":[1,9]},)"
                      R"("h":{"dtype":"F16","shape":[1,2],"data_offsets":[9,13]},)"
                      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[13,15]},)"
                      R"("ids":{"dtype":"I64","shape":[2],"data_offsets":[15,31]},)"
                      R"("small":{"dtype":"I32","shape":[2],"data_offsets":[31,39]},)"
                      R"("tokens":{"dtype":"U16","shape":[1,2],"data_offsets":[39,43]},)"
                      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[43,43]}}   )",
                      data);
}

TEST(Safetensors, TensorsAndMetadataAreRead) {
    const auto opened = require(open_bytes(sample()));
    const WeightSource& file = *opened;
    EXPECT_EQ(file.names(),
              (std::vector<std::string>{"b", "flag", "h", "ids", "none", "small", "tokens", "w"}));
    EXPECT_EQ(file.metadata("head"), "slimspec");
    EXPECT_EQ(file.metadata("rank"), "72");
    EXPECT_EQ(file.metadata("absent"), "");
    EXPECT_EQ(file.find("w")->shape, (std::vector<std::int64_t>{2, 1}));
    EXPECT_EQ(read_row_values(file, "w", 0), (std::vector<float>{1.5f}));
    EXPECT_EQ(read_row_values(file, "w", 1), (std::vector<float>{-2.0f}));
    EXPECT_EQ(read_row_values(file, "h", 0), (std::vector<float>{1.0f, -2.0f}));
    EXPECT_EQ(read_row_values(file, "b", 0), (std::vector<float>{1.0f}));
    EXPECT_EQ(read_row_values(file, "small", 0), (std::vector<float>{16777216.0f, 5.0f}));
    EXPECT_EQ(file.find("none")->rows(), 0);
    EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, IntegersAreReadExactly) {
    const auto opened = require(open_bytes(sample()));
    const WeightSource& file = *opened;
    using Values = std::vector<std::int64_t>;
    EXPECT_EQ(*file.read_integers("ids"), (Values{(std::int64_t{1} << 40) + 1, -7}));
    EXPECT_EQ(*file.read_integers("small"), (Values{16777217, 5}));
    EXPECT_EQ(*file.read_integers("tokens"), (Values{65535, 7}));
    EXPECT_EQ(read_row_values(file, "tokens", 0), (std::vector<float>{65535.0f, 7.0f}));
    EXPECT_EQ(*file.read_integers("flag"), (Values{1}));
    EXPECT_THAT(file.read_integers("w").error().message,
                HasSubstr("tensor 'w' has type F32, expected integers"));
    EXPECT_THAT(file.read_integers("absent").error().message, HasSubstr("tensor 'absent' is missing"));
}

TEST(Safetensors, ShippedDraftersOpen) {
    const std::string folder = std::string(DS_SOURCE_DIR) + "/assets/drafters/";
    for (const auto& [name, tensor, shape] :
         std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>>>{
             {"eagle2", "fc.weight", {576, 1152}},
             {"eagle3", "fc.weight", {576, 1728}},
             {"medusa", "0.0.linear.weight", {576, 576}}}) {
        const auto file = require(open_safetensors(folder + name + "/model.safetensors"));
        const TensorInfo* info = file->find(tensor);
        ASSERT_NE(info, nullptr) << name << " has: " << fmt::format("{}", fmt::join(file->names(), " "));
        EXPECT_EQ(info->shape, shape);
    }
}

TEST(Safetensors, RejectsEveryTruncation) {
    const std::string bytes = sample();
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) refused(bytes.substr(0, cut));
}

TEST(Safetensors, FlippedBytesNeverCrash) {
    const std::string bytes = sample();
    Rng rng(5);
    for (int i = 0; i < 3000; ++i) {
        std::string damaged = bytes;
        damaged[rng.below(static_cast<std::uint32_t>(bytes.size()))] = static_cast<char>(rng.below(256));
        const auto file = open_bytes(damaged);
        if (!file.ok()) continue;
        for (const std::string& name : (*file)->names()) {
            const TensorInfo& info = *(*file)->find(name);
            for (std::int64_t row = 0; row < std::min<std::int64_t>(info.rows(), 4); ++row)
                read_row_values(**file, name, row);
            (void)(*file)->read_integers(name);
        }
    }
}

TEST(Safetensors, ReportsWhatIsWrong) {
    const auto tensor = [](const std::string& fields, std::size_t bytes = 8) {
        return refused(file_bytes(R"({"t":{)" + fields + "}}", std::string(bytes, '\0')));
    };
    EXPECT_THAT(refused("PK\x03\x04zip archive"), HasSubstr("not a safetensors file: first bytes are \"PK"));
    EXPECT_THAT(refused(file_bytes("[1,2]", "")), HasSubstr("not a JSON object"));
    EXPECT_THAT(refused(file_bytes("{\"t\":", "")), HasSubstr("not valid JSON"));
    EXPECT_THAT(refused(file_bytes(std::string(50000, '{'), "")), HasSubstr("not valid JSON"));
    EXPECT_THAT(refused(raw_bytes<std::uint64_t>(99'000'000) + "{}"), HasSubstr("the file is truncated"));
    EXPECT_THAT(tensor(R"("dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8])"),
                HasSubstr("tensor 't' has type F8_E4M3"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
                HasSubstr("takes 12 bytes by its shape and 8 by its data_offsets"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"),
                HasSubstr("needs 16 bytes of data, 8 are"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), HasSubstr("invalid"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), HasSubstr("invalid shape"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,8])"), HasSubstr("invalid shape"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0])"),
                HasSubstr("invalid"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2])"),
                HasSubstr("lacks a valid dtype, shape or data_offsets"));
    EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), HasSubstr("lacks a valid"));
    EXPECT_THAT(refused(file_bytes(R"({"t":5})", "")), HasSubstr("lacks a valid"));
    EXPECT_THAT(refused(file_bytes(R"({"__metadata__":5})", "")), HasSubstr("__metadata__ is not"));
    EXPECT_THAT(refused(file_bytes(R"({"__metadata__":{"a":5}})", "")),
                HasSubstr("__metadata__ 'a' is not a string"));
    const std::string same = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
    EXPECT_THAT(refused(file_bytes("{" + same + "," + same + "}", "1234")),
                HasSubstr("tensor 't' appears twice"));
    EXPECT_THAT(open_safetensors(::testing::TempDir()).error().message, HasSubstr("is a folder"));
    EXPECT_THAT(open_safetensors(scratch("nowhere")).error().message, HasSubstr("no such file"));
}

}  // namespace
}  // namespace draftscope
